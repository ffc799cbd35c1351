"""What the partition log keeps of valid batches; `tests/conformance/test_produce_validation.py` has refused ones."""

from collections.abc import Callable
from typing import Any

import crc32c
import pytest

from broker_core.config import TopicConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log import validation
from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_state import SENTINEL, AppendOrigin
from broker_core.ports import run_steps
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression, compress
from broker_core.records.header import HEADER_SIZE, BatchHeader, crc_matches, iter_headers
from broker_core.simulation.disk import MemoryFile, MemoryStorage
from broker_core.types import TimestampType
from tests.support.partition_logs import COMMITTED, NOW_MS, UNCOMMITTED, append, batch, end, open_log, produce


def refused(code: ErrorCode, action: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        action()
    assert caught.value.code is code, caught.value
    return caught.value


def sealed(data: bytearray) -> bytes:
    """Return the batch with the checksum of its current content."""
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def append_raw(log: PartitionLog, data: bytes, **options: Any) -> Any:
    return log.append_as_leader(data, now_ms=NOW_MS, leader_epoch=0, **options)


def test_bytes_behind_a_batch_are_refused(log: PartitionLog) -> None:
    """Produce cuts them off or refuses them before; in a log they would be read as a batch."""
    refused(ErrorCode.INVALID_RECORD, lambda: append_raw(log, batch(1) + batch(1)))


# Rule C.1/18.
def test_a_timestamp_may_be_as_old_or_as_new_as_the_limits_say() -> None:
    log = open_log(settings={"message.timestamp.before.max.ms": "5", "message.timestamp.after.max.ms": "7"})
    data = build_batch([NewRecord(b"k", b"v", (), NOW_MS + delta) for delta in (-6, -5, 7, 8)])
    error = refused(ErrorCode.INVALID_TIMESTAMP, lambda: append_raw(log, data))
    assert [index for index, _ in error.record_errors] == [0, 3]


# Rule C.1 more/10.
def test_number_of_listed_invalid_records_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    judge = validation._Limits.judge
    monkeypatch.setattr(
        validation._Limits, "judge", lambda limits, record: judged.append(record) or judge(limits, record)
    )
    log = open_log(settings={"cleanup.policy": "compact"})
    data = build_batch([NewRecord(b"k", b"v")] + [NewRecord(None, b"v")] * 500)
    error = refused(ErrorCode.INVALID_RECORD, lambda: append_raw(log, data))
    assert [index for index, _ in error.record_errors] == list(range(1, 101))
    assert len(judged) == 101
    assert "100 or more of the batch's 501 records" in error.message


def compressed_batch(codec: Compression, count: int, section: bytes) -> bytes:
    """Return a batch of `count` records with this compressed section, whatever it decompresses to."""
    header = bytearray(build_batch([NewRecord(b"k", b"v", (), NOW_MS)], compression=codec)[:HEADER_SIZE])
    data = header + compress(codec, section)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    return sealed(data)


# Rule C.1 more/9.
@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_batch_with_more_records_than_an_uncompressed_one_holds_is_refused(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(settings={"max.message.bytes": "100"})
    most = TopicConfig().max_message_bytes // 7
    with monkeypatch.context() as patch:
        patch.setattr(validation, "summarize_records", lambda *_: pytest.fail("the batch was decompressed"))
        error = refused(ErrorCode.MESSAGE_TOO_LARGE, lambda: append_raw(log, compressed_batch(codec, most + 1, b"")))
    assert f"at most {most} are accepted" in error.message
    refused(ErrorCode.INVALID_RECORD, lambda: append_raw(log, compressed_batch(codec, most, b"\1")))


# Rule C.1 more/9.
def test_compression_ratio_above_one_hundred_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_LEAST_LIMIT_BYTES", 1000)
    log = open_log(settings={"max.message.bytes": "2000"})

    def bomb(value_bytes: int) -> bytes:
        return batch(1, value=bytes(value_bytes), compression=Compression.ZSTD)

    assert append_raw(log, bomb(199_000)).base_offset == 0
    error = refused(ErrorCode.MESSAGE_TOO_LARGE, lambda: append_raw(log, bomb(200_000)))
    assert "decompress to more than the limit of 200000 bytes; send smaller batches" in error.message


# Rule C.1 more/11.
def test_unparsable_record_is_not_listed_as_invalid() -> None:
    """Kafka lists the records that a client may leave out; a record that breaks the batch is not one of them."""
    error = refused(
        ErrorCode.INVALID_RECORD,
        lambda: append_raw(open_log(), build_batch([NewRecord(b"k", b"v")] * 3, offset_deltas=[0, 2, 2])),
    )
    assert error.record_errors == ()
    assert "record 1" in error.message


# Rule B.4/4.
@pytest.mark.parametrize("lie", [NOW_MS - 5, NOW_MS + 10**9])
def test_time_index_goes_by_the_records_and_not_by_the_header(lie: int, log: PartitionLog) -> None:
    data = bytearray(batch(3))
    data[35:43] = lie.to_bytes(8, "big")
    append_raw(log, sealed(data))
    assert log.max_timestamp(UNCOMMITTED) == (2, NOW_MS + 2, 0)


def test_timestamp_beyond_64_bits_wraps_when_a_batch_is_compressed_again() -> None:
    """Java adds base and delta in 64 bits; the record of the new batch has the sum."""
    data = bytearray(build_batch([NewRecord(b"k", b"v", (), 0), NewRecord(b"k", b"v", (), 2**62)]))
    data[27:35] = (2**63 - 1).to_bytes(8, "big")
    log = open_log(settings={"compression.type": "gzip", "message.timestamp.after.max.ms": str(2**63 - 1)})
    append_raw(log, sealed(data))
    assert [record.timestamp_ms for _, _, record in log.read_journal()] == [2**63 - 1, 2**62 - 1 - 2**63]


def test_coordinator_appends_skip_client_restrictions(log: PartitionLog) -> None:
    result = append_raw(log, batch(2, base_offset=5), origin=AppendOrigin.COORDINATOR)
    assert (result.base_offset, result.last_offset) == (0, 1)


def test_offsets_and_leader_epoch_are_written_in_place(log: PartitionLog) -> None:
    append(log, 3)
    data = bytearray(batch(2))
    result = log.append_as_leader(data, now_ms=NOW_MS, leader_epoch=4)
    assert result == (3, 4, -1, 0, False)
    header = BatchHeader.parse(data)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 4)
    assert log.read(3, 999, UNCOMMITTED).records == bytes(data)
    assert log.leader_epochs.latest == 4


def test_input_buffer_is_not_modified(log: PartitionLog) -> None:
    append(log, 3)
    data = batch(2)
    log.append_as_leader(memoryview(data), now_ms=NOW_MS, leader_epoch=4)
    assert data == batch(2)


# Rule B.4/3.
def test_log_append_time() -> None:
    log = open_log(settings={"message.timestamp.type": "LogAppendTime"})
    result = log.append_as_leader(batch(2, timestamp_ms=NOW_MS + 86_400_000), now_ms=NOW_MS + 7, leader_epoch=0)
    assert result.log_append_time_ms == NOW_MS + 7
    data = log.read(0, 999, UNCOMMITTED).records
    header = BatchHeader.parse(data)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW_MS + 7
    assert crc_matches(data, 0, header)
    assert [record.timestamp_ms for _, _, record in log.read_journal()] == [NOW_MS + 7] * 2
    assert log.max_timestamp(UNCOMMITTED) == (0, NOW_MS + 7, 0)


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize("setting", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_changes_only_when_the_topic_requires_it(sent: Compression, setting: str) -> None:
    log = open_log(settings={"compression.type": setting})
    guard = log.producer_state.start_verification(7, 0, 5, False)
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5, "is_transactional": True}
    data = batch(3, value=b"x" * 50, compression=sent, **fields)
    append_raw(log, data, transaction_guard=guard)
    stored = log.read(0, 9999, UNCOMMITTED).records
    header = BatchHeader.parse(stored)
    if setting == "producer":
        assert stored[16:] == data[16:]
    else:
        assert header.compression.name == ("NONE" if setting == "uncompressed" else setting.upper())
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (7, 5, True)
    assert [record.value for _, _, record in log.read_journal()] == [b"x" * 50] * 3
    assert log.producer_state.entries[0].last_sequence == 7


# Rules C.1/22, C.2/1 and C.4/3.
def test_duplicates_get_the_offset_of_the_first_append(log: PartitionLog) -> None:
    sent = [
        produce(log, 1, sequence, 2, transactional=False, timestamp_ms=NOW_MS + sequence)
        for sequence in range(0, 12, 2)
    ]
    for at, sequence in enumerate(range(0, 12, 2)):

        def again(sequence: int = sequence) -> Any:
            return produce(log, 1, sequence, 2, transactional=False)

        if at == 0:
            refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, again)
            continue
        result = again()
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == sent[at][:2]
        assert result.log_append_time_ms == NOW_MS + sequence + 1
    assert log.log_end_offset == 12


