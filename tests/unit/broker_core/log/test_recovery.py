"""Every state of the files that recovery may find, and the data that it keeps according to the table."""

from collections.abc import Callable

import pytest

from broker_core.log.checkpoints import checkpoint_steps
from broker_core.log.partition_log import PartitionLog
from broker_core.log.recovery import lacks_log
from broker_core.log.recovery_table import LogCondition
from broker_core.ports import run_steps
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.control import build_end_txn_marker
from broker_core.records.header import assign_offsets
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import NO_LEADER_EPOCH
from tests.support.partition_logs import COMMITTED, FOLDER, NOW_MS, append, batch, end, newest_only, open_log, produce

SETTINGS = {"segment.bytes": "1000", "index.interval.bytes": "0"}


def path(offset: int, suffix: str) -> str:
    return f"{FOLDER}/{offset:020d}.{suffix}"


def overwrite(storage: MemoryStorage, name: str, change: Callable[[bytes], bytes]) -> None:
    file = storage.open(name)
    data = change(file.read(0, file.size()))
    file.truncate(0)
    file.append(data)


def bases(storage: MemoryStorage, suffix: str) -> list[int]:
    return [int(name[:20]) for name in storage.list_folder(FOLDER) if name.endswith("." + suffix)]


def world(storage: MemoryStorage | None = None, *, closed: bool = True) -> tuple[MemoryStorage, PartitionLog]:
    """Write three and a half segments with plain, committed and aborted data, and leave one transaction open."""
    storage = storage or MemoryStorage()
    log = open_log(storage, SETTINGS)
    sequence = dict.fromkeys((1, 2, 3), 0)
    for round_number in range(11):
        for producer_id in (1, 2):
            produce(log, producer_id, sequence[producer_id])
            sequence[producer_id] += 1
        append(log, leader_epoch=round_number // 4)
        end(log, 1, commit=round_number % 2 == 0)
        end(log, 2, commit=round_number % 3 == 0)
    produce(log, 3, 0)
    if closed:
        log.close(NOW_MS)
    else:
        log.sync()
    return storage, log


def reopened(storage: MemoryStorage) -> PartitionLog:
    return open_log(storage, SETTINGS)


def found(log: PartitionLog) -> list[LogCondition]:
    return [finding.condition for finding in log.findings]


def assert_same(log: PartitionLog, before: PartitionLog) -> None:
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (
        before.log_start_offset,
        before.last_stable_offset,
        before.high_watermark,
        before.log_end_offset,
    )
    assert [newest_only(entry) for entry in log.producer_state.entries] == [
        newest_only(entry) for entry in before.producer_state.entries
    ]
    assert log.aborted_transactions() == before.aborted_transactions()
    assert log.producer_state.open_transactions == before.producer_state.open_transactions
    for offset in range(log.log_start_offset, log.log_end_offset):
        assert log.read(offset, 300, COMMITTED) == before.read(offset, 300, COMMITTED)
    assert log.end_offset_for_epoch(1) == before.end_offset_for_epoch(1)


# Rule C.9/4.
def test_clean_close_yields_no_findings() -> None:
    storage, before = world()
    log = reopened(storage)
    assert log.findings == []
    assert_same(log, before)


def test_newly_created_directory_is_synced_with_the_first_batch(storage: MemoryStorage) -> None:
    open_log(storage, SETTINGS).close(NOW_MS)
    log = reopened(storage)
    append(log)
    log.sync()
    storage.crash()
    assert reopened(storage).log_end_offset == 1


# Rules C.9/8 and C.11/3.
def test_unclean_shutdown_is_recovered_and_then_marked_clean() -> None:
    storage, before = world(closed=False)
    storage.crash()
    log = reopened(storage)
    assert found(log) == [LogCondition.SNAPSHOT_BEHIND]
    assert_same(log, before)
    storage.crash()
    assert found(reopened(storage)) == []


# Rule C.9/7.
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:9] + b"!" + data[10:]])
def test_damaged_snapshot_is_removed(damage: Callable[[bytes], bytes]) -> None:
    storage, before = world()
    newest = bases(storage, "snapshot")[-1]
    overwrite(storage, path(newest, "snapshot"), damage)
    log = reopened(storage)
    assert found(log) == [LogCondition.SNAPSHOT_DAMAGED, LogCondition.SNAPSHOT_BEHIND]
    assert_same(log, before)


