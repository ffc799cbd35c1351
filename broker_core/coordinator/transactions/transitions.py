"""The record of each verdict, and the checks of illegal steps (rules A.3, A.5, A.9, A.10)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.coordinator.transactions.decision_tables import Image
from broker_core.coordinator.transactions.records import IDLE, PREPARED, TransactionImage, is_legal
from broker_core.types import (
    FENCING_EPOCH,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionState,
)


class TransactionDraft(NamedTuple):
    """An image to be recorded, and the one field that is not part of the record.

    `last_producer_epoch` lets a caller of InitProducerId retry if its answer was lost (KIP-360). It has
    no field in the log, so it does not survive a failover; such a caller is then fenced, as in Kafka.
    """

    image: TransactionImage
    last_producer_epoch: int


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


def _emptied(change: Change, producer_id: int, producer_epoch: int, last_producer_epoch: int) -> TransactionDraft:
    image = change.image(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=change.timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
    )
    return TransactionDraft(image, last_producer_epoch)


def _bump(change: Change, last_producer_epoch: int) -> TransactionDraft:
    return _emptied(change, change.stored.producer_id, change.stored.producer_epoch + 1, last_producer_epoch)


def _add(change: Change, before: frozenset[TopicPartition], start_ms: int) -> TransactionDraft:
    image = change.image(
        partitions=before | change.partitions,
        start_ms=start_ms,
        client_transaction_version=change.client_transaction_version,
    )
    return TransactionDraft(image, change.last_producer_epoch)


def _prepare_at(change: Change, producer_epoch: int, next_producer_id: int) -> TransactionDraft:
    """Return the prepared image with the next epoch; an abort without partitions gets a start time.

    Completion requires a start time, and such a transaction has none.
    """
    image = change.image(
        producer_epoch=producer_epoch,
        next_producer_id=next_producer_id,
        start_ms=change.now_ms if change.stored.state in IDLE else None,
        client_transaction_version=2,
    )
    return TransactionDraft(image, change.stored.producer_epoch)


def _fence(change: Change) -> TransactionDraft:
    fenced = min(change.stored.producer_epoch + 1, FENCING_EPOCH)
    image = change.image(producer_epoch=fenced, client_transaction_version=0)
    return TransactionDraft(image, NO_PRODUCER_EPOCH)


def _complete_rotated(change: Change) -> TransactionDraft:
    image = change.image(producer_id=change.stored.next_producer_id, producer_epoch=0, partitions=frozenset())
    return TransactionDraft(image, LAST_CLIENT_EPOCH)


BUILDERS: Final[dict[Image, Callable[[Change], TransactionDraft]]] = {
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
    Image.PREPARE: lambda change: TransactionDraft(
        change.image(client_transaction_version=0), change.last_producer_epoch
    ),
    Image.PREPARE_BUMPED: lambda change: _prepare_at(change, change.stored.producer_epoch + 1, NO_PRODUCER_ID),
    Image.PREPARE_OVERFLOWED: lambda change: _prepare_at(change, FENCING_EPOCH, change.fresh_producer_id()),
    Image.FENCE: _fence,
    Image.COMPLETE: lambda change: TransactionDraft(change.image(partitions=frozenset()), change.last_producer_epoch),
    Image.COMPLETE_ROTATED: _complete_rotated,
}


def build(image: Image, change: Change) -> TransactionDraft:
    """Build the record of a verdict; an illegal step or image fails an assertion.

    Raises `KafkaError` if it needs a producer id and none is available.
    """
    draft = BUILDERS[image](change)
    broken = broken_rules(change.stored, draft.image)
    assert not broken, f"{change.stored} -> {draft.image} breaks {broken}"
    return draft


def fresh_image(producer_id: int, now_ms: int) -> TransactionImage:
    """Return the image of a transactional id that was not used yet (rules A.1)."""
    return TransactionImage(producer_id, NO_PRODUCER_EPOCH, 0, TransactionState.EMPTY, frozenset(), now_ms)


def _epoch_moves_on(old: TransactionImage, new: TransactionImage) -> bool:
    """Return whether the epoch stays, increments by one, or begins at 0 with a new producer id."""
    if new.producer_id != old.producer_id:
        return new.producer_epoch == 0
    return new.producer_epoch in (old.producer_epoch, old.producer_epoch + 1)


def _bumped_if_v2(old: TransactionImage, new: TransactionImage) -> bool:
    moved_on = new.producer_epoch == min(old.producer_epoch + 1, FENCING_EPOCH)
    return new.client_transaction_version < 2 or moved_on


_Rule = tuple[str, frozenset[TransactionState], Callable[[TransactionImage, TransactionImage], bool]]
_EMPTY = frozenset({TransactionState.EMPTY})
_ONGOING = frozenset({TransactionState.ONGOING})
_COMPLETE = IDLE - _EMPTY
_ANY = _EMPTY | _ONGOING | PREPARED | _COMPLETE

# The rules of a step, by the state it leads to (rules A.3, the checks on completing a transition). The image that it
# leads to has to follow STORED_RULES too.
STEP_RULES: Final[tuple[_Rule, ...]] = (
    ("legal step", _ANY, lambda old, new: is_legal(old.state, new.state)),
    # The other states' rules of the identity say more.
    ("epoch moves on", _EMPTY | PREPARED, _epoch_moves_on),
    ("same identity", _ONGOING, lambda old, new: new.identity == old.identity),
    ("same timeout", _ANY - _EMPTY, lambda old, new: new.timeout_ms == old.timeout_ms),
    ("partitions only grow", _ONGOING, lambda old, new: new.partitions >= old.partitions),
    ("same partitions", PREPARED, lambda old, new: new.partitions == old.partitions),
    ("same producer id", PREPARED, lambda old, new: new.producer_id == old.producer_id),
    ("bumped if V2", PREPARED, _bumped_if_v2),
    ("as prepared", _COMPLETE, lambda old, new: new.identity == old.next_identity),
)


# The rules of every image that a coordinator writes, which later steps rely on.
STORED_RULES: Final[tuple[tuple[str, frozenset[TransactionState], Callable[[TransactionImage], bool]], ...]] = (
    ("has an epoch", _ANY, lambda image: image.producer_epoch >= 0 <= image.producer_id),
    ("has a known client version", _ANY, lambda image: image.client_transaction_version >= 0),
    ("no partitions", _EMPTY | _COMPLETE, lambda image: not image.partitions),
    ("no start", _EMPTY, lambda image: image.start_ms == NO_TIMESTAMP),
    ("has a start", _ANY - _EMPTY, lambda image: image.start_ms != NO_TIMESTAMP),
    ("nothing to rotate", _ANY - PREPARED, lambda image: image.next_producer_id == NO_PRODUCER_ID),
    (
        "rotates to another id, if at all",
        PREPARED,
        lambda image: (
            image.next_producer_id == NO_PRODUCER_ID
            or (image.rotates and 0 <= image.next_producer_id != image.producer_id)
        ),
    ),
)


# The rules by state, since a look-up in the set of states of each rule takes longer than the rule.
_STEP_RULES_OF: Final = {
    state: [(name, holds) for name, states, holds in STEP_RULES if state in states] for state in TransactionState
}
_STORED_RULES_OF: Final = {
    state: [(name, holds) for name, states, holds in STORED_RULES if state in states] for state in TransactionState
}


def broken_stored_rules(image: TransactionImage) -> list[str]:
    """Return the rules that an image from the log violates; a coordinator does not write such an image."""
    return [name for name, holds in _STORED_RULES_OF[image.state] if not holds(image)]


def broken_rules(old: TransactionImage, new: TransactionImage) -> list[str]:
    """Return the rules that the step from `old` to `new` violates, and the rules that `new` itself violates."""
    broken = [name for name, holds in _STEP_RULES_OF[new.state] if not holds(old, new)]
    return broken + broken_stored_rules(new)
