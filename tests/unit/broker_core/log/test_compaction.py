"""Keys and tombstones that compaction keeps, and the conditions for its runs (rules C.12)."""

import pytest

from broker_core.errors import DamageError
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, LENGTH_OVERHEAD, write_crc
from broker_core.records.varint import varint_bytes
from broker_core.types import TimestampType
from tests.support.broker_core.compaction_world import (
    LATER_MS,
    batches,
    consume,
    data_offsets,
    dirty,
    empty_offsets,
    is_due,
    recovery_findings,
    reopened,
    roll,
    transact,
    view,
    world,
    write,
)
from tests.support.partition_logs import COMMITTED, FOLDER, NOW_MS, append, end

# Records as a client may write them: a varint of 32 bits may have more bits, which Kafka drops.
_WITH_MORE_BITS = {
    "a key's length": b"\0\0\0\x82\x80\x80\x80\x70k\2v\0",
    "an offset": b"\0\0\x80\x80\x80\x80\x70\2k\2v\0",
    "a value's length": b"\0\0\0\2k\x82\x80\x80\x80\x70v\0",
}


def sealed_batch(section: bytes) -> bytes:
    """Return a batch of one record with these bytes as its records and the right length and checksum."""
    sealed = bytearray(build_batch([NewRecord(b"k", b"v", (), NOW_MS)])[:HEADER_SIZE] + section)
    sealed[8:12] = (len(sealed) - LENGTH_OVERHEAD).to_bytes(4, "big")
    write_crc(sealed, 0, len(sealed))
    return bytes(sealed)


@pytest.mark.parametrize("record", _WITH_MORE_BITS.values(), ids=_WITH_MORE_BITS)
def test_records_are_compacted_as_they_were_accepted(record: bytes) -> None:
    _, log = world()
    sealed = sealed_batch(varint_bytes(len(record)) + record)
    # Two of them with the same key, in one segment, and another after them.
    for _ in range(2):
        log.append_as_leader(sealed, now_ms=NOW_MS, leader_epoch=0)
    write(log, [(b"z", b"1")])
    roll(log)
    assert log.compact(NOW_MS) is not None
    assert data_offsets(log) == [1, 2]


@pytest.mark.parametrize("section", [b"\1\0\0\0\2k\2v\0", b"\x7f", b"", b"\x10\0\0\0\2k\2v\0\0"])
def test_records_that_cannot_be_read_are_damage(section: bytes) -> None:
    """No client can write them; if they are there all the same, the broker goes on without compacting the partition."""
    _, log = world()
    write(log, [(b"a", b"1")])
    sealed = sealed_batch(section)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker_core.log.validation._check_records", lambda *_: NOW_MS)
        log.append_as_leader(sealed, now_ms=NOW_MS, leader_epoch=0)
    write(log, [(b"z", b"1")])
    roll(log)
    with pytest.raises(DamageError, match="the records of the batch at offset 1 cannot be read"):
        log.compact(NOW_MS)
    assert append(log).base_offset == 3


# Keys