# Rules C.4/1 and C.5/10.
def test_coordinator_append_checks_the_epoch_but_not_the_sequence(log: PartitionLog) -> None:
    fields = {"producer_id": 1, "base_sequence": 0, "is_transactional": True}
    guard = log.producer_state.start_verification(1, 3, 0, False)
    for _ in range(2):
        append_raw(log, batch(1, producer_epoch=3, **fields), origin=AppendOrigin.COORDINATOR, transaction_guard=guard)
    assert log.log_end_offset == 2
    refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        lambda: append_raw(
            log, batch(1, producer_epoch=2, **fields), origin=AppendOrigin.COORDINATOR, transaction_guard=guard
        ),
    )


TXN = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


# Rules C.1/24 and C.3 guard/1.
def test_unverified_transaction_is_refused(log: PartitionLog) -> None:
    for guard in (None, SENTINEL):
        refused(
            ErrorCode.INVALID_TXN_STATE, lambda guard=guard: append_raw(log, batch(1, **TXN), transaction_guard=guard)
        )
    guard = log.producer_state.start_verification(2, 0, 0, False)
    refused(ErrorCode.INVALID_TXN_STATE, lambda: append_raw(log, batch(1, **TXN), transaction_guard=guard))


# Rules C.3 start/2, C.3 guard/1 and C.3 guard/3.
def test_verification_guard_is_kept_until_the_first_batch(log: PartitionLog) -> None:
    guard = log.producer_state.start_verification(1, 0, 0, False)
    assert log.producer_state.start_verification(1, 0, 1, False) == guard
    append_raw(log, batch(1, **TXN), transaction_guard=guard)
    assert log.producer_state.start_verification(1, 0, 1, False) == SENTINEL
    append_raw(log, batch(1, **(TXN | {"base_sequence": 1})))
    end(log, 1, commit=True)
    assert log.producer_state.start_verification(1, 0, 2, False) not in (SENTINEL, guard)
    refused(
        ErrorCode.INVALID_TXN_STATE,
        lambda: append_raw(log, batch(1, **(TXN | {"base_sequence": 2})), transaction_guard=guard),
    )