# Rule C.9/7.
def test_all_snapshots_damaged_are_rebuilt() -> None:
    storage, before = world()
    count = len(bases(storage, "snapshot"))
    for offset in bases(storage, "snapshot"):
        overwrite(storage, path(offset, "snapshot"), lambda data: data[:-3])
    log = reopened(storage)
    assert found(log) == [LogCondition.SNAPSHOT_DAMAGED] * count + [LogCondition.NO_SNAPSHOT]
    assert_same(log, before)


def test_snapshot_beyond_the_log_end_is_removed() -> None:
    storage, before = world()
    newest = bases(storage, "snapshot")[-1]
    snapshot = storage.open(path(newest, "snapshot"))
    for offset in (newest + 1, newest + 1000):
        storage.open(path(offset, "snapshot")).append(snapshot.read(0, 9999))
    log = reopened(storage)
    assert found(log) == [LogCondition.SNAPSHOT_AHEAD, LogCondition.SNAPSHOT_AHEAD, LogCondition.BATCHES_MISSING]
    assert_same(log, before)


def test_snapshot_of_lost_batches_is_removed() -> None:
    storage, _ = world()
    active = bases(storage, "log")[-1]
    overwrite(storage, path(active, "log"), lambda data: data[:10])
    log = reopened(storage)
    assert {LogCondition.SNAPSHOT_AHEAD, LogCondition.TORN_TAIL, LogCondition.BATCHES_MISSING} <= set(found(log))
    assert log.log_end_offset == active
    assert append(log).base_offset == active


def test_damage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    storage, before = world()
    end_offset = before.log_end_offset
    reopened(storage)
    assert caplog.messages == []
    for offset in bases(storage, "log"):
        storage.delete(path(offset, "log"))
    log = reopened(storage)
    assert log.log_end_offset == 0
    assert (
        f"{log.topic_partition}: recovery found damage: the log ends at offset 0, a snapshot was written at "
        f"{end_offset}: batches that were durable are missing; go on; kept: the batches that are there"
    ) in caplog.messages


@pytest.mark.parametrize(
    ("names", "lacks"),
    [
        (["5.snapshot", "leader-epoch-checkpoint"], True),
        (["5.snapshot", "0.index"], True),
        (["5.snapshot", "0.log"], False),
        (["0.snapshot"], False),
        (["0.index", "leader-epoch-checkpoint"], False),
        ([], False),
    ],
)
def test_folder_without_log_files_is_recognized_by_its_snapshots(names: list[str], lacks: bool) -> None:
    assert lacks_log(names) is lacks


def test_snapshot_inside_a_batch_is_removed(storage: MemoryStorage) -> None:
    log = open_log(storage)
    append(log, 5)
    log.close(NOW_MS)
    storage.rename(path(5, "snapshot"), path(3, "snapshot"))
    assert found(open_log(storage)) == [LogCondition.SNAPSHOT_AHEAD, LogCondition.NO_SNAPSHOT]


