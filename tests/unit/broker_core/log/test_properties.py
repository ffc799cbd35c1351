"""The partition log compared with simple models, with crashes at any point."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.log.producer_state import ProducerState
from broker_core.records.header import iter_headers
from broker_core.simulation.disk import MemoryStorage
from tests.support.examples import examples
from tests.support.partition_logs import (
    COMMITTED,
    NOW_MS,
    UNCOMMITTED,
    append,
    end,
    newest_only,
    open_log,
    produce,
    truncate,
)

SMALL = {"segment.bytes": "420", "index.interval.bytes": "80"}
EXAMPLES = examples(60)


class Plain(NamedTuple):
    """An append of records outside any transaction."""

    count: int


class Data(NamedTuple):
    """An append of records in a producer's transaction."""

    producer_id: int
    count: int


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    commit: bool


class Trim(NamedTuple):
    """The deletion of a share of the records that may be deleted."""

    percent: int


PRODUCERS = st.integers(1, 3)
APPENDS = (
    st.builds(Plain, st.integers(1, 3))
    | st.builds(Data, PRODUCERS, st.integers(1, 3))
    | st.builds(Marker, PRODUCERS, st.booleans())
)
OPERATIONS = st.lists(APPENDS | APPENDS | APPENDS | st.builds(Trim, st.integers(0, 100)), max_size=25)


@dataclass
class Stored:
    """An appended batch."""

    operation: Any
    base_offset: int
    last_offset: int


@dataclass
class Writer:
    """A log with the operations that were applied to it."""

    log: PartitionLog
    stored: list[Stored] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    def apply(self, operation: Any) -> None:
        if isinstance(operation, Trim):
            start = self.log.log_start_offset
            offset = start + (self.log.high_watermark - start) * operation.percent // 100
            assert self.log.delete_records_before(offset) == offset == self.log.log_start_offset
            return
        if isinstance(operation, Plain):
            result = append(self.log, operation.count)
        elif isinstance(operation, Data):
            sequence = self.sequences.get(operation.producer_id, 0)
            result = produce(self.log, operation.producer_id, sequence, operation.count)
            self.sequences[operation.producer_id] = sequence + operation.count
        else:
            result = end(self.log, operation.producer_id, commit=operation.commit)
        self.stored.append(Stored(operation, result.base_offset, result.last_offset))

    def keep(self, log: PartitionLog) -> None:
        """Continue with a log that contains a prefix of the written batches."""
        self.log = log
        self.stored = [stored for stored in self.stored if stored.base_offset < log.log_end_offset]
        self.sequences = {}
        for stored in self.stored:
            if isinstance(stored.operation, Data):
                producer_id = stored.operation.producer_id
                self.sequences[producer_id] = self.sequences.get(producer_id, 0) + stored.operation.count


class Transaction(NamedTuple):
    """A transaction found by brute force; the marker's offset and its result are None while the transaction is open."""

    producer_id: int
    first_offset: int
    last_offset: int | None
    commit: bool | None


def transactions(stored: list[Stored]) -> list[Transaction]:
    """Find all transactions by reading everything from the start."""
    opened: dict[int, int] = {}
    found = []
    for item in stored:
        operation = item.operation
        if isinstance(operation, Data):
            opened.setdefault(operation.producer_id, item.base_offset)
        elif isinstance(operation, Marker) and operation.producer_id in opened:
            first = opened.pop(operation.producer_id)
            found.append(Transaction(operation.producer_id, first, item.base_offset, operation.commit))
    return found + [Transaction(producer_id, first, None, None) for producer_id, first in opened.items()]


def assert_equals_brute_force(writer: Writer) -> None:
    log, stored = writer.log, writer.stored
    everything = transactions(stored)
    log_end = stored[-1].last_offset + 1 if stored else 0
    assert log.log_end_offset == log_end
    assert log.high_watermark == log_end
    undecided = [found.first_offset for found in everything if found.last_offset is None]
    at_start = next((each.base_offset for each in stored if each.last_offset >= log.log_start_offset), log_end)
    assert log.last_stable_offset == min([log_end, *(max(first, at_start) for first in undecided)])
    assert sorted((found.producer_id, found.first_offset) for found in log.producer_state.open_transactions) == sorted(
        (found.producer_id, found.first_offset) for found in everything if found.last_offset is None
    )
    aborted = sorted((found[:3] for found in everything if found.commit is False), key=lambda found: found[2] or 0)
    # The entries of deleted segments are gone too; a reader may still fetch from the log start offset on.
    known = [entry[:3] for entry in log.aborted_transactions()]
    assert known == aborted[len(aborted) - len(known) :]
    assert all(found[2] < log.log_start_offset for found in aborted[: len(aborted) - len(known)] if found[2])
    for entry in log.aborted_transactions():
        others = [
            found.first_offset
            for found in everything
            if found.first_offset < entry.last_offset
            and (found.last_offset is None or found.last_offset > entry.last_offset)
        ]
        assert entry.last_stable_offset == min([entry.last_offset + 1, *others])


