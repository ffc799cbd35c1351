"""Combinations of damage to a log's folder, and the amount of data that recovery reads.

Recovery keeps what the batches alone imply. Each log is damaged in several ways, opened, and compared with a log
rebuilt from nothing but the log files.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.partition_log import PartitionLog
from broker_core.log.recovery_table import LogCondition
from broker_core.simulation.disk import MemoryFile, MemoryStorage
from tests.support.examples import examples
from tests.support.partition_logs import (
    COMMITTED,
    FOLDER,
    NOW_MS,
    UNCOMMITTED,
    append,
    batch,
    end,
    newest_only,
    open_log,
    produce,
)

SETTINGS = {"segment.bytes": "1000", "index.interval.bytes": "100"}
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"
Damage = Callable[[MemoryStorage], None]


def names(storage: MemoryStorage, suffix: str) -> list[str]:
    return [f"{FOLDER}/{name}" for name in storage.list_folder(FOLDER) if name.endswith(suffix)]


def overwrite(storage: MemoryStorage, name: str, data: bytes) -> None:
    file = storage.open(name)
    file.truncate(0)
    file.append(data)
    file.sync()


def content(storage: MemoryStorage, name: str) -> bytes:
    file = storage.open(name)
    return file.read(0, file.size())


def written(*, closed: bool) -> MemoryStorage:
    """Write some segments with all kinds of batches in three leader epochs, and leave a transaction open."""
    storage = MemoryStorage()
    log = open_log(storage, SETTINGS)
    for number in range(9):
        produce(log, 1, number)
        produce(log, 2, 2 * number, 2, transactional=number % 2 == 0)
        append(log, leader_epoch=number // 3)
        end(log, 1, commit=number % 2 == 0)
        end(log, 2, commit=number % 3 == 0)
    produce(log, 3, 0)
    if closed:
        log.close(NOW_MS)
    else:
        log.sync()
    return storage


def nothing(storage: MemoryStorage) -> None:
    """Change nothing."""


def garbage_behind(storage: MemoryStorage) -> None:
    storage.open(names(storage, ".log")[-1]).append(b"\xff" * 70)


def half_a_batch_behind(storage: MemoryStorage) -> None:
    storage.open(names(storage, ".log")[-1]).append(batch(3)[:40])


def last_batch_cut(storage: MemoryStorage) -> None:
    overwrite(storage, names(storage, ".log")[-1], content(storage, names(storage, ".log")[-1])[:-3])


def last_segment_lost(storage: MemoryStorage) -> None:
    overwrite(storage, names(storage, ".log")[-1], b"")


def half_created_segment(storage: MemoryStorage) -> None:
    last = int(names(storage, ".log")[-1][-24:-4])
    if content(storage, names(storage, ".log")[-1]):
        storage.open(f"{FOLDER}/{last + 100:020d}.log")


def newest_snapshot_gone(storage: MemoryStorage) -> None:
    storage.delete(names(storage, ".snapshot")[-1])


def all_snapshots_gone(storage: MemoryStorage) -> None:
    for name in names(storage, ".snapshot"):
        storage.delete(name)


def newest_snapshot_damaged(storage: MemoryStorage) -> None:
    name = names(storage, ".snapshot")[-1]
    overwrite(storage, name, content(storage, name)[:-1] + b"?")


def all_but_the_first_snapshot_empty(storage: MemoryStorage) -> None:
    for name in names(storage, ".snapshot")[1:]:
        overwrite(storage, name, b"")


def snapshot_ahead(storage: MemoryStorage) -> None:
    storage.open(f"{FOLDER}/{10**6:020d}.snapshot").append(content(storage, names(storage, ".snapshot")[-1]))


class Index(NamedTuple):
    """A change of one index file; as a named tuple it shows the file in a test report."""

    suffix: str
    place: int
    change: str

    def __call__(self, storage: MemoryStorage) -> None:
        """Damage the index if the file exists."""
        found = names(storage, self.suffix)
        if found and self.change == "delete":
            storage.delete(found[self.place % len(found)])
        elif found:
            name = found[self.place % len(found)]
            overwrite(storage, name, CHANGES[self.change](content(storage, name)))


TAILS: list[Damage] = [nothing, garbage_behind, half_a_batch_behind, last_batch_cut, last_segment_lost]
SEGMENTS: list[Damage] = [nothing, half_created_segment]
SNAPSHOTS: list[Damage] = [
    nothing,
    newest_snapshot_gone,
    all_snapshots_gone,
    newest_snapshot_damaged,
    all_but_the_first_snapshot_empty,
    snapshot_ahead,
]
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-3],
    "continue": lambda data: data + b"\x7f" * 24,
    "turn": lambda data: data[8:] + data[:8],
    "zero": lambda data: bytes(len(data)),
    "end badly": lambda data: data[:-20] + b"\xff" * 20,
    "begin badly": lambda data: b"\7" + data[1:],
}
INDEXES: list[Damage] = [
    nothing,
    *[
        Index(suffix, place, change)
        for suffix in (".index", ".timeindex")
        for place in (0, 1, -1)
        for change in ("delete", "empty", "cut", "continue", "turn", "zero")
    ],
]
ABORTED: list[Damage] = [
    nothing,
    *[Index(".txnindex", place, change) for place in (0, 1, -1) for change in ("end badly", "begin badly")],
]
EPOCH_FILES: list[Damage] = [
    nothing,
    lambda storage: storage.delete(EPOCHS),
    lambda storage: overwrite(storage, EPOCHS, b"0\n1\nx y\n"),
]


class Opened(NamedTuple):
    """Everything that a log reports about itself."""

    marks: tuple[int, ...]
    producers: list[object]
    open_transactions: list[object]
    aborted: list[object]
    epochs: list[tuple[int, int]]
    reads: list[object]
    found_by_time: list[object]


def described(log: PartitionLog) -> Opened:
    every = range(log.log_start_offset, log.log_end_offset)
    return Opened(
        (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset),
        [newest_only(entry) for entry in log.producer_state.entries],
        list(log.producer_state.open_transactions),
        list(log.aborted_transactions()),
        [log.end_offset_for_epoch(epoch) for epoch in range(4)],
        [log.read(offset, 300, isolation) for offset in every for isolation in (COMMITTED, UNCOMMITTED)],
        [log.offset_for_timestamp(NOW_MS + step, UNCOMMITTED) for step in range(-1, 3)],
    )


def from_batches_alone(storage: MemoryStorage) -> Opened:
    """Open a copy of the log files without any other file."""
    bare = MemoryStorage()
    for name in names(storage, ".log"):
        bare.open(name).append(content(storage, name))
    return described(open_log(bare, SETTINGS))


@examples(60)
@given(
    st.booleans(),
    st.sampled_from(TAILS),
    st.sampled_from(SEGMENTS),
    st.sampled_from(SNAPSHOTS),
    st.sampled_from(INDEXES),
    st.sampled_from(INDEXES),
    st.sampled_from(ABORTED),
    st.sampled_from(EPOCH_FILES),
)
def test_recovered_data_depends_only_on_the_batches(
    closed: bool,
    tail: Damage,
    segment: Damage,
    snapshot: Damage,
    index: Damage,
    other_index: Damage,
    aborted: Damage,
    epochs: Damage,
) -> None:
    storage = written(closed=closed)
    for damage in (tail, segment, snapshot, index, other_index, aborted, epochs):
        damage(storage)
    expected = from_batches_alone(storage)
    log = open_log(storage, SETTINGS)
    assert described(log) == expected
    # Repairs are permanent, also after a power loss.
    storage.crash()
    again = open_log(storage, SETTINGS)
    assert {finding.condition for finding in again.findings} <= {LogCondition.HALF_CREATED_SEGMENT}
    assert described(again) == expected
    append(again, leader_epoch=3)
    again.close(NOW_MS)
    assert open_log(storage, SETTINGS).log_end_offset == expected.marks[3] + 1


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@pytest.mark.parametrize("closed", [True, False])
def test_each_pair_of_table_rows_is_recovered(closed: bool, tail: Damage, segment: Damage, snapshot: Damage) -> None:
    storage = written(closed=closed)
    for damage in (tail, segment, snapshot):
        damage(storage)
    expected = from_batches_alone(storage)
    assert described(open_log(storage, SETTINGS)) == expected


class Reading:
    """A counter of the bytes read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        whole = MemoryFile.read

        def counting(file: MemoryFile, position: int, size_bytes: int) -> bytes:
            data = whole(file, position, size_bytes)
            self.count += len(data)
            return data

        patch.setattr(MemoryFile, "read", counting)