# Rule C.9/5.
def test_stray_snapshots_are_removed() -> None:
    storage, before = world(closed=False)
    for _ in range(3):
        storage.crash()
        before = reopened(storage)
        append(before)
        before.sync()
    storage.crash()
    log = reopened(storage)
    assert LogCondition.SNAPSHOT_STRAY in found(log)
    assert set(bases(storage, "snapshot")[:-1]) == set(bases(storage, "log")[1:])
    assert_same(log, before)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_missing_index_is_rebuilt(suffix: str, place: int) -> None:
    storage, before = world()
    segment = bases(storage, "log")[place]
    original = dict(storage.files())
    storage.delete(path(segment, suffix))
    log = reopened(storage)
    assert found(log) == [LogCondition.INDEX_MISSING]
    assert_same(log, before)
    assert dict(storage.files())[path(segment, suffix)] == original[path(segment, suffix)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data + b"\x7f" * 24,
        lambda data: data[:-1] + b"\xff",
        lambda data: b"",
        lambda data: bytes(len(data)),
    ],
)
def test_damaged_index_is_rebuilt(suffix: str, place: int, damage: Callable[[bytes], bytes]) -> None:
    storage, before = world()
    segment = bases(storage, "log")[place]
    overwrite(storage, path(segment, suffix), damage)
    log = reopened(storage)
    assert set(found(log)) <= {LogCondition.INDEX_DAMAGED}
    assert_same(log, before)
    for timestamp_ms in (0, NOW_MS, NOW_MS + 1):
        assert log.offset_for_timestamp(timestamp_ms, COMMITTED) == before.offset_for_timestamp(timestamp_ms, COMMITTED)


# Rule C.8/5.
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("damage", [lambda data: b"\0\7" + data[2:], lambda data: data + data])
def test_damaged_transaction_index_is_rebuilt(place: int, damage: Callable[[bytes], bytes]) -> None:
    storage, before = world()
    segment = bases(storage, "txnindex")[place]
    original = dict(storage.files())
    overwrite(storage, path(segment, "txnindex"), damage)
    log = reopened(storage)
    assert found(log) == [LogCondition.TRANSACTION_INDEX_DAMAGED]
    assert_same(log, before)
    assert dict(storage.files())[path(segment, "txnindex")] == original[path(segment, "txnindex")]


# Rule C.8/5.
def test_transaction_index_is_rebuilt_from_an_older_snapshot_if_the_nearest_is_damaged() -> None:
    storage, before = world()
    segment = bases(storage, "txnindex")[3]
    overwrite(storage, path(segment, "txnindex"), lambda data: b"\7" + data[1:])
    overwrite(storage, path(segment, "snapshot"), lambda data: data[:-1])
    assert_same(reopened(storage), before)


TAILS = [b"\0", bytes(11), bytes(61), bytes(500), batch(1, base_offset=0), b"\xff" * 70, batch(3)[:40]]


# Rule C.11/3.
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("closed", [True, False])
def test_torn_tail_is_truncated(tail: bytes, closed: bool) -> None:
    storage, before = world(closed=closed)
    active = bases(storage, "log")[-1]
    size = storage.open(path(active, "log")).size()
    storage.open(path(active, "log")).append(tail)
    log = reopened(storage)
    assert LogCondition.TORN_TAIL in found(log)
    assert storage.open(path(active, "log")).size() == size
    assert_same(log, before)
    assert append(log).base_offset == before.log_end_offset


# Rule C.11/3.
def test_flipped_bit_after_the_snapshot_ends_the_log() -> None:
    storage, _ = world(closed=False)
    active = bases(storage, "log")[-1]
    overwrite(storage, path(active, "log"), lambda data: data[:-1] + b"?")
    log = reopened(storage)
    assert LogCondition.TORN_TAIL in found(log)
    assert log.producer_state.open_transactions == []


def test_segments_after_damage_are_removed() -> None:
    storage, _ = world()
    for offset in bases(storage, "snapshot"):
        storage.delete(path(offset, "snapshot"))
    second, *later = bases(storage, "log")[1:]
    overwrite(storage, path(second, "log"), lambda data: data[:-5])
    log = reopened(storage)
    assert found(log).count(LogCondition.SEGMENT_AFTER_DAMAGE) == len(later)
    assert bases(storage, "log") == bases(storage, "index") == [0, second]
    assert log.log_end_offset == append(log).base_offset
    again = reopened(storage)
    assert_same(again, log)


