"""Reads of the partition log at both isolation levels, by offset and by time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.log.segment import Segment
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.records.header import iter_headers
from broker_core.simulation.disk import MemoryFile, MemoryStorage
from broker_core.types import IsolationLevel
from tests.support.partition_logs import COMMITTED, NOW_MS, UNCOMMITTED, append, batch, end, open_log, produce

SMALL = {"segment.bytes": "300", "index.interval.bytes": "0"}


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data)]


def drain(log: PartitionLog, isolation: IsolationLevel, max_bytes: int, start: int = 0) -> list[int]:
    found, at = [], start
    while True:
        result = log.read(at, max_bytes, isolation)
        if not result.records:
            return found
        found += offsets(result.records)
        assert result.next_offset > at
        at = result.next_offset


def test_batch_over_the_limit_is_returned_only_on_request(log: PartitionLog) -> None:
    append(log, value=bytes(1000))
    assert log.read(0, 500, UNCOMMITTED, min_one_batch=False).records == b""
    assert log.read(0, 0, UNCOMMITTED, min_one_batch=False).records == b""
    result = log.read(0, 500, UNCOMMITTED)
    assert len(result.records) > 1000
    assert result.next_offset == 1


# Rules C.1/28, C.7/1, D.1/2, D.1/3 and D.1 more/2.
def test_open_transaction_limits_read_committed(log: PartitionLog) -> None:
    append(log, 2)
    produce(log, 1, 0, 3)
    append(log, 1)
    produce(log, 2, 0)
    assert (log.first_unstable_offset, log.last_stable_offset, log.high_watermark) == (2, 2, 7)
    assert drain(log, COMMITTED, 999) == [0]
    assert drain(log, UNCOMMITTED, 999) == [0, 2, 5, 6]
    assert log.read(4, 99, COMMITTED) == (b"", [], 7, 2, 0, 4)
    end(log, 2, commit=True)
    assert log.last_stable_offset == 2
    end(log, 1, commit=False)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 9)
    assert log.read(0, 9999, COMMITTED).aborted == [(1, 2)]
    assert log.read(0, 9999, UNCOMMITTED).aborted is None
    assert log.read(8, 9999, COMMITTED).aborted == [(1, 2)]
    assert log.read(9, 9999, COMMITTED).aborted == []


def test_bytes_below_the_last_stable_offset_are_counted() -> None:
    log = open_log(settings=SMALL)
    size = len(batch(1))
    for _ in range(6):
        append(log)
    produce(log, 1, 0)
    assert log.stable_bytes_from(0, COMMITTED, 10**6) == 6 * size
    assert log.stable_bytes_from(2, COMMITTED, 10**6) == 4 * size
    assert log.stable_bytes_from(0, UNCOMMITTED, 10**6) == 7 * size
    assert log.stable_bytes_from(0, UNCOMMITTED, 100) == 100
    assert log.stable_bytes_from(6, COMMITTED, 10**6) == 0
    assert log.stable_bytes_from(99, COMMITTED, 10**6) == 0
    log.delete_records_before(2)
    assert [log.stable_bytes_from(offset, COMMITTED, 10**6) for offset in (1, 2)] == [0, 4 * size]


# Rule D.3/1.
@pytest.mark.parametrize("settings", [{}, SMALL])
def test_offsets_are_found_by_timestamp(settings: dict[str, str]) -> None:
    log = open_log(settings=settings)
    times = [100, 200, 150, 300, 300, 250, 400]
    for at, time in enumerate(times):
        codec = Compression.GZIP if at % 2 else Compression.NONE
        append(log, timestamp_ms=time, leader_epoch=at // 2, compression=codec)
    for timestamp_ms in range(90, 410, 5):
        first = next((at for at, time in enumerate(times) if time >= timestamp_ms), None)
        answer = log.offset_for_timestamp(timestamp_ms, UNCOMMITTED)
        assert answer == (None if first is None else (first, times[first], first // 2)), timestamp_ms
    assert log.max_timestamp(UNCOMMITTED) == (6, 400, 3)


def test_timestamp_inside_a_batch_is_found(log: PartitionLog) -> None:
    append(log, 5, timestamp_ms=100)
    assert log.offset_for_timestamp(103, UNCOMMITTED) == (3, 103, 0)
    assert log.offset_for_timestamp(105, UNCOMMITTED) is None


# Rules D.3/1 and D.3/4.
def test_timestamps_at_or_above_the_last_stable_offset_are_not_returned(log: PartitionLog) -> None:
    append(log, timestamp_ms=100)
    produce(log, 1, 0, timestamp_ms=200)
    assert log.offset_for_timestamp(150, UNCOMMITTED) == (1, 200, 0)
    assert log.offset_for_timestamp(150, COMMITTED) is None
    assert log.max_timestamp(COMMITTED) is None
    assert log.offset_for_timestamp(100, COMMITTED) == (0, 100, 0)


# Rule D.3/4.
@pytest.mark.parametrize("settings", [{}, SMALL])
def test_largest_timestamp_is_that_of_a_record_that_is_left(settings: dict[str, str]) -> None:
    log = open_log(settings=settings)
    for timestamp_ms in (300, 100, 200):
        append(log, 2, timestamp_ms=timestamp_ms)
    assert log.max_timestamp(UNCOMMITTED) == (1, 301, 0)
    left = [(1, 301, 0), (5, 201, 0), (5, 201, 0), (5, 201, 0), (5, 201, 0), None]
    for start, newest in enumerate(left, 1):
        log.delete_records_before(start)
        assert log.max_timestamp(UNCOMMITTED) == newest, start


def test_largest_timestamp_of_a_batch_is_that_of_a_record_that_is_left(log: PartitionLog) -> None:
    data = build_batch([NewRecord(b"k", b"v", (), timestamp_ms) for timestamp_ms in (300, 100, 200)])
    log.append_as_leader(data, now_ms=NOW_MS, leader_epoch=0)
    assert log.max_timestamp(UNCOMMITTED) == (0, 300, 0)
    log.delete_records_before(1)
    assert log.max_timestamp(UNCOMMITTED) == (2, 200, 0)


def test_largest_timestamp_behind_the_log_start_is_found_without_reading_all_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = open_log(settings={"index.interval.bytes": "0"})
    for timestamp_ms in range(1, 101):
        append(log, timestamp_ms=timestamp_ms)
    log.delete_records_before(1)
    read, headers = [], Segment.headers

    def counted(segment: Segment, *where: int) -> Iterator[Any]:
        for found in headers(segment, *where):
            read.append(found)
            yield found

    monkeypatch.setattr(Segment, "headers", counted)
    assert log.max_timestamp(UNCOMMITTED) == (99, 100, 0)
    assert len(read) <= 2


# Rules D.3/1 and D.3/4.
def test_empty_log_has_no_timestamps(log: PartitionLog) -> None:
    assert log.max_timestamp(UNCOMMITTED) is None
    assert log.offset_for_timestamp(0, UNCOMMITTED) is None


@pytest.mark.parametrize("settings", [{}, SMALL])
def test_journal_records_are_read_one_by_one(settings: dict[str, str]) -> None:
    log = open_log(settings=settings)
    append(log, 3)
    produce(log, 1, 0, 2)
    end(log, 1, commit=True)
    append(log, 1, compression=Compression.ZSTD)
    rows = [(offset, header.is_control, record.offset) for offset, header, record in log.read_journal()]
    assert rows == [(offset, offset == 5, offset) for offset in range(7)]
    assert [offset for offset, _, _ in log.read_journal(2)] == [2, 3, 4, 5, 6]
    log.delete_records_before(4)
    assert [offset for offset, _, _ in log.read_journal(2)] == [4, 5, 6]


def test_batch_longer_than_the_scan_window_is_read() -> None:
    log = open_log(settings={"max.message.bytes": "9000000"})
    append(log)
    append(log, value=bytes(3_000_000))
    append(log)
    assert [offset for offset, _, _ in log.read_journal()] == [0, 1, 2]
    assert offsets(log.read(1, 10, UNCOMMITTED).records) == [1]


def test_damaged_index_of_a_closed_segment_is_rebuilt_on_read(storage: MemoryStorage) -> None:
    log = open_log(storage, {"segment.bytes": "1000", "index.interval.bytes": "0"})
    for _ in range(20):
        append(log)
    log.close(NOW_MS)
    index = storage.open("topic-0/00000000000000000000.index")
    data = index.read(0, index.size())
    index.truncate(0)
    index.append(data[:8] + b"\x7f" * 8 + data[16:])
    log = open_log(storage, {"segment.bytes": "1000", "index.interval.bytes": "0"})
    assert log.findings == []
    assert [offsets(log.read(offset, 1, UNCOMMITTED).records) for offset in range(20)] == [[at] for at in range(20)]


@pytest.mark.parametrize(
    "read",
    [
        lambda log: log.read(0, 9999, COMMITTED),
        lambda log: log.stable_bytes_from(0, COMMITTED, 9999),
        lambda log: log.offset_for_timestamp(0, COMMITTED),
    ],
)
def test_disk_that_cannot_be_read_is_a_storage_error(
    read: Callable[[PartitionLog], object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(MemoryStorage())
    append(log, 3)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MemoryFile, "read", fail)
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            read(log)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    message = "topic-0: the log was not read: [Errno 5] Input/output error; check the disk of folder topic-0"
    assert error.value.message == message
    assert caplog.messages == [message]
    log.apply_retention(NOW_MS)
    with pytest.raises(KafkaError):
        read(log)
    assert caplog.messages == [message, message]