# Rule C.12/3.
def test_newest_record_of_each_key_keeps_its_offset() -> None:
    storage, log = world()
    write(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    write(log, [(b"b", b"2"), (b"c", b"1")])
    write(log, [(b"c", b"2")])
    before = batches(log)
    roll(log)
    result = log.compact(NOW_MS)
    assert result is not None
    assert (result.first_dirty_offset, result.end_offset) == (0, 6)
    assert result.bytes_after < result.bytes_before
    assert data_offsets(log) == [2, 3, 5]
    for header, records in batches(log):
        original, all_records = next(pair for pair in before if pair[0].base_offset == header.base_offset)
        assert header._replace(crc=0, batch_length=0, record_count=0, max_timestamp=0) == original._replace(
            crc=0, batch_length=0, record_count=0, max_timestamp=0
        )
        assert all(record in all_records for record in records)
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert log.log_end_offset == 6
    assert batches(reopened(storage)) == batches(log)


# Rule C.12/1.
def test_the_active_segment_is_never_cleaned() -> None:
    _, log = world()
    write(log, [(b"a", b"1")])
    write(log, [(b"a", b"2")])
    assert not is_due(log, NOW_MS)
    assert log.compact(NOW_MS) is None
    assert data_offsets(log) == [0, 1]


def test_topic_without_compaction_is_not_cleaned() -> None:
    _, log = world({"cleanup.policy": "delete"})
    write(log, [(b"a", b"1"), (b"a", b"2")])
    roll(log)
    assert not is_due(log, NOW_MS)
    assert log.compact(NOW_MS) is None


def test_records_without_a_key_are_removed() -> None:
    _, log = world({"cleanup.policy": "delete"})
    write(log, [(None, b"1"), (b"a", b"1"), (None, b"2"), (b"b", b"1")])
    roll(log)
    log.update_config(log.config.override({"cleanup.policy": "compact"}))
    assert log.compact(NOW_MS) is not None
    assert data_offsets(log) == [1, 3]


def test_older_value_in_the_clean_section_is_removed_for_a_dirty_one() -> None:
    storage, log = world()
    write(log, [(b"a", b"1"), (b"b", b"1")])
    roll(log)
    log.compact(NOW_MS)
    write(log, [(b"a", b"2")])
    roll(log)
    result = log.compact(NOW_MS)
    assert result is not None and result.first_dirty_offset == 2
    assert data_offsets(log) == [1, 2]
    assert storage.open(f"{FOLDER}/cleaner-offset-checkpoint").read(0, 99) == b"0\n1\ntopic 0 3\n"


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("stamped", list(TimestampType))
def test_rewritten_batch_keeps_its_codec_and_timestamps(codec: Compression, stamped: TimestampType) -> None:
    _, log = world({"message.timestamp.type": "LogAppendTime" if stamped else "CreateTime"})
    write(log, [(b"a", b"1" * 50), (b"b", None), (b"c", b"2" * 50)], compression=codec)
    write(log, [(b"a", b"2")])
    before = batches(log)[0]
    roll(log)
    log.compact(NOW_MS)
    header, records = batches(log)[0]
    assert header.compression is codec
    assert header.timestamp_type is stamped
    assert header.has_delete_horizon and header.base_timestamp == LATER_MS
    assert records == before[1][1:]


# The range that is cleaned, and the time of the cleaning


# Rule C.12/1.
def test_undecided_data_is_not_cleaned() -> None:
    _, log = world()
    write(log, [(b"a", b"1")])
    roll(log)
    transact(log, 1, 0, b"a", commit=None)
    write(log, [(b"a", b"3")])
    roll(log)
    result = log.compact(NOW_MS)
    assert result is not None and result.end_offset == 1
    assert data_offsets(log) == [0, 1, 2]
    end(log, 1, commit=True)
    roll(log)
    log.compact(NOW_MS)
    # The last batch of a producer stays, without its record.
    assert data_offsets(log) == [2]
    assert empty_offsets(log) == [1]


# Rule C.12/1.
def test_records_younger_than_the_minimum_lag_are_not_cleaned() -> None:
    _, log = world({"min.compaction.lag.ms": "100"})
    for timestamp_ms in (NOW_MS, NOW_MS + 50, NOW_MS + 90):
        write(log, [(b"a", b"1")], timestamp_ms=timestamp_ms)
        roll(log)
    assert not is_due(log, NOW_MS + 99)
    result = log.compact(NOW_MS + 150)
    assert result is not None and result.end_offset == 2
    assert not is_due(log, NOW_MS + 189)
    assert is_due(log, NOW_MS + 190)


def test_compaction_waits_for_the_minimum_dirty_ratio() -> None:
    _, log = world({"min.cleanable.dirty.ratio": "0.5"})
    write(log, [(b"%d" % number, b"x" * 100) for number in range(10)])
    roll(log)
    assert log.compact(NOW_MS) is not None
    write(log, [(b"0", b"y")])
    roll(log)
    assert not is_due(log, NOW_MS)
    write(log, [(b"%d" % number, b"x" * 120) for number in range(10)])
    roll(log)
    assert is_due(log, NOW_MS)


def test_compaction_runs_after_the_maximum_lag() -> None:
    _, log = world({"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "500"})
    write(log, [(b"a", b"1")])
    roll(log)
    assert not is_due(log, NOW_MS + 500)
    assert is_due(log, NOW_MS + 501)
    assert log.compact(NOW_MS + 501) is not None
    assert not is_due(log, NOW_MS + 501)


def test_active_segment_rolls_after_the_maximum_compaction_lag() -> None:
    _, log = world({"max.compaction.lag.ms": "500"})
    for timestamp_ms in (NOW_MS, NOW_MS + 500, NOW_MS + 501):
        write(log, [(b"a", b"1")], timestamp_ms=timestamp_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_small_segments_are_merged() -> None:
    storage, log = world({"segment.bytes": "600"})
    for number in range(20):
        write(log, [(b"%d" % (number % 9), b"v%d" % number)])
        if number % 2:
            roll(log)
    expected = view(consume(log))
    before = len(log.segments)
    assert log.compact(NOW_MS) is not None
    after_first = len(log.segments)
    dirty(log)
    assert log.compact(NOW_MS) is not None
    assert len(log.segments) < after_first < before
    assert all(segment.size_bytes <= 600 for segment in log.segments)
    assert view(consume(log)) == {**expected, b"other": b"v"}
    again = reopened(storage)
    assert recovery_findings(again) == []
    assert batches(again) == batches(log)


# Tombstones


def test_tombstone_is_removed_after_its_delete_horizon() -> None:
    _, log = world()
    write(log, [(b"a", b"1"), (b"b", b"1")])
    write(log, [(b"a", None), (b"c", b"1")], timestamp_ms=NOW_MS + 5)
    roll(log)
    log.compact(NOW_MS)
    assert data_offsets(log) == [1, 2, 3]
    header, records = batches(log)[1]
    assert header.has_delete_horizon and header.base_timestamp == LATER_MS
    assert [record.timestamp_ms for record in records] == [NOW_MS + 5, NOW_MS + 6]
    dirty(log)
    log.compact(LATER_MS - 1)
    assert data_offsets(log) == [1, 2, 3, 4]
    dirty(log)
    log.compact(LATER_MS)
    assert data_offsets(log) == [1, 3, 5]
    assert batches(log)[1][1][0].timestamp_ms == NOW_MS + 6


# The rest of the log is not affected.


def test_timestamps_are_found_in_a_compacted_log() -> None:
    _, log = world()
    for number in range(10):
        write(log, [(b"%d" % (number % 3), b"x" * 50)], timestamp_ms=NOW_MS + number)
    write(log, [(b"0", b"y")], producer_id=1, epoch=0, sequence=0, timestamp_ms=NOW_MS + 500)
    write(log, [(b"0", b"z")], timestamp_ms=NOW_MS + 20)
    roll(log)
    log.compact(NOW_MS)
    assert empty_offsets(log) == [10]
    newest = log.max_timestamp(COMMITTED)
    assert newest is not None and (newest.offset, newest.timestamp_ms) == (11, NOW_MS + 20)
    found = log.offset_for_timestamp(NOW_MS, COMMITTED)
    assert found is not None and (found.offset, found.timestamp_ms) == (7, NOW_MS + 7)
    assert log.offset_for_timestamp(NOW_MS + 21, COMMITTED) is None


def test_compaction_and_retention_together() -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "5000", "segment.bytes": "150"}
    storage, log = world(settings)
    for number in range(8):
        write(
            log,
            [(b"same", b"%d" % number)],
            producer_id=number % 2,
            epoch=0,
            sequence=number // 2,
            timestamp_ms=NOW_MS + 1000 * number,
        )
        roll(log)
    log.compact(NOW_MS)
    assert data_offsets(log) == [7]
    # Retention also deletes segments without records.
    assert log.apply_retention(NOW_MS + 6000 + 5001) > 0
    assert log.log_start_offset == 7
    log.delete_records_before(8)
    assert log.log_start_offset == 8
    write(log, [(b"k", b"1")])
    write(log, [(b"k", b"2")])
    roll(log)
    result = log.compact(NOW_MS)
    assert result is not None and result.first_dirty_offset == 8
    assert data_offsets(log) == [9]
    again = reopened(storage, settings)
    assert recovery_findings(again) == []
    assert again.log_start_offset == 8


def test_damaged_batch_is_not_rewritten_with_a_valid_checksum() -> None:
    storage, log = world()
    write(log, [(b"a", b"1"), (b"b", b"1")])
    write(log, [(b"a", b"2")])
    roll(log)
    file = storage.open(f"{FOLDER}/{0:020d}.log")
    data = bytearray(file.read(0, file.size()))
    data[70] ^= 1
    file.truncate(0)
    file.append(data)
    with pytest.raises(DamageError, match="cannot be compacted"):
        log.compact(NOW_MS)
    assert file.read(0, file.size()) == data
    assert not [name for name in storage.list_folder(FOLDER) if "cleaned" in name or "swap" in name]


def test_compaction_without_changes_writes_nothing() -> None:
    storage, log = world()
    write(log, [(b"a", b"1"), (b"b", b"1")])
    roll(log)
    before = list(log.segments)
    result = log.compact(NOW_MS)
    assert result is not None and result.bytes_before == result.bytes_after
    assert list(log.segments) == before
    assert not [name for name in storage.list_folder(FOLDER) if "cleaned" in name or "swap" in name]
