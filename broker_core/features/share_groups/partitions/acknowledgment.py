"""The acknowledgment of records by the member that has acquired them (KIP-932), and the renewal of locks (KIP-1222)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.partitions.in_flight import NO_MEMBER, InFlight, InFlightBatch, RecordState
from broker_core.features.share_groups.partitions.share_partition import Change, SharePartition, undo

RENEW: Final = 4
# By the type of an acknowledgment: gap, accept, release, reject.
_STATES: Final[Mapping[int, RecordState]] = {
    0: RecordState.ARCHIVED,
    1: RecordState.ACKNOWLEDGED,
    2: RecordState.AVAILABLE,
    3: RecordState.ARCHIVED,
}


class Acknowledgment(NamedTuple):
    """The acknowledgment of a range of offsets, with one type for all or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        return self.types[offset - self.first_offset] if len(self.types) > 1 else self.types[0]

    def counts(self) -> Counter[int]:
        if len(self.types) > 1:
            return Counter(self.types)
        return Counter({self.types[0]: self.last_offset - self.first_offset + 1})


def acknowledge(
    partition: SharePartition, member_id: str, acknowledgments: Sequence[Acknowledgment], now_ms: int
) -> None:
    """Apply all acknowledgments of a request, or none: raise INVALID_RECORD_STATE or INVALID_REQUEST."""
    changes: list[Change] = []
    try:
        for each in acknowledgments:
            if each.last_offset >= partition.start_offset:
                _apply(partition, member_id, each, now_ms, changes)
    except KafkaError:
        undo(changes)
        raise
    partition.commit(changes)


def _apply(
    partition: SharePartition, member_id: str, wanted: Acknowledgment, now_ms: int, changes: list[Change]
) -> None:
    for batch in _acknowledged_batches(partition, wanted):
        if batch.last_offset < partition.start_offset:
            continue
        if batch.offsets is None:
            _check_owner(batch, member_id)
        is_split = (
            batch.offsets is not None
            or len(wanted.types) > 1
            or not batch.is_within(wanted.first_offset, wanted.last_offset)
            or batch.first_offset < partition.start_offset
        )
        if not is_split:
            _finish(partition, batch.first_offset, batch.last_offset, batch.whole, wanted, now_ms, changes)
            continue
        for offset, each in batch.split().items():
            if max(wanted.first_offset, partition.start_offset) <= offset <= wanted.last_offset:
                if each.state is not RecordState.ACQUIRED:
                    raise _refusal("The offset cannot be acknowledged. The offset is not acquired.")
                if each.member_id != member_id:
                    raise _refusal("Member is not the owner of offset")
                _finish(partition, offset, offset, each, wanted, now_ms, changes)


def _acknowledged_batches(partition: SharePartition, wanted: Acknowledgment) -> list[InFlightBatch]:
    batches = partition.batches
    floor = batches.at_or_before(wanted.first_offset)
    if floor is None:
        has_start_moved = wanted.first_offset < partition.start_offset <= wanted.last_offset
        floor = batches.at_or_before(partition.start_offset) if has_start_moved else None
        if floor is None:
            raise _refusal("Batch record not found. The request batch offsets are not found in the cache.")
    found = batches.beginning_within(floor.first_offset, wanted.last_offset)
    if found[-1].last_offset < wanted.first_offset:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Batch record not found. The first offset in request is past acquired records.",
        )
    if wanted.last_offset > found[-1].last_offset:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
        )
    return found


def _check_owner(batch: InFlightBatch, member_id: str) -> None:
    if batch.whole.member_id == NO_MEMBER:
        raise _refusal("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if batch.whole.member_id != member_id:
        raise _refusal("Member is not the owner of batch record")


def _finish(
    partition: SharePartition,
    first_offset: int,
    last_offset: int,
    each: InFlight,
    wanted: Acknowledgment,
    now_ms: int,
    changes: list[Change],
) -> None:
    """Acknowledge one range that has one state, or renew its lock."""
    kind = wanted.type_of(max(first_offset, wanted.first_offset))
    if kind != RENEW:
        changes.append(partition.finish(first_offset, last_offset, each, _STATES[kind]))
        return
    settings = partition.settings()
    if not settings.may_renew:
        raise _refusal("Renewing acquisition locks is not enabled for the group.")
    each.lock_until_ms = now_ms + settings.record_lock_duration_ms


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
