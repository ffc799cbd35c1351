"""The persisted state of a share partition, the combination of its batches, and the requests to the share coordinator.

A share partition is one partition as one share group reads it. Its state is the offset from which records are not yet
done, and for ranges of later offsets the delivery state and the number of deliveries.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError

UNINITIALIZED: Final = -1


class SharePartitionKey(NamedTuple):
    """A partition of a topic, as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """A range of offsets with one delivery state and number of deliveries."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The state of one share partition, with the fields of a snapshot in the order of the record.

    A start offset of -1 is decided by the leader of the partition.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    created_ms: int = 0
    written_ms: int = 0
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNINITIALIZED


class Outcome(NamedTuple):
    """The result for one share partition; `message` explains an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: ErrorCode) -> "Outcome":
        return cls(error, STANDARD_MESSAGES.get(error)) if error else cls()


def outcome_of(call: Callable[..., object], *arguments: object) -> Outcome:
    """Call a function, and return its result as an outcome."""
    try:
        call(*arguments)
    except KafkaError as error:
        return Outcome(error.code, error.message or None)
    return Outcome()


def standard_error(error: ErrorCode) -> KafkaError:
    return KafkaError(error, STANDARD_MESSAGES.get(error, ""))


class ShareWrite(NamedTuple):
    """A change of a share partition by its leader."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int = UNINITIALIZED


def combine(before: Iterable[StateBatch], later: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return disjoint batches from the start offset on.

    Where batches overlap, the one with more deliveries counts, of those the one with the higher state: a record never
    returns to an earlier state.
    """
    kept = [
        each._replace(first_offset=max(each.first_offset, start_offset)) if start_offset != UNINITIALIZED else each
        for each in (*before, *later)
        if start_offset == UNINITIALIZED or each.last_offset >= start_offset
    ]
    edges = sorted({edge for each in kept for edge in (each.first_offset, each.last_offset + 1)})
    begins: dict[int, list[StateBatch]] = {}
    for each in kept:
        begins.setdefault(each.first_offset, []).append(each)
    combined: list[StateBatch] = []
    active: list[StateBatch] = []
    for first, end in pairwise(edges):
        active = [each for each in active if each.last_offset >= first] + begins.get(first, [])
        if active:
            wins = max(active, key=lambda each: (each.delivery_count, each.delivery_state))
            _append(combined, wins._replace(first_offset=first, last_offset=end - 1))
    return tuple(combined)


def _append(batches: list[StateBatch], batch: StateBatch) -> None:
    last = batches[-1] if batches else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        batches[-1] = last._replace(last_offset=batch.last_offset)
    else:
        batches.append(batch)