def assert_reads_equal_brute_force(writer: Writer, max_bytes: int) -> None:
    log = writer.log
    aborted = [found for found in transactions(writer.stored) if found.commit is False]
    for isolation, bound in ((UNCOMMITTED, log.high_watermark), (COMMITTED, log.last_stable_offset)):
        for start in range(log.log_start_offset, log.log_end_offset + 1):
            result = log.read(start, max_bytes, isolation)
            bases = [header.base_offset for _, header in iter_headers(result.records)]
            expected = [stored.base_offset for stored in writer.stored if start <= stored.last_offset < bound]
            assert bases == expected[: len(bases)]
            assert bool(bases) == bool(expected)
            if isolation is COMMITTED:
                overlapping = {
                    (found.producer_id, found.first_offset)
                    for found in aborted
                    if bases and found.first_offset < result.next_offset and (found.last_offset or 0) >= start
                }
                assert result.aborted is not None
                assert set(result.aborted) == overlapping
            else:
                assert result.aborted is None


# Rules C.6/6, C.8/6 and C.8/7.
@EXAMPLES
@given(OPERATIONS, st.sampled_from([1, 150, 10_000]))
def test_offsets_and_reads_match_brute_force(operations: list[Any], max_bytes: int) -> None:
    writer = Writer(open_log(settings=SMALL))
    for operation in operations:
        writer.apply(operation)
        assert_equals_brute_force(writer)
    assert_reads_equal_brute_force(writer, max_bytes)


@EXAMPLES
@given(OPERATIONS, st.lists(st.tuples(st.integers(0, 60), st.booleans(), OPERATIONS), max_size=4))
def test_truncating_and_reopening_matches_a_list(
    operations: list[Any], rounds: list[tuple[int, bool, list[Any]]]
) -> None:
    storage = MemoryStorage()
    writer = Writer(open_log(storage, SMALL))
    for requested, clean, more in [(10**6, False, operations), *rounds]:
        offset = max(requested, writer.log.log_start_offset)
        truncate(writer.log, offset)
        writer.stored = [stored for stored in writer.stored if stored.last_offset < offset]
        writer.keep(writer.log)
        assert_equals_brute_force(writer)
        for operation in more[:10]:
            writer.apply(operation)
        if clean:
            writer.log.close(NOW_MS)
        writer.keep(open_log(storage, SMALL))
        assert_equals_brute_force(writer)
    assert_reads_equal_brute_force(writer, 150)


def replayed(log: PartitionLog) -> PartitionLog:
    """Append the same batches to a new log, without a crash."""
    other = open_log(settings=SMALL)
    for segment in log.segments:
        for _, header, buffer, at in segment.headers():
            data = buffer[at : at + header.size_bytes]
            active = other.segments.active
            aborted = other.apply_batch(header, header.base_offset, data, 0)
            active.append(data, header.last_offset, header.max_timestamp, 80)
            if aborted is not None:
                active.transaction_index.append(aborted)
            other.log_end_offset = header.next_offset
    return other


class Step(NamedTuple):
    """One operation, perhaps followed by a sync or by a crash and recovery."""

    operation: Any
    sync: bool
    crash: int | None
    torn_bytes: int
    names_survive: bool


STEPS = st.lists(
    st.builds(
        Step, APPENDS, st.booleans(), st.none() | st.none() | st.integers(0, 3), st.integers(0, 400), st.booleans()
    ),
    max_size=30,
)


@EXAMPLES
@given(STEPS)
def test_crash_leaves_a_prefix_with_everything_synced(steps: list[Step]) -> None:
    storage = MemoryStorage()
    writer = Writer(open_log(storage, SMALL))
    synced = 0
    for step in steps:
        writer.apply(step.operation)
        if step.sync:
            writer.log.sync()
            assert writer.log.unsynced_bytes == 0
            synced = writer.log.log_end_offset
        if step.crash is None:
            continue
        before = [stored.base_offset for stored in writer.stored]
        if step.crash == 0:
            # Only records survive, in part.
            storage.crash(
                survives=lambda path, unsynced, step=step: (
                    min(step.torn_bytes, unsynced) if path.endswith(".log") else 0
                ),
                names_survive=step.names_survive,
            )
        else:
            # Every file keeps a different part of the unsynced data, as disks may do.
            storage.crash(
                survives=lambda path, unsynced, step=step: (step.torn_bytes * len(path)) % (unsynced + 1),
                names_survive=step.names_survive,
            )
        log = open_log(storage, SMALL)
        assert log.log_end_offset >= synced
        assert log.log_end_offset in [*before, writer.log.log_end_offset]
        writer.keep(log)
        assert_equals_brute_force(writer)
        full = replayed(log)
        assert [newest_only(entry) for entry in log.producer_state.entries] == [
            newest_only(entry) for entry in full.producer_state.entries
        ]
        assert log.aborted_transactions() == full.aborted_transactions()
        assert log.leader_epochs.latest == (0 if writer.stored else -1)
        synced = min(synced, log.log_end_offset)
    assert_reads_equal_brute_force(writer, 150)


def test_loaded_state_restores_its_open_transactions() -> None:
    entries = [ProducerStateEntry(1, 0, 0, 0, 50), ProducerStateEntry(2, 0, 0, 0, 20), ProducerStateEntry(3, 0)]
    state = ProducerState(entries)
    assert state.first_unstable_offset == 20
    assert [found.producer_id for found in state.open_transactions] == [2, 1]