# Rule C.3 guard/4.
def test_marker_removes_the_verification_guard(log: PartitionLog) -> None:
    """The race of KIP-890: the coordinator aborts after the verification, and the batch arrives afterwards."""
    guard = log.producer_state.start_verification(1, 0, 0, False)
    end(log, 1, commit=False)
    refused(ErrorCode.INVALID_TXN_STATE, lambda: append_raw(log, batch(1, **TXN), transaction_guard=guard))
    assert log.producer_state.open_transactions == []


# Rules C.6/6 and C.7/3.
def test_new_epoch_continues_the_open_transaction(log: PartitionLog) -> None:
    """The first offset does not change: the coming marker decides the data of both epochs."""
    produce(log, 1, 0, epoch=0)
    produce(log, 1, 0, epoch=1)
    assert log.first_unstable_offset == 0
    end(log, 1, commit=False, epoch=1)
    assert [tuple(entry) for entry in log.aborted_transactions()] == [(1, 0, 2, 3)]


# Rules C.6/3 and C.6/7.
def test_repeated_marker_is_appended_again(log: PartitionLog) -> None:
    produce(log, 1, 0, epoch=0)
    for expected in (1, 2):
        assert end(log, 1, commit=False, epoch=1, version=2).base_offset == expected
    assert len(log.aborted_transactions()) == 1


