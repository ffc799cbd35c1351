"""The batch header, the iteration over batches and the fields that the broker writes in place."""

import struct

import pytest

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, build_batch, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, BatchHeader, assign_offsets, check_crcs, crc_matches, iter_headers
from broker_core.types import TimestampType, counted

RECORDS = [NewRecord(b"k", b"v", (), 1000), NewRecord(None, b"w", (), 900), NewRecord(b"l", None, (), 1100)]


def batch(**fields: object) -> bytes:
    return build_batch(RECORDS, **fields)  # type: ignore[arg-type]


# Rule B.4/1.
def test_parse_reads_every_field() -> None:
    producer = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 40}
    data = batch(base_offset=7, partition_leader_epoch=3, is_transactional=True, **producer)
    header = BatchHeader.parse(b"..." + data, 3)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 9, 10)
    assert header.size_bytes == len(data) == header.batch_length + 12
    assert (header.partition_leader_epoch, header.magic, header.record_count) == (3, 2, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 40, 42)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1100)
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer
    assert not header.has_delete_horizon
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.compression is Compression.NONE


def test_batch_without_producer_has_no_sequence() -> None:
    header = BatchHeader.parse(batch())
    assert not header.has_producer
    assert header.last_sequence == -1


def test_last_sequence_wraps() -> None:
    assert BatchHeader.parse(batch(producer_id=1, base_sequence=2**31 - 1)).last_sequence == 1


@pytest.mark.parametrize("size", [0, 1, 60])
def test_parse_refuses_a_short_buffer(size: int) -> None:
    with pytest.raises(InvalidBatch, match=f"{counted(size, 'byte')} at byte 0: too few"):
        BatchHeader.parse(batch()[:size])


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_parse_refuses_other_magics(magic: int) -> None:
    data = bytearray(batch())
    data[16] = magic
    with pytest.raises(InvalidBatch, match=f"magic {magic}"):
        BatchHeader.parse(data)


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_parse_refuses_a_length_shorter_than_the_header(length: int) -> None:
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(InvalidBatch, match=f"batch length {length}"):
        BatchHeader.parse(data)


def test_iter_headers_finds_each_complete_batch() -> None:
    one, two = batch(), batch(base_offset=3)
    found = list(iter_headers(b"." * 5 + one + two, 5))
    assert [(position, header.base_offset) for position, header in found] == [(5, 0), (5 + len(one), 3)]


@pytest.mark.parametrize("cut", [1, 10, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1])
def test_iter_headers_stops_at_a_partial_tail(cut: int) -> None:
    data = batch()
    assert len(list(iter_headers(data + data[:cut]))) == 1


def test_iter_headers_reports_malformed_bytes() -> None:
    data = batch()
    with pytest.raises(InvalidBatch, match=f"at byte {len(data)}"):
        list(iter_headers(data + b"\x00" * 100))


def test_crc_matches_only_its_own_bytes() -> None:
    data = bytearray(b".." + batch())
    header = BatchHeader.parse(data, 2)
    assert crc_matches(data, 2, header)
    assert not crc_matches(data[:-1], 2, header)
    data[-1] ^= 1
    assert not crc_matches(data, 2, header)


@pytest.mark.parametrize("position", [22, 26, 50, 60, -1])
def test_damage_is_refused_wherever_it_is(position: int) -> None:
    data = bytearray(batch() + batch(base_offset=40))
    second = memoryview(data)[len(batch()) :]
    check_crcs(data, iter_headers(data))
    second[position] ^= 0x10
    with pytest.raises(InvalidBatch, match="batch at offset 40 is corrupt"):
        check_crcs(data, iter_headers(data))


# Rule B.4/2.
def test_assign_offsets_keeps_the_crc() -> None:
    data = bytearray(b".." + batch())
    before = BatchHeader.parse(data, 2)
    assign_offsets(data, 2, 500, 4)
    header = BatchHeader.parse(data, 2)
    assert header == before._replace(base_offset=500, partition_leader_epoch=4)
    assert crc_matches(data, 2, header)
    assert [record.offset for record in read_records(data, 2, header)] == [500, 501, 502]


def test_delete_horizon_bit_is_read() -> None:
    assert BatchHeader.parse(batch())._replace(attributes=0x40).has_delete_horizon