RECORD_BYTES = 1000
LARGE = {"segment.bytes": "100000", "index.interval.bytes": "4096"}
# For each closed segment recovery reads the end of its indexes, the batches that they name, and its aborted
# transactions.
LOOK_BYTES = 20_000


def bytes_read(patch: pytest.MonkeyPatch, segments: int, tail_batches: int) -> tuple[int, int]:
    """Open a log of full segments and a tail; return the bytes read and the size of the tail."""
    storage = MemoryStorage()
    log = open_log(storage, LARGE)
    number = 0
    while len(names(storage, ".log")) <= segments:
        produce(log, 1, number, value=bytes(RECORD_BYTES))
        end(log, 1, commit=number % 10 != 0)
        number += 1
    behind = log.size_bytes
    for sequence in range(tail_batches):
        produce(log, 2, sequence, value=bytes(RECORD_BYTES), transactional=False)
    log.sync()
    tail_bytes = log.size_bytes - behind
    with patch.context() as within:
        reading = Reading(within)
        again = open_log(storage, LARGE)
    assert again.log_end_offset == log.log_end_offset
    return reading.count, tail_bytes


def test_recovery_reads_little_beyond_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    for tail_batches in (0, 20, 60):
        read, tail_bytes = bytes_read(monkeypatch, 3, tail_batches)
        assert tail_bytes <= read <= 1.2 * tail_bytes + 3 * LOOK_BYTES


def test_recovery_cost_is_independent_of_the_log_size(monkeypatch: pytest.MonkeyPatch) -> None:
    short, _ = bytes_read(monkeypatch, 2, 30)
    long, _ = bytes_read(monkeypatch, 12, 30)
    assert long - short <= 10 * LOOK_BYTES
    assert int(LARGE["segment.bytes"]) / 5 >= LOOK_BYTES