# Rules C.10/1, C.10/2 and C.5/3.
def test_producers_expire_by_record_timestamp(log: PartitionLog) -> None:
    produce(log, 1, 0, transactional=False, timestamp_ms=NOW_MS - 5000)
    produce(log, 2, 0, timestamp_ms=NOW_MS - 5000)
    assert log.expire_producers(NOW_MS - 1, 5000) == []
    assert log.expire_producers(NOW_MS, 5000) == [1]
    assert [entry.producer_id for entry in log.producer_state.entries] == [2]
    assert produce(log, 1, 4711, transactional=False).base_offset == 2


# Rule C.1/21.
@pytest.mark.parametrize(
    "settings",
    [
        {"segment.bytes": str(2 * len(batch(1)))},
        {"internal.segment.bytes": str(2 * len(batch(1)))},
        {"segment.ms": "100"},
        {"segment.index.bytes": "24", "index.interval.bytes": "0"},
    ],
    ids=["size", "internal size", "age of the records", "full index"],
)
def test_segments_roll(settings: dict[str, str], storage: MemoryStorage) -> None:
    log = open_log(storage, settings)
    for after_ms in (0, 100, 101, 50, 202):
        append_raw(log, batch(1, timestamp_ms=NOW_MS + after_ms))
    assert [int(name[:20]) for name in storage.list_folder("topic-0") if name.endswith(".log")] == [0, 2, 4]


def test_copy_of_a_log_in_use_opens_without_a_replay(storage: MemoryStorage) -> None:
    """However often it is made ready for a copy, it has the snapshots of its segments and one more."""
    log = open_log(storage, {"segment.bytes": "150"})
    for sequence in range(5):
        produce(log, 1, sequence)
        run_steps(storage, log.closing_steps(NOW_MS))
        copy = open_log(storage.copy())
        assert copy.findings == []
        assert (copy.log_end_offset, copy.producer_state.open_transactions) == (
            sequence + 1,
            log.producer_state.open_transactions,
        )
    names = storage.list_folder("topic-0")
    assert [name for name in names if name.endswith(".snapshot")] == [f"{offset:020d}.snapshot" for offset in (2, 4, 5)]


# Rule C.1/11.
def test_failed_write_changes_nothing(monkeypatch: pytest.MonkeyPatch, storage: MemoryStorage) -> None:
    log = open_log(storage)
    produce(log, 1, 0, transactional=False)
    before = log.size_bytes
    whole = MemoryFile.append

    def half(self: MemoryFile, data: bytes) -> None:
        whole(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryFile, "append", half)
    error = refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: produce(log, 1, 1, transactional=False))
    assert "No space left" in error.message
    monkeypatch.undo()
    assert (log.log_end_offset, log.size_bytes) == (1, before)
    assert produce(log, 1, 1, transactional=False).base_offset == 1
    data = log.read(0, 9999, COMMITTED).records
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 1]
    assert storage.open("topic-0/00000000000000000000.log").size() == log.size_bytes


# Rules C.3 start/3 and C.5/2.
def test_verification_keeps_the_lowest_sequence(log: PartitionLog) -> None:
    guard = log.producer_state.start_verification(1, 0, 3, False)
    assert log.producer_state.start_verification(1, 0, 0, False) == guard
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: append_raw(log, batch(1, **(TXN | {"base_sequence": 3})), transaction_guard=guard),
    )
    append_raw(log, batch(3, **TXN), transaction_guard=guard)
    append_raw(log, batch(1, **(TXN | {"base_sequence": 3})))


# Rule C.3 start/4.
def test_a_higher_epoch_replaces_the_verified_sequence(log: PartitionLog) -> None:
    guard = log.producer_state.start_verification(1, 0, 0, False)
    assert log.producer_state.start_verification(1, 1, 9, False) == guard
    append_raw(log, batch(1, **(TXN | {"producer_epoch": 1, "base_sequence": 9})), transaction_guard=guard)
