"""Building and reading batches, compared with kafka-python, an implementation that shares no code with ours."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, Record, build_batch, build_single, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import BatchHeader, crc_matches
from broker_core.records.validation import RecordSummary, summarize_records
from broker_core.records.varint import append_varint, read_varint, varint_bytes
from tests.support.examples import examples

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
BYTES = st.none() | st.binary(max_size=200)
RECORDS = st.lists(st.builds(NewRecord, BYTES, BYTES, HEADERS, st.integers(0, 2**41)), min_size=1, max_size=20)
CODECS = st.sampled_from(Compression)
# Without further libraries kafka-python supports no codec but gzip.
THEIR_CODECS = st.sampled_from([Compression.NONE, Compression.GZIP])


def with_offsets(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, record.timestamp_ms, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-10_000, 10_000))
def test_varint_round_trip(value: int) -> None:
    data = bytearray(b"?")
    append_varint(data, value)
    assert varint_bytes(value) == data[1:]
    assert read_varint(data, 1) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (2**31 - 1, "feffffff0f")],
)
def test_varint_known_bytes(value: int, encoded: str) -> None:
    data = bytearray()
    append_varint(data, value)
    assert data.hex() == encoded


def test_unterminated_varint_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="longer than 10"):
        read_varint(b"\xff" * 20, 0)
    with pytest.raises(IndexError):
        read_varint(b"\xff", 0)


@given(RECORDS, CODECS, st.integers(0, 2**40))
@examples(200)
def test_round_trip(records: list[NewRecord], codec: Compression, base_offset: int) -> None:
    data = b"##" + build_batch(records, base_offset=base_offset, compression=codec)
    header = BatchHeader.parse(data, 2)
    assert header.compression is codec
    assert crc_matches(data, 2, header)
    assert read_records(data, 2, header) == with_offsets(records, base_offset)
    stamps = [record.timestamp_ms for record in records]
    assert summarize_records(data, 2, header) == RecordSummary(
        min(stamps), max(stamps), all(record.key is not None for record in records)
    )


@given(RECORDS, THEIR_CODECS)
@examples(100)
def test_kafka_python_reads_our_batches(records: list[NewRecord], codec: Compression) -> None:
    data = build_batch(records, base_offset=5, compression=codec, producer_id=3, producer_epoch=1, base_sequence=0)
    theirs = MemoryRecords(data).next_batch()
    assert theirs.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == with_offsets(records, 5)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (3, 1, 0)


@given(RECORDS, THEIR_CODECS)
@examples(100)
def test_our_decoder_reads_kafka_python_batches(records: list[NewRecord], codec: Compression) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 30)
    for record in records:
        assert builder.append(record.timestamp_ms, record.key, record.value, list(record.headers)) is not None
    builder.close()
    data = bytes(builder.buffer())
    header = BatchHeader.parse(data)
    assert crc_matches(data, 0, header)
    assert read_records(data, 0, header) == with_offsets(records)


def test_compacted_batch_keeps_its_offsets_and_span() -> None:
    records = [NewRecord(b"a", b"1"), NewRecord(b"b", b"2")]
    data = build_batch(records, base_offset=100, offset_deltas=[2, 5], last_offset_delta=9)
    header = BatchHeader.parse(data)
    assert [record.offset for record in read_records(data, 0, header)] == [102, 105]
    assert (header.last_offset, header.record_count) == (109, 2)


@given(
    st.binary(max_size=70) | st.integers(8_190, 8_200).map(bytes),
    st.none() | st.binary(max_size=70) | st.integers(8_190, 8_200).map(bytes),
    st.integers(0, 2**63 - 1),
    st.fixed_dictionaries(
        {
            "producer_id": st.integers(-1, 2**63 - 1),
            "producer_epoch": st.integers(-1, 2**15 - 1),
            "is_transactional": st.booleans(),
            "is_control": st.booleans(),
        }
    ),
)
def test_single_record_is_built_as_a_batch_of_any_size(
    key: bytes, value: bytes | None, timestamp_ms: int, fields: dict[str, int]
) -> None:
    built = build_single(key, value, timestamp_ms, **fields)  # type: ignore[arg-type]
    assert built.data == build_batch([NewRecord(key, value, (), timestamp_ms)], **fields)  # type: ignore[arg-type]
    assert built.header == BatchHeader.parse(built.data)


def test_building_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@given(RECORDS, st.data())
@examples(300)
def test_damage_raises_only_invalid_batch(records: list[NewRecord], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    header = BatchHeader.parse(batch)
    with contextlib.suppress(InvalidBatch):
        read_records(batch, 0, header)
    with contextlib.suppress(InvalidBatch):
        summarize_records(bytes(batch), 0, header)


def test_truncated_batch_is_refused() -> None:
    data = build_batch([NewRecord(b"k", b"v")])
    header = BatchHeader.parse(data)
    with pytest.raises(InvalidBatch, match="the buffer at byte"):
        read_records(data[:-1], 0, header)


# Broken record sections, each with the error that both readers report; the batch header has one record.
BROKEN_SECTIONS = [
    ("the length is one byte too large", bytes([16, 0, 0, 0, 1, 1, 0]), "length"),
    ("the length is one byte too small", bytes([10, 0, 0, 0, 1, 1, 0]), "length"),
    ("a key longer than the batch", bytes([12, 0, 0, 0, 100, 1, 0]), "cut short|ends at"),
    ("a header count below 0", bytes([12, 0, 0, 0, 1, 1, 1]), "header count"),
    ("a header without a key", bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), "no key"),
    ("a varint without an end", bytes([24, 0]) + b"\xff" * 11, "longer than 10"),
    ("no record", b"", "cut short"),
    ("bytes after the last record", bytes([12, 0, 0, 0, 1, 1, 0, 9]), "1 byte after the last record"),
]


@pytest.mark.parametrize(
    ("section", "reason"), [row[1:] for row in BROKEN_SECTIONS], ids=[row[0] for row in BROKEN_SECTIONS]
)
def test_malformed_records_are_detected(section: bytes, reason: str) -> None:
    batch = bytearray(build_batch([NewRecord(None, None)])[:61] + section)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    header = BatchHeader.parse(batch)
    with pytest.raises(InvalidBatch, match="record 0 .*length" if reason == "length" else "record 0"):
        summarize_records(bytes(batch), 0, header)
    with pytest.raises(InvalidBatch, match="record|follow" if reason == "length" else reason):
        read_records(batch, 0, header)


def test_header_key_that_is_no_text_is_read_as_by_java() -> None:
    """No broker refuses it, so a log may contain it: it is no damage."""
    data = build_batch([NewRecord(None, None, (("ab", b"\xff"),))]).replace(b"ab", b"\xfe\xff")
    assert read_records(data, 0, BatchHeader.parse(data))[0].headers == (("\ufffd\ufffd", b"\xff"),)


def test_any_negative_length_is_null() -> None:
    batch = bytearray(build_batch([NewRecord(None, None)])[:61] + bytes([12, 0, 0, 0, 3, 5, 0]))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    header = BatchHeader.parse(batch)
    assert read_records(batch, 0, header) == [Record(0, -1, None, None, ())]
    assert summarize_records(bytes(batch), 0, header) == RecordSummary(-1, -1, False)
