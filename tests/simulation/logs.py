"""Consistency of the broker's logs: derived state must match the records, live and after a restart."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker_core.log.partition_log import PartitionLog
from broker_core.types import IsolationLevel
from tests.simulation.markers import ABORT, KeptBatch, Scanned, check_markers, spans_of
from tests.simulation.readers import batches_of

if TYPE_CHECKING:
    from tests.simulation.world import World

_ALL = 1 << 30


class Folded(NamedTuple):
    """What the records of one partition show by themselves."""

    open: dict[int, int]
    aborted: list[tuple[int, int, int]]
    problems: list[str]


def check_logs(world: "World") -> Iterator[str]:
    """Recompute open and aborted transactions from each log's records, and check the markers against the history."""
    scanned: Scanned = {}
    logs = world.server.cluster.logs
    for log in [logs.get(each, world.clock.now_ms()) for each in logs.with_files()]:
        name = str(log.topic_partition)
        is_compacted = log.config.cleanup_policy == "compact"
        batches = batches_in(log)
        if not is_compacted or _is_whole(batches):
            scanned[log.topic_partition] = spans_of(batches)
        folded = fold(batches, log.log_start_offset, is_dense=not is_compacted)
        yield from (f"{name}: {problem}" for problem in folded.problems)
        opened = {each.producer_id: each.first_offset for each in log.producer_state.open_transactions}
        if opened != folded.open:
            yield f"{name}: open are {opened}, the records say {folded.open}"
        aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_transactions()]
        if not is_compacted and aborted != folded.aborted:
            yield f"{name}: the aborted index has {aborted}, the records say {folded.aborted}"
    yield from check_markers(world, scanned)


def batches_in(log: PartitionLog) -> list[KeptBatch]:
    """Read all batches of a log."""
    found: list[KeptBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, _ALL, IsolationLevel.READ_UNCOMMITTED).records)
        if not data:
            break
        found += map(KeptBatch, batches_of(data))
        offset = found[-1].next_offset
    return found


def _is_whole(batches: list[KeptBatch]) -> bool:
    """Return whether compaction has removed nothing from a log."""
    ends = [0, *(batch.next_offset for batch in batches)]
    return all(
        batch.base_offset == end and batch.records_count == batch.next_offset - batch.base_offset
        for batch, end in zip(batches, ends, strict=False)
    )


def fold(batches: list[KeptBatch], start: int, *, is_dense: bool) -> Folded:
    """Follow the transactions in the records of a log from its start."""
    folded = Folded({}, [], [])
    following: dict[int, tuple[int, int]] = {}
    end = start
    for batch in batches:
        if is_dense and batch.base_offset != end:
            folded.problems.append(f"offset {batch.base_offset} follows {end - 1}")
        end = batch.next_offset
        if batch.marker is not None:
            _fold_marker(batch, folded)
        elif batch.is_transactional:
            folded.open.setdefault(batch.producer_id, batch.base_offset)
            if is_dense:
                _fold_sequence(batch, folded, following)
    return folded


def _fold_marker(batch: KeptBatch, folded: Folded) -> None:
    first = folded.open.pop(batch.producer_id, None)
    if first is not None and batch.marker == ABORT:
        folded.aborted.append((batch.producer_id, first, batch.base_offset))


def _fold_sequence(batch: KeptBatch, folded: Folded, following: dict[int, tuple[int, int]]) -> None:
    epoch, expected = following.get(batch.producer_id, (-1, -1))
    if batch.producer_epoch == epoch and batch.base_sequence != expected:
        folded.problems.append(
            f"producer {batch.producer_id} at epoch {epoch}: sequence {batch.base_sequence} follows {expected - 1}"
        )
    if batch.producer_epoch < epoch:
        folded.problems.append(f"producer {batch.producer_id}: epoch {batch.producer_epoch} follows {epoch}")
    following[batch.producer_id] = (batch.producer_epoch, batch.base_sequence + batch.records_count)