def test_overlapping_segment_is_removed() -> None:
    storage, before = world()
    for offset in bases(storage, "snapshot"):
        storage.delete(path(offset, "snapshot"))
    end_offset = before.log_end_offset
    storage.open(path(end_offset - 1, "log")).append(batch(1))
    log = reopened(storage)
    assert LogCondition.SEGMENT_AFTER_DAMAGE in found(log)
    assert_same(log, before)


def test_partially_created_segment_is_removed() -> None:
    storage, before = world()
    storage.open(path(before.log_end_offset, "log"))
    log = reopened(storage)
    assert found(log) == [LogCondition.HALF_CREATED_SEGMENT]
    assert_same(log, before)
    assert append(log).base_offset == before.log_end_offset
    assert bases(storage, "log")[-1] == before.log_end_offset


def test_temporary_and_orphaned_files_are_removed() -> None:
    storage, before = world()
    for name in ("x.tmp", "00000000000000000001.log.deleted", "00000000000000000000.log.cleaned"):
        storage.open(f"{FOLDER}/{name}")
    for suffix in ("index", "timeindex", "txnindex"):
        storage.open(path(1, suffix)).append(bytes(40))
    storage.open(f"{FOLDER}/partition.metadata")
    log = reopened(storage)
    assert sorted(item.value for item in found(log)) == sorted(
        [LogCondition.LEFTOVER_FILE.value] * 3 + [LogCondition.ORPHAN_INDEX.value] * 3
    )
    assert storage.exists(f"{FOLDER}/partition.metadata")
    assert not storage.exists(path(1, "index"))
    assert_same(log, before)


def test_segments_below_the_log_start_offset_are_removed() -> None:
    storage, before = world()
    third = bases(storage, "log")[2]
    run_steps(storage, checkpoint_steps(storage, FOLDER, "log-start-offset-checkpoint", [f"topic 0 {third + 1}"]))
    log = reopened(storage)
    assert found(log) == [LogCondition.SEGMENT_BELOW_LOG_START] * 2 + [LogCondition.SNAPSHOT_STRAY]
    assert log.log_start_offset == third + 1
    assert log.log_end_offset == before.log_end_offset
    assert found(reopened(storage)) == []


def test_log_start_offset_beyond_the_log_end_is_corrected() -> None:
    storage, before = world()
    start = before.log_end_offset + 5
    run_steps(storage, checkpoint_steps(storage, FOLDER, "log-start-offset-checkpoint", [f"topic 0 {start}"]))
    log = reopened(storage)
    assert LogCondition.LOG_START_AHEAD in found(log)
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (start, start, start)
    assert log.producer_state.entries == []
    assert append(log).base_offset == start
    assert reopened(storage).log_end_offset == start + 1


def test_damaged_log_start_offset_is_reported() -> None:
    storage, before = world()
    storage.open(f"{FOLDER}/log-start-offset-checkpoint").append(b"rubbish")
    log = reopened(storage)
    assert found(log) == [LogCondition.LOG_START_DAMAGED]
    assert_same(log, before)


def test_missing_and_damaged_leader_epochs_are_rebuilt() -> None:
    name = f"{FOLDER}/leader-epoch-checkpoint"
    storage, before = world()
    storage.delete(name)
    log = reopened(storage)
    assert found(log) == [LogCondition.EPOCHS_MISSING]
    assert_same(log, before)
    overwrite(storage, name, lambda data: b"0\n5\n1 1\n")
    log = reopened(storage)
    assert found(log) == [LogCondition.EPOCHS_DAMAGED]
    assert_same(log, before)


def test_leader_epochs_beyond_the_log_end_are_removed() -> None:
    storage, before = world()
    name = f"{FOLDER}/leader-epoch-checkpoint"
    overwrite(storage, name, lambda data: data.replace(b"\n3\n", b"\n4\n", 1) + b"9 9999\n")
    log = reopened(storage)
    assert found(log) == [LogCondition.EPOCHS_AHEAD]
    assert log.leader_epochs.latest == 2
    assert_same(log, before)


