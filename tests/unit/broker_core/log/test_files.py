"""The log's files compared byte by byte with Kafka's formats, and damaged files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import DamageError
from broker_core.log.checkpoints import checkpoint_steps, read_checkpoint
from broker_core.log.indexes import (
    AbortedEntry,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    collect_aborted,
    unpack_entries,
)
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.producer_entry import BatchMetadata, ProducerStateEntry
from broker_core.log.snapshots import SnapshotFiles, decode_snapshot, encode_snapshot
from broker_core.ports import run_steps
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import AbortedTransaction
from tests.support.partition_logs import newest_only

# rules C.9 and C.8
SNAPSHOT = bytes.fromhex(
    "0001c00efe5f000000010000000000000fa0000500000009000000000000006d000000090000018bcfe56800000000030000000000000064"
)
ENTRY = ProducerStateEntry(4000, 5, 3, 1_700_000_000_000, 100, (BatchMetadata(9, 109, 9, 1_700_000_000_000),))
ABORTED = bytes.fromhex("00000000000000000fa0000000000000006400000000000000780000000000000079")


# Rule C.9/1.
def test_snapshot_bytes_match_kafka() -> None:
    assert encode_snapshot([ENTRY]) == SNAPSHOT
    assert decode_snapshot(SNAPSHOT) == [ENTRY]


# Rule C.9/3.
def test_snapshot_of_a_producer_without_data() -> None:
    empty = bytes.fromhex("ffffffffffffffffffffffff00000000")
    data = encode_snapshot([ProducerStateEntry(4000, 5, 3, 1_700_000_000_000)])
    assert data[20:36] == empty
    assert decode_snapshot(data) == [ProducerStateEntry(4000, 5, 3, 1_700_000_000_000)]


entries = st.builds(
    ProducerStateEntry,
    st.integers(0, 2**63 - 1),
    st.integers(0, 32767),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**62),
    st.none() | st.integers(0, 2**62),
    st.lists(
        st.builds(
            BatchMetadata,
            st.integers(-1, 2**31 - 1),
            st.integers(0, 2**62),
            st.integers(0, 2**31 - 1),
            st.integers(-1, 2**62),
        ),
        max_size=5,
    ).map(tuple),
)


# Rule C.9/2.
@given(st.lists(entries, max_size=4))
def test_snapshot_keeps_the_newest_batch(producers: list[ProducerStateEntry]) -> None:
    assert decode_snapshot(encode_snapshot(producers)) == [newest_only(entry) for entry in producers]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        SNAPSHOT[:9],
        SNAPSHOT[:-1],
        SNAPSHOT + b"\0",
        b"\0\2" + SNAPSHOT[2:],
        SNAPSHOT[:20] + b"\xff" + SNAPSHOT[21:],
        SNAPSHOT[:10],
    ],
)
def test_damaged_snapshot_is_refused(damage: bytes) -> None:
    with pytest.raises(DamageError):
        decode_snapshot(damage)


def test_snapshot_files_are_found_by_name(storage: MemoryStorage) -> None:
    files = SnapshotFiles(storage, "t-0")
    for offset, entries in ((0, [ENTRY]), (7, [ENTRY]), (12, [ENTRY]), (12, []), (9, [])):
        for syncs in files.writing_steps(offset, entries):
            storage.sync_all(syncs)
    storage.open("t-0/nonsense.snapshot")
    again = SnapshotFiles(storage, "t-0")
    again.find()
    assert again.offsets == [0, 7, 12]
    assert storage.exists("t-0/00000000000000000012.snapshot")
    assert again.read(12) == [ENTRY]
    again.delete(7)
    again.delete(99)
    assert again.offsets == [0, 12]
    again.delete_all()
    assert again.offsets == []


# Rule C.8/1.
def test_aborted_entry_bytes_match_kafka() -> None:
    assert AbortedEntry(4000, 100, 120, 121).pack() == ABORTED
    assert unpack_entries(ABORTED + ABORTED[:5]) == [AbortedEntry(4000, 100, 120, 121)]
    with pytest.raises(DamageError, match="version 1"):
        unpack_entries(b"\0\1" + ABORTED[2:])


def transaction_index(storage: MemoryStorage, *aborted: tuple[int, int, int, int]) -> TransactionIndex:
    index = TransactionIndex(storage, "t.txnindex", 0)
    for entry in aborted:
        index.append(AbortedEntry(*entry))
    return index


# Rule C.8/2.
def test_transaction_index_file_is_created_with_its_first_entry(storage: MemoryStorage) -> None:
    index = transaction_index(storage)
    storage.sync_all(index.written())
    assert not storage.exists("t.txnindex")
    index.append(AbortedEntry(4000, 100, 120, 121))
    storage.sync_all(index.written())
    assert dict(storage.files()) == {"t.txnindex": ABORTED}


# Rule C.8/4.
def test_transaction_index_is_truncated_by_marker_offset(storage: MemoryStorage) -> None:
    index = transaction_index(storage, (1, 0, 10, 11), (2, 5, 20, 21), (3, 25, 30, 31))
    index.flush()
    index.append(AbortedEntry(4, 33, 40, 41))
    index.truncate_to(30)
    assert [entry.last_offset for entry in index.entries] == [10, 20]
    index.truncate_to(21)
    again = transaction_index(storage)
    again.load()
    assert again.entries == index.entries


# Rule C.8/3.
def test_marker_offsets_must_increase() -> None:
    index = transaction_index(MemoryStorage(), (1, 0, 10, 11))
    with pytest.raises(AssertionError):
        index.append(AbortedEntry(2, 0, 10, 11))


# Rule C.8/3.
def test_partial_entry_is_truncated(storage: MemoryStorage) -> None:
    storage.open("t.txnindex").append(ABORTED + ABORTED[:33])
    index = transaction_index(storage)
    index.load()
    assert storage.open("t.txnindex").size() == 34
    assert len(index.entries) == 1


# Rule C.8/5.
def test_marker_before_the_segment_is_damage(storage: MemoryStorage) -> None:
    storage.open("t.txnindex").append(ABORTED)
    with pytest.raises(DamageError, match="120 follows 120"):
        TransactionIndex(storage, "t.txnindex", 121).load()


# Rule C.8/6.
def test_collecting_stops_where_all_later_transactions_began_later(storage: MemoryStorage) -> None:
    first = transaction_index(storage, (1, 0, 10, 5), (2, 5, 20, 21))
    second = transaction_index(storage, (3, 22, 30, 31))
    assert collect_aborted([first, second], 0, 5) == [AbortedTransaction(1, 0)]
    assert collect_aborted([first, second], 0, 6) == [AbortedTransaction(1, 0), AbortedTransaction(2, 5)]
    assert collect_aborted([first, second], 11, 23) == [AbortedTransaction(2, 5), AbortedTransaction(3, 22)]
    assert collect_aborted([first, second], 21, 22) == []


# Rules C.8/8 and I.4/3.
def test_collected_transactions_are_ordered_by_first_offset() -> None:
    index = transaction_index(MemoryStorage(), (1, 8, 10, 2), (2, 2, 20, 21))
    assert [found.first_offset for found in collect_aborted([index], 0, 99)] == [2, 8]


def test_offset_index_bytes_match_kafka(storage: MemoryStorage) -> None:
    index = OffsetIndex(storage, "i", 1000)
    index.append(1005, 4200)
    index.append(1011, 8400)
    assert not storage.exists("i")
    index.flush()
    assert dict(storage.files()) == {"i": bytes.fromhex("00000005 00001068 0000000b 000020d0")}
    assert [index.lookup(offset) for offset in (1000, 1004, 1005, 1010, 1011, 9999)] == [0, 0, 4200, 4200, 8400, 8400]
    assert list(index.positions_down_from(8399)) == [4200, 0]


def test_time_index_bytes_match_kafka(storage: MemoryStorage) -> None:
    index = TimeIndex(storage, "i", 1000)
    index.append(-1, 1001)
    index.append(50, 1005)
    index.append(50, 1008)
    index.append(49, 1009)
    index.append(51, 1010)
    index.flush()
    assert dict(storage.files()) == {"i": bytes.fromhex("0000000000000032 00000005 0000000000000033 0000000a")}
    assert [index.lookup(time) for time in (49, 50, 51, 99)] == [1000, 1005, 1010, 1010]
    assert index.peek_last() == (51, 1010)


def test_index_is_truncated_in_memory_and_on_disk(storage: MemoryStorage) -> None:
    index = OffsetIndex(storage, "i", 0)
    for i in range(1, 6):
        index.append(i * 10, i * 100)
    index.flush()
    index.append(60, 600)
    index.truncate_to(30)
    index.append(31, 310)
    index.flush()
    again = OffsetIndex(storage, "i", 0)
    assert [again.lookup(offset) for offset in (10, 20, 31)] == [100, 200, 310]
    assert (len(again), again.peek_last()) == (3, (31, 310))


def test_preallocated_zeros_are_not_entries(storage: MemoryStorage) -> None:
    storage.open("i").append(bytes.fromhex("00000005 00001000") + bytes(80))
    index = OffsetIndex(storage, "i", 0)
    assert index.peek_last() == (5, 4096)
    assert storage.open("i").size() == 8


def test_single_all_zero_entry_is_valid(storage: MemoryStorage) -> None:
    index = TimeIndex(storage, "i", 0)
    index.append(0, 0)
    index.flush()
    assert TimeIndex(storage, "i", 0).peek_last() == (0, 0)


@pytest.mark.parametrize(
    "data", ["0000000500001000 0000000400002000", "0000000500002000 0000000600001000", "ffffffff00001000"]
)
def test_invalid_index_entries_are_damage(data: str, storage: MemoryStorage) -> None:
    storage.open("i").append(bytes.fromhex(data))
    with pytest.raises(DamageError):
        OffsetIndex(storage, "i", 0).load()


def test_checkpoint_text_matches_kafka(storage: MemoryStorage) -> None:
    run_steps(storage, checkpoint_steps(storage, "t-0", "c", ["0 0", "3 17"]))
    assert dict(storage.files()) == {"t-0/c": b"0\n2\n0 0\n3 17\n"}
    assert read_checkpoint(storage, "t-0", "c") == [["0", "0"], ["3", "17"]]
    assert read_checkpoint(storage, "t-0", "d") is None
    storage.sync_folder("t-0")
    storage.sync_folder("")
    storage.crash()
    assert read_checkpoint(storage, "t-0", "c") == [["0", "0"], ["3", "17"]]


@pytest.mark.parametrize("text", [b"", b"0\n", b"1\n0\n", b"0\n2\n1 1\n", b"0\nx\n", b"\xff\xfe"])
def test_damaged_checkpoint_is_refused(text: bytes, storage: MemoryStorage) -> None:
    storage.open("t-0/c").append(text)
    with pytest.raises(DamageError):
        read_checkpoint(storage, "t-0", "c")


def epochs(*starts: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs(MemoryStorage(), "t-0")
    for leader_epoch, offset in starts:
        made.assign(leader_epoch, offset)
    return made


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 30)), (5, (5, 99)), (6, (-1, -1))],
)
def test_end_offset_for_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert epochs((1, 5), (2, 10), (4, 20), (5, 30)).end_offset_for(asked, 99) == answer


def test_empty_log_has_no_leader_epoch() -> None:
    assert epochs().latest == -1
    assert epochs().end_offset_for(0, 0) == (-1, -1)


def test_leader_epochs_increase_and_one_without_records_is_removed() -> None:
    made = epochs((1, 0), (1, 5), (0, 6), (3, 7), (4, 7))
    assert made.starts == [(1, 0), (4, 7)]


def test_leader_epochs_are_truncated_at_both_ends() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    made.truncate_end(20)
    assert made.starts == [(1, 0), (2, 10)]
    made.truncate_start(12)
    assert made.starts == [(2, 12)]
    made.truncate_start(12)
    assert made.starts == [(2, 12)]


@pytest.mark.parametrize("rows", [["x 1"], ["1"], ["2 0", "1 5"], ["1 5", "2 0"]])
def test_invalid_leader_epochs_are_refused(rows: list[str], storage: MemoryStorage) -> None:
    run_steps(storage, checkpoint_steps(storage, "t-0", "leader-epoch-checkpoint", rows))
    with pytest.raises(DamageError):
        LeaderEpochs(storage, "t-0").load()
