"""Decoding of batches built by the broker and by kafka-python."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecordsBuilder

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.records.control import build_end_txn_marker
from broker_core.records.header import BatchHeader, iter_headers, write_timestamps
from broker_core.types import TimestampType
from spark_eos.codec.decode import SCHEMA, SCHEMA_WITH_HEADERS, decode_slabs
from tests.support.examples import examples
from tests.support.spark_eos.decoding import decode_batches

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=90)), max_size=4).map(tuple)
BYTES = st.none() | st.binary(max_size=90) | st.integers(8150, 8250).map(bytes)
STAMPS = st.integers(0, 2**41) | st.integers(-(2**62), 2**62 - 1)
RECORDS = st.lists(st.builds(NewRecord, BYTES, BYTES, HEADERS, STAMPS), min_size=1, max_size=12)
EVERYTHING = {"first_offset": 0, "end_offset": 2**62}


def decode(data: Any, **options: Any) -> Any:
    chosen = {"include_headers": True, **EVERYTHING, **options}
    found = decode_batches(data, list(iter_headers(data)), **chosen)
    found.validate(full=True)
    return found


def rows_of(records: list[NewRecord], base_offset: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": base_offset + index,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for index, record in enumerate(records)
    ]


@given(st.lists(st.tuples(RECORDS, st.sampled_from(Compression)), min_size=1, max_size=4), st.booleans())
@examples(200)
def test_batches_of_any_codec_are_decoded(
    batches: list[tuple[list[NewRecord], Compression]], include_headers: bool
) -> None:
    data = b""
    expected: list[dict[str, Any]] = []
    for records, codec in batches:
        data += build_batch(records, base_offset=len(expected), compression=codec)
        expected += rows_of(records, len(expected))
    found = decode(data, include_headers=include_headers)
    assert found.schema == (SCHEMA_WITH_HEADERS if include_headers else SCHEMA)
    if not include_headers:
        expected = [{name: value for name, value in row.items() if name != "headers"} for row in expected]
    assert found.to_pylist() == expected


@given(RECORDS, st.sampled_from([Compression.NONE, Compression.GZIP]))
@examples(100)
def test_batches_built_by_kafka_python_are_decoded(records: list[NewRecord], codec: Compression) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 30)
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, list(record.headers))
    builder.close()
    assert decode(bytes(builder.buffer())).to_pylist() == rows_of(records)


@given(RECORDS, st.integers(-1, 14), st.integers(-1, 14), st.sampled_from([Compression.NONE, Compression.LZ4]))
@examples(150)
def test_records_outside_the_range_are_dropped(
    records: list[NewRecord], first_offset: int, end_offset: int, codec: Compression
) -> None:
    data = build_batch(records, base_offset=1, compression=codec)
    found = decode(data, first_offset=first_offset, end_offset=end_offset).to_pylist()
    assert found == [row for row in rows_of(records, 1) if first_offset <= row["offset"] < end_offset]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_and_position_is_decoded(kind: Any) -> None:
    records = [NewRecord(b"k", b"v", (("h", b"1"),), 4), NewRecord(None, None, (), 3)]
    data = kind(b"......" + build_batch(records) + b"junk")
    header = BatchHeader.parse(data, 6)
    found = decode_batches(data, [(6, header)], include_headers=True, **EVERYTHING)
    assert found.to_pylist() == rows_of(records)


def test_compacted_batches_keep_their_offsets() -> None:
    records = [NewRecord(b"a", b"1"), NewRecord(b"b", b"2"), NewRecord(b"c", b"3")]
    data = build_batch(records, base_offset=100, offset_deltas=[3, 4, 90], last_offset_delta=99)
    assert decode(data)["offset"].to_pylist() == [103, 104, 190]
    assert decode(data, first_offset=104, end_offset=190)["offset"].to_pylist() == [104]
    assert decode(data, first_offset=191).num_rows == 0


def test_log_append_time_is_the_batch_max_timestamp() -> None:
    records = [NewRecord(b"a", b"1", (), 5), NewRecord(b"b", b"2", (), 9)]
    stamped = bytearray(build_batch(records))
    write_timestamps(stamped, 0, BatchHeader.parse(stamped), TimestampType.LOG_APPEND_TIME, 700)
    data = bytes(stamped) + build_batch(records, base_offset=2)
    found = decode(data)
    assert found["timestamp_ms"].to_pylist() == [700, 700, 5, 9]
    assert found["timestamp_type"].to_pylist() == [1, 1, 0, 0]


def test_control_batches_and_empty_input_yield_no_rows() -> None:
    marker = build_end_txn_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    ).data
    for data in (b"", marker):
        assert decode(data).schema == SCHEMA_WITH_HEADERS
        assert decode(data).num_rows == 0
        assert decode(data, include_headers=False).schema == SCHEMA
    assert decode(build_batch([NewRecord(b"k", b"v")]) + marker).num_rows == 1


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    data = bytearray(build_batch([NewRecord(b"k", b"v", (("hh", b"\xff"), ("ok", None)))] * 2))
    for position in (data.index(b"hh"), data.rindex(b"hh")):
        data[position : position + 2] = b"\xfe\xff"
    headers = decode(bytes(data))["headers"].to_pylist()
    assert headers == [[{"key": "\ufffd\ufffd", "value": b"\xff"}, {"key": "ok", "value": None}]] * 2


def test_truncated_batch_is_refused() -> None:
    data = build_batch([NewRecord(b"k", b"v")] * 9)
    header = BatchHeader.parse(data)
    with pytest.raises(InvalidBatch, match="past the end of its batch"):
        decode_batches(data[:-1], [(0, header)], include_headers=True, **EVERYTHING)


@pytest.mark.parametrize("rows", [1, 100])
def test_any_negative_length_means_null(rows: int) -> None:
    """Java's consumer reads it so, and brokers store what a producer has written so."""
    data = build_batch([NewRecord(None, None, (("h", None),))] * rows)
    minus_one, minus_five = b"\x01\x01\x02\x02h\x01", b"\x09\x09\x02\x02h\x09"
    assert data.count(minus_one) == rows
    found = decode(data.replace(minus_one, minus_five)).to_pylist()
    assert found == rows_of([NewRecord(None, None, (("h", None),))] * rows)


@given(RECORDS, st.data())
@examples(200)
def test_damage_raises_only_invalid_batch(records: list[NewRecord], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(57, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidBatch):
        decode(bytes(batch))
    with contextlib.suppress(InvalidBatch):
        decode(bytes(batch) + build_batch(records))


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_batches_that_fill_several_slabs_are_decoded(codec: Compression) -> None:
    # 30 times 1 MB, of which little is left compressed; one of them is plain, and one larger than a slab.
    codecs = [codec, codec, Compression.NONE, *[codec] * 27, codec]
    values = [b"%d" % number + bytes(1_000_000 if number < 30 else 20_000_000) for number in range(31)]
    data = b"".join(
        build_batch([NewRecord(None, value, (), 5)], base_offset=number, compression=each)
        for number, (value, each) in enumerate(zip(values, codecs, strict=True))
    )
    spans = list(iter_headers(data))
    slabs = list(decode_slabs(data, spans, include_headers=False, first_offset=0, end_offset=100))
    assert [value for slab in slabs for value in slab["value"].to_pylist()] == values
    assert 3 <= len(slabs) <= 5
