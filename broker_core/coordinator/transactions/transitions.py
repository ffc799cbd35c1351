"""The record of each verdict, and the checks of illegal steps (rules A.3, A.5, A.9, A.10)."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from broker_core.coordinator.transactions.decision_tables import Image
from broker_core.coordinator.transactions.records import IDLE, PREDECESSORS, PREPARED, TransactionImage
from broker_core.types import (
    FENCING_EPOCH,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionState,
)

# An image to be recorded, and the last producer epoch, which is not part of the record (see `TransactionEntry`).
Draft: TypeAlias = tuple[TransactionImage, int]


class Change(NamedTuple):
    """The inputs of a new image: the stored image and the fields of the request.

    `fresh_producer_id` is called only for an image that changes to a new producer id; it raises `KafkaError` if none is
    available.
    """

    stored: TransactionImage
    last_producer_epoch: int
    next_state: TransactionState
    now_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    client_transaction_version: int
    fresh_producer_id: Callable[[], int]

    def image(
        self,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[TopicPartition] | None = None,
        start_ms: int | None = None,
        next_producer_id: int = NO_PRODUCER_ID,
        client_transaction_version: int | None = None,
    ) -> TransactionImage:
        """Return the stored image in the next state, with the given changes; `_replace` takes longer."""
        old = self.stored
        return TransactionImage(
            old.producer_id if producer_id is None else producer_id,
            old.producer_epoch if producer_epoch is None else producer_epoch,
            old.timeout_ms if timeout_ms is None else timeout_ms,
            self.next_state,
            old.partitions if partitions is None else partitions,
            self.now_ms,
            old.start_ms if start_ms is None else start_ms,
            old.producer_id,
            next_producer_id,
            old.client_transaction_version if client_transaction_version is None else client_transaction_version,
        )


def _emptied(change: Change, producer_id: int, producer_epoch: int, last_producer_epoch: int) -> Draft:
    image = change.image(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=change.timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
    )
    return image, last_producer_epoch


def _bump(change: Change, last_producer_epoch: int) -> Draft:
    return _emptied(change, change.stored.producer_id, change.stored.producer_epoch + 1, last_producer_epoch)


def _add(change: Change, before: frozenset[TopicPartition], start_ms: int) -> Draft:
    image = change.image(
        partitions=before | change.partitions,
        start_ms=start_ms,
        client_transaction_version=change.client_transaction_version,
    )
    return image, change.last_producer_epoch


def _prepare_at(change: Change, producer_epoch: int, next_producer_id: int) -> Draft:
    """Return the prepared image with the next epoch; an abort without partitions gets a start time.

    Completion requires a start time, and such a transaction has none.
    """
    image = change.image(
        producer_epoch=producer_epoch,
        next_producer_id=next_producer_id,
        start_ms=change.now_ms if change.stored.state in IDLE else None,
        client_transaction_version=2,
    )
    return image, change.stored.producer_epoch


def _fence(change: Change) -> Draft:
    fenced = min(change.stored.producer_epoch + 1, FENCING_EPOCH)
    image = change.image(producer_epoch=fenced, client_transaction_version=0)
    return image, NO_PRODUCER_EPOCH


def _complete_rotated(change: Change) -> Draft:
    image = change.image(producer_id=change.stored.next_producer_id, producer_epoch=0, partitions=frozenset())
    return image, LAST_CLIENT_EPOCH


BUILDERS: Final[dict[Image, Callable[[Change], Draft]]] = {
    Image.BUMP: lambda change: _bump(change, NO_PRODUCER_EPOCH),
    Image.BUMP_REMEMBERING: lambda change: _bump(change, change.stored.producer_epoch),
    Image.REPEAT: lambda change: _emptied(
        change, change.stored.producer_id, change.stored.producer_epoch, change.last_producer_epoch
    ),
    Image.ROTATE: lambda change: _emptied(change, change.fresh_producer_id(), 0, NO_PRODUCER_EPOCH),
    Image.ROTATE_REMEMBERING: lambda change: _emptied(
        change, change.fresh_producer_id(), 0, change.stored.producer_epoch
    ),
    Image.BEGIN: lambda change: _add(change, frozenset(), change.now_ms),
    Image.EXTEND: lambda change: _add(change, change.stored.partitions, change.stored.start_ms),
    Image.PREPARE: lambda change: (change.image(client_transaction_version=0), change.last_producer_epoch),
    Image.PREPARE_BUMPED: lambda change: _prepare_at(change, change.stored.producer_epoch + 1, NO_PRODUCER_ID),
    Image.PREPARE_OVERFLOWED: lambda change: _prepare_at(change, FENCING_EPOCH, change.fresh_producer_id()),
    Image.FENCE: _fence,
    Image.COMPLETE: lambda change: (change.image(partitions=frozenset()), change.last_producer_epoch),
    Image.COMPLETE_ROTATED: _complete_rotated,
}


def build(image: Image, change: Change) -> Draft:
    """Build the record of a verdict; an illegal step or image fails an assertion.

    Raises `KafkaError` if it needs a producer id and none is available.
    """
    draft = new, _ = BUILDERS[image](change)
    for rules in (step_rules(change.stored, new), stored_rules(new)):
        assert all(rules.values()), f"{change.stored} -> {new} breaks {broken(rules)}"
    return draft


def fresh_image(producer_id: int, now_ms: int) -> TransactionImage:
    """Return the image of a transactional id that was not used yet (rules A.1)."""
    return TransactionImage(producer_id, NO_PRODUCER_EPOCH, 0, TransactionState.EMPTY, frozenset(), now_ms)


def step_rules(old: TransactionImage, new: TransactionImage) -> dict[str, bool]:
    """Return the rules of a step to a state, and whether it follows each (rules A.3, the checks on completing a step).

    `stored_rules` has the rules of the new image alone.
    """
    state = new.state
    rules = {"legal step": old.state in PREDECESSORS[state]}
    if state is not TransactionState.EMPTY:
        rules["same timeout"] = new.timeout_ms == old.timeout_ms
    if state is TransactionState.ONGOING:
        rules["same identity"] = new.producer_id == old.producer_id and new.producer_epoch == old.producer_epoch
        rules["partitions only grow"] = new.partitions >= old.partitions
    elif state in IDLE and state is not TransactionState.EMPTY:
        rules["as prepared"] = (new.producer_id, new.producer_epoch) == old.next_identity
    else:
        same_id, step = new.producer_id == old.producer_id, new.producer_epoch - old.producer_epoch
        rules["epoch moves on"] = step in (0, 1) if same_id else new.producer_epoch == 0
        if state in PREPARED:
            rules["same partitions"] = new.partitions == old.partitions
            rules["same producer id"] = same_id
            rules["bumped if V2"] = new.client_transaction_version < 2 or (
                new.producer_epoch == min(old.producer_epoch + 1, FENCING_EPOCH)
            )
    return rules


def stored_rules(image: TransactionImage) -> dict[str, bool]:
    """Return the rules of every image that a coordinator writes, on which later steps rely, and whether each holds."""
    is_empty, is_prepared = image.state is TransactionState.EMPTY, image.state in PREPARED
    next_id = image.next_producer_id
    return {
        "has an epoch": image.producer_epoch >= 0 <= image.producer_id,
        "has a known client version": image.client_transaction_version >= 0,
        "no partitions": not (image.partitions and image.state in IDLE),
        "no start": not is_empty or image.start_ms == NO_TIMESTAMP,
        "has a start": is_empty or image.start_ms != NO_TIMESTAMP,
        "nothing to rotate": is_prepared or next_id == NO_PRODUCER_ID,
        "rotates to another id, if at all": not is_prepared
        or next_id == NO_PRODUCER_ID
        or (image.client_transaction_version >= 2 and 0 <= next_id != image.producer_id),
    }


def broken(rules: dict[str, bool]) -> list[str]:
    """Return the rules that do not hold."""
    return [] if all(rules.values()) else [name for name, holds in rules.items() if not holds]