def test_undecodable_marker_is_reported(storage: MemoryStorage) -> None:
    log = open_log(storage)
    append(log)
    log.sync()
    storage.open(path(0, "log")).append(
        build_batch(
            [NewRecord(b"\0\0\0\0", b"", (), NOW_MS)],
            base_offset=1,
            producer_id=1,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )
    marker = build_end_txn_marker(
        commit=True, producer_id=2, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    ).data
    assign_offsets(marker, 0, 2, NO_LEADER_EPOCH)
    storage.open(path(0, "log")).append(marker)
    log = open_log(storage)
    assert found(log) == [LogCondition.MARKER_UNREADABLE, LogCondition.NO_SNAPSHOT]
    assert log.log_end_offset == 3
    assert [entry.producer_id for entry in log.producer_state.entries] == [2]


# Rule C.9/9.
def test_expired_producers_are_not_loaded(storage: MemoryStorage) -> None:
    log = open_log(storage)
    produce(log, 1, 0, transactional=False)
    produce(log, 2, 0)
    log.close(NOW_MS)
    log = open_log(storage, now_ms=NOW_MS + 1000, producer_expiration_ms=1000)
    assert [entry.producer_id for entry in log.producer_state.entries] == [2]


# Rule C.11/5.
def test_open_transaction_survives_recovery_and_can_be_ended() -> None:
    storage, _ = world()
    log = reopened(storage)
    start = log.producer_state.open_transactions[0].first_offset
    assert log.last_stable_offset == start
    end(log, 3, commit=False)
    assert log.last_stable_offset == log.log_end_offset
    assert log.aborted_transactions()[-1].first_offset == start


def test_duplicates_are_recognized_after_a_crash(storage: MemoryStorage) -> None:
    log = open_log(storage)
    sent = [produce(log, 1, sequence, transactional=False) for sequence in range(3)]
    log.sync()
    storage.crash()
    log = open_log(storage)
    for sequence in range(3):
        assert produce(log, 1, sequence, transactional=False).base_offset == sent[sequence].base_offset


def test_log_start_offset_of_kafka_checkpoint_is_read() -> None:
    storage, log = world()
    topic, partition = log.topic_partition
    rows = [f"another 0 {log.log_end_offset}", f"{topic} {partition} 4"]
    storage.open("log-start-offset-checkpoint").append("\n".join(["0", "2", *rows, ""]).encode())
    assert reopened(storage).log_start_offset == 4


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: bytes(len(data))])
def test_empty_indexes_of_nonempty_segments_are_rebuilt(damage: Callable[[bytes], bytes]) -> None:
    """Kafka preallocates indexes with zeros, and a power loss leaves those zeros."""
    storage, before = world()
    original = dict(storage.files())
    for suffix in ("index", "timeindex"):
        overwrite(storage, path(0, suffix), damage)
    log = reopened(storage)
    assert found(log) == [LogCondition.INDEX_DAMAGED]
    assert {name: dict(storage.files())[name] for name in original if "index" in name} == {
        name: data for name, data in original.items() if "index" in name
    }
    assert_same(log, before)


@pytest.mark.parametrize("tail", [b"\xff" * 70, bytes(70)])
def test_damaged_transaction_index_before_a_torn_tail(tail: bytes) -> None:
    """Recovery rebuilds the index before it reads the tail, so damage in the tail must not stop the rebuild."""
    storage, before = world()
    overwrite(storage, path(bases(storage, "txnindex")[-1], "txnindex"), lambda data: b"\7" + data[1:])
    storage.open(path(bases(storage, "log")[-1], "log")).append(tail)
    log = reopened(storage)
    assert set(found(log)) == {LogCondition.TRANSACTION_INDEX_DAMAGED, LogCondition.TORN_TAIL}
    assert_same(log, before)
