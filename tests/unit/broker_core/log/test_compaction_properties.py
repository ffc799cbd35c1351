"""Random logs compacted repeatedly, with crashes, and compared with a copy that was never compacted."""

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_entry import ProducerStateEntry
from tests.support.broker_core.compaction_world import (
    COMPACTED,
    RETENTION_MS,
    FailingStorage,
    PowerLoss,
    batches,
    consume,
    roll,
    view,
    write,
)
from tests.support.examples import examples
from tests.support.partition_logs import FOLDER, NOW_MS, end, open_log

SETTINGS = {**COMPACTED, "segment.bytes": "600"}
FIRST_TRANSACTIONAL_ID = 10


class Write(NamedTuple):
    """The append of a batch: plain (0), by an idempotent producer (1, 2) or in a transaction (10, 11)."""

    producer_id: int
    pairs: list[tuple[bytes, bytes | None]]


class End(NamedTuple):
    """The end of a transaction; `bump` increments the epoch as transactions V2 do."""

    producer_id: int
    commit: bool
    bump: bool


class Roll(NamedTuple):
    """The start of a new segment."""


class Compact(NamedTuple):
    """A compaction after some time; `budget` is the number of changes before a power loss, if there is one."""

    wait_ms: int
    budget: int | None
    names_survive: bool


class Reopen(NamedTuple):
    """A reopening of the log after a clean close or a power loss, with or without its snapshots."""

    clean: bool
    with_snapshots: bool


KEYS = st.sampled_from([b"a", b"b", b"c", b"\x00\x00\x00\x01"])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=4)
TRANSACTIONAL = st.sampled_from([10, 11])
WRITES = st.builds(Write, st.sampled_from([0, 1, 2, 10, 10, 11]), PAIRS)
ENDS = st.builds(End, TRANSACTIONAL, st.booleans(), st.booleans())
COMPACTIONS = st.builds(Compact, st.sampled_from([0, 600, 1500]), st.none() | st.integers(0, 60), st.booleans())
OPERATIONS = st.lists(
    WRITES | WRITES | ENDS | ENDS | st.just(Roll()) | COMPACTIONS | st.builds(Reopen, st.booleans(), st.booleans()),
    max_size=40,
)


def essence(entry: ProducerStateEntry) -> tuple[Any, ...]:
    """Return the state that survives a replay without snapshots: all but times and the coordinator epoch."""
    newest = entry.batches[-1]._replace(timestamp_ms=0) if entry.batches else None
    return entry.producer_id, entry.producer_epoch, entry.current_txn_first_offset, newest


class World:
    """Two logs with the same operations, of which only one is compacted."""

    def __init__(self) -> None:
        self.storage = FailingStorage()
        self.log = open_log(self.storage, SETTINGS)
        self.twin = open_log(None, {**SETTINGS, "cleanup.policy": "delete"})
        self.now_ms = NOW_MS
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    def apply(self, operation: Any) -> None:
        if isinstance(operation, Write):
            self._write(operation)
        elif isinstance(operation, End):
            self._end(operation)
        elif isinstance(operation, Roll):
            if self.log.segments.active.size_bytes:
                roll(self.log)
        elif isinstance(operation, Compact):
            self._compact(operation)
        else:
            self._reopen(operation)
        self.check()

    def _write(self, operation: Write) -> None:
        producer_id = operation.producer_id
        fields: dict[str, Any] = {}
        if producer_id:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(operation.pairs)
            fields = {
                "producer_id": producer_id,
                "epoch": self.epochs.get(producer_id, 0),
                "sequence": sequence,
                "transactional": producer_id >= FIRST_TRANSACTIONAL_ID,
            }
        for log in (self.log, self.twin):
            write(log, operation.pairs, **fields)
        self.log.sync()

    def _end(self, operation: End) -> None:
        producer_id = operation.producer_id
        epoch = self.epochs.get(producer_id, 0)
        if operation.bump:
            epoch = self.epochs[producer_id] = epoch + 1
            self.sequences[producer_id] = 0
        for log in (self.log, self.twin):
            end(log, producer_id, commit=operation.commit, epoch=epoch)
        self.log.sync()

    def _compact(self, operation: Compact) -> None:
        self.now_ms += operation.wait_ms
        self.storage.budget = operation.budget
        try:
            self.log.compact(self.now_ms)
        except PowerLoss:
            self.storage.budget = None
            self.storage.crash(names_survive=operation.names_survive)
            self.log = open_log(self.storage, SETTINGS)
        self.storage.budget = None

    def _reopen(self, operation: Reopen) -> None:
        if operation.clean:
            self.log.close(NOW_MS)
        else:
            self.storage.crash()
        if not operation.with_snapshots:
            for name in self.storage.list_folder(FOLDER):
                if name.endswith(".snapshot"):
                    self.storage.delete(f"{FOLDER}/{name}")
        self.log = open_log(self.storage, SETTINGS)

    def check(self) -> None:
        log, twin = self.log, self.twin
        assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (
            twin.log_start_offset,
            twin.last_stable_offset,
            twin.high_watermark,
            twin.log_end_offset,
        )
        assert log.first_unstable_offset == twin.first_unstable_offset
        assert [essence(entry) for entry in log.producer_state.entries] == [
            essence(entry) for entry in twin.producer_state.entries
        ]
        shown, all_shown = consume(log), {record.offset: record for record in consume(twin)}
        assert view(shown) == view(all_shown.values())
        assert all(record == all_shown[record.offset] for record in shown)
        assert consume(log, max_bytes=100_000) == shown
        for start in range(log.log_start_offset, log.log_end_offset):
            assert consume(log, start) == [record for record in shown if record.offset >= start]
        self._check_index(log, twin)

    def _check_index(self, log: PartitionLog, twin: PartitionLog) -> None:
        markers = {header.base_offset for header, _ in batches(log) if header.is_control}
        aborted = {(entry.producer_id, entry.last_offset) for entry in twin.aborted_transactions()}
        for entry in log.aborted_transactions():
            assert (entry.producer_id, entry.last_offset) in aborted
            assert entry.last_offset in markers


@examples(80)
@given(OPERATIONS)
def test_compaction_preserves_reader_and_producer_guarantees(operations: list[Any]) -> None:
    world = World()
    for operation in operations:
        world.apply(operation)
    # At the end all transactions are decided, all segments are old enough, and the log is clean.
    for producer_id in (10, 11):
        world.apply(End(producer_id, True, False))
    for _ in range(3):
        world.apply(Roll())
        world.apply(Compact(2 * RETENTION_MS, None, False))
        world.apply(Write(0, [(b"other", b"v")]))
    world.apply(Reopen(False, False))
    everything = [record for _, records in batches(world.log) for record in records if record.key != b"other"]
    assert all(record.value is not None for record in everything)
