"""Encoded batches, compared with two readers that share no code with the encoder."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from broker_core.records.batch import NewRecord, Record, build_batch, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import BatchHeader, crc_matches
from spark_eos.codec import encode as encode_module
from spark_eos.codec.columns import EncodeError
from spark_eos.codec.encode import encode_batches, split
from spark_eos.codec.encoded_batch import EncodedBatch, seal
from tests.support.examples import examples

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTES = st.none() | st.binary(max_size=100) | st.integers(1000, 1100).map(bytes)
HEADER_LISTS = st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=80)), max_size=3)
STAMPS = st.integers(0, 2**41) | st.integers(-(2**62), 2**62 - 1)
ROWS = st.lists(st.tuples(BYTES, BYTES, HEADER_LISTS, STAMPS), min_size=1, max_size=30)
WIDE = 1 << 24

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]


def header_array(lists: list[Any]) -> Any:
    entries = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in lists]
    return pa.array(entries, HEADERS_TYPE)


def encode(rows: list[Row], *, limit: int = WIDE, key_type: Any = None, **options: Any) -> list[EncodedBatch]:
    keys, values, headers, stamps = zip(*rows, strict=True)
    return list(
        encode_batches(
            key=pa.array(keys, key_type or pa.binary()),
            value=pa.array(values, pa.binary()),
            headers=header_array(list(headers)),
            timestamp_ms=pa.array(stamps, pa.int64()),
            max_batch_bytes=limit,
            **options,
        )
    )


def read(batches: list[EncodedBatch]) -> list[Record]:
    """Read all batches with the broker's reader, with consecutive offsets."""
    records: list[Record] = []
    for batch in batches:
        data = seal(batch, producer_id=1, producer_epoch=2, base_sequence=3)
        header = BatchHeader.parse(data)
        assert header.size_bytes == len(data) == batch.size_bytes
        assert header.record_count == batch.record_count == header.last_offset_delta + 1
        assert crc_matches(data, 0, header)
        found = read_records(data, 0, header)
        assert header.base_timestamp == found[0].timestamp_ms
        assert header.max_timestamp == max(record.timestamp_ms for record in found)
        records += [record._replace(offset=record.offset + len(records)) for record in found]
    return records


def expected(rows: list[Row]) -> list[Record]:
    return [Record(i, stamp, k, v, tuple(h or ())) for i, (k, v, h, stamp) in enumerate(rows)]


@given(ROWS, st.sampled_from(Compression), st.sampled_from([WIDE, 3000, 200, 1]))
@examples(300)
def test_encoded_batches_are_accepted_by_broker_core(rows: list[Row], codec: Compression, limit: int) -> None:
    assert read(encode(rows, limit=limit, compression=codec)) == expected(rows)


@given(ROWS, st.sampled_from([Compression.NONE, Compression.GZIP]))
@examples(100)
def test_encoded_batches_are_read_by_kafka_python(rows: list[Row], codec: Compression) -> None:
    [batch] = encode(rows, compression=codec)
    theirs = MemoryRecords(bytes(seal(batch, producer_id=7, producer_epoch=1, base_sequence=0))).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.is_transactional) == (7, 1, True)
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == expected(rows)


@given(ROWS)
@examples(100)
def test_uncompressed_batches_match_broker_core_byte_for_byte(rows: list[Row]) -> None:
    [batch] = encode(rows)
    records = [NewRecord(k, v, tuple(h or ()), stamp) for k, v, h, stamp in rows]
    built = build_batch(records, producer_id=5, producer_epoch=6, base_sequence=7, is_transactional=True)
    assert bytes(seal(batch, producer_id=5, producer_epoch=6, base_sequence=7)) == built


@given(ROWS, st.integers(100, 4000))
@examples(200)
def test_batches_are_filled_up_to_the_limit(rows: list[Row], limit: int) -> None:
    batches = encode(rows, limit=limit)
    start = 0
    for batch in batches:
        assert batch.size_bytes <= limit or batch.record_count == 1
        stop = start + batch.record_count
        if stop < len(rows):
            one_more = encode(rows[start : stop + 1])
            assert one_more[0].size_bytes > limit
        start = stop
    assert start == len(rows)


@given(ROWS, ROWS, ROWS)
@examples(100)
def test_slices_and_chunks_are_encoded(before: list[Row], rows: list[Row], after: list[Row]) -> None:
    def column(index: int, build: Any) -> Any:
        return build([row[index] for row in before + rows + after]).slice(len(before), len(rows))

    def binary(values: list[Any]) -> Any:
        return pa.array(values, pa.binary())

    key, value, headers = column(0, binary), column(1, binary), column(2, header_array)
    stamps = column(3, lambda values: pa.array(values, pa.int64()))
    sliced = encode_batches(key=key, value=value, headers=headers, timestamp_ms=stamps, max_batch_bytes=WIDE)
    assert read(list(sliced)) == expected(rows)
    half = len(rows) // 2
    chunked = [pa.chunked_array([array.slice(0, half), array.slice(half)]) for array in (key, value, headers, stamps)]
    names = ("key", "value", "headers", "timestamp_ms")
    batches = encode_batches(**dict(zip(names, chunked, strict=True)), max_batch_bytes=500)
    assert read(list(batches)) == expected(rows)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(4),
    ],
    ids=str,
)
@pytest.mark.parametrize("other", [pa.string(), pa.large_binary()], ids=str)
def test_column_types_are_accepted(kind: Any, other: Any) -> None:
    words = ["abcd", None, "a€", "1234"]
    plain = pa.array(words)
    array = typed(plain, kind)
    for key, value in ((array, plain.cast(other)), (plain.cast(other), array)):
        batches = list(
            encode_batches(key=key.slice(1), value=value.slice(1), headers=None, timestamp_ms=5, max_batch_bytes=WIDE)
        )
        values = [None if word is None else word.encode() for word in words[1:]]
        assert [(record.key, record.value) for record in read(batches)] == [(word, word) for word in values]


def typed(plain: Any, kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        return plain.dictionary_encode()
    if pa.types.is_fixed_size_binary(kind):
        return plain.cast(pa.binary()).cast(kind)
    return pa.array(plain.to_pylist(), kind)


@pytest.mark.parametrize("key", [None, pa.nulls(3), pa.nulls(3, pa.string())])
def test_encoding_without_keys_and_with_one_timestamp(key: Any) -> None:
    value = pa.array([b"a", None, b""])
    batches = list(encode_batches(key=key, value=value, headers=None, timestamp_ms=-7, max_batch_bytes=WIDE))
    assert read(batches) == [Record(0, -7, None, b"a", ()), Record(1, -7, None, None, ()), Record(2, -7, None, b"", ())]


@pytest.mark.parametrize("value", [pa.array([], pa.string()), pa.chunked_array([], pa.binary()), pa.nulls(0)])
def test_no_rows_produce_no_batch(value: Any) -> None:
    headers = pa.array([], HEADERS_TYPE)
    assert list(encode_batches(key=None, value=value, headers=headers, timestamp_ms=0, max_batch_bytes=100)) == []
    stamps = pa.array([], pa.int64())
    assert list(encode_batches(key=value, value=value, headers=None, timestamp_ms=stamps, max_batch_bytes=100)) == []


def test_null_header_lists_with_entries_are_encoded_as_empty() -> None:
    """A null list may still span entries, and a sliced one begins at a later entry of its child arrays."""
    columns = [pa.array(list("abcdef")), pa.array([b"1", None, b"3", b"4", b"", b"6"])]
    entries = pa.StructArray.from_arrays(columns, ["k", "v"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 6]), entries, mask=pa.array([False, True, False, False]))
    for large in (lists, lists.cast(pa.large_list(lists.type.value_type))):
        [batch] = encode_batches(
            key=None, value=pa.nulls(3), headers=large.slice(1), timestamp_ms=0, max_batch_bytes=WIDE
        )
        found = [record.headers for record in read([batch])]
        assert found == [(), (("d", b"4"),), (("e", b""), ("f", b"6"))]


@pytest.mark.parametrize("kinds", [(pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())])
def test_invalid_utf8_in_header_keys_is_replaced(kinds: tuple[pa.DataType, pa.DataType]) -> None:
    """A string of Spark may hold any bytes. Kafka's header keys are text, which some clients refuse to read."""
    keys = pa.array([b"\xfe\xff", b"ok", b"\xfe\xff"], kinds[0]).view(kinds[1])
    entries = pa.StructArray.from_arrays([keys, pa.array([b"\xff"] * 3)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 2, 3]), entries)
    batches = list(encode_batches(key=None, value=pa.nulls(2), headers=headers, timestamp_ms=0, max_batch_bytes=WIDE))
    found = [record.headers for record in read(batches)]
    assert found == [(("\ufffd\ufffd", b"\xff"), ("ok", b"\xff")), (("\ufffd\ufffd", b"\xff"),)]


def test_unencodable_values_are_refused_with_a_message() -> None:
    def refused(match: str, **columns: Any) -> None:
        given_columns = {"key": None, "value": pa.array([b"v"]), "headers": None, "timestamp_ms": 0, **columns}
        with pytest.raises(EncodeError, match=match):
            list(encode_batches(**given_columns, max_batch_bytes=1000))

    null_key = pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)
    refused("1 null header key. Give each header a key", headers=null_key)
    refused("1 null header. Remove", headers=pa.array([[None]], HEADERS_TYPE))
    refused("headers column is of type list<item: string>", headers=pa.array([["x"]]))
    refused("value column is of type int64. Cast", value=pa.array([1]))
    refused("key column is of type double", key=pa.array([1.5]))
    refused("1 null timestamp", timestamp_ms=pa.array([None], pa.int64()))
    refused("timestamp column is of type int32", timestamp_ms=pa.array([1], pa.int32()))
    refused("key column has 2 rows, the value column has 1", key=pa.array([b"a", b"b"]))
    refused("timestamp column has 2 rows", timestamp_ms=pa.array([1, 2]))


def test_a_batch_is_sealed_again_with_other_values() -> None:
    [batch] = encode([(b"k", b"v", None, 1)])
    assert BatchHeader.parse(seal(batch, producer_id=1, producer_epoch=2, base_sequence=9)).is_transactional
    data = seal(batch, producer_id=3, producer_epoch=4, base_sequence=5)
    header = BatchHeader.parse(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 4, 5)
    assert header.is_transactional
    assert crc_matches(data, 0, header)
    assert data is batch.data


@given(ROWS, st.sampled_from(Compression))
@examples(100)
def test_split_halves_a_batch(rows: list[Row], codec: Compression) -> None:
    [batch] = encode(rows, compression=codec)
    if len(rows) == 1:
        with pytest.raises(ValueError, match="cannot split"):
            split(batch)
        return
    first, second = split(batch)
    assert first.record_count == len(rows) // 2
    assert BatchHeader.parse(second.data).compression is codec
    assert read([first, second]) == expected(rows)


def test_more_rows_than_fit_small_offset_deltas() -> None:
    count = 20_000
    value = pa.array(map(str, range(count)))
    [batch] = encode_batches(key=None, value=value, headers=None, timestamp_ms=1, max_batch_bytes=WIDE)
    records = read([batch])
    assert [record.value for record in records] == [b"%d" % index for index in range(count)]
    assert [record.offset for record in records] == list(range(count))


def test_batches_are_yielded_one_by_one() -> None:
    batches = encode_batches(
        key=None, value=pa.array(["x" * 50] * 1000), headers=None, timestamp_ms=1, max_batch_bytes=1000
    )
    assert [batch.record_count for batch in itertools.islice(batches, 2)] == [16, 16]


@given(ROWS, st.sampled_from([WIDE, 3000, 200]), st.integers(1, 2000))
@examples(100)
def test_batches_are_encoded_in_passes_of_any_size(rows: list[Row], limit: int, pass_bytes: int) -> None:
    whole = encode(rows, limit=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_module, "_PASS_BYTES", pass_bytes)
        assert encode(rows, limit=limit) == whole


@pytest.mark.parametrize("timestamp_ms", [0, 1_700_000_000_000])
def test_record_larger_than_the_limit_gets_its_own_batch(timestamp_ms: int) -> None:
    value = pa.array([b"x" * 50, b"y" * 5000, b"z" * 50] * 40)
    batches = list(encode_batches(key=None, value=value, headers=None, timestamp_ms=timestamp_ms, max_batch_bytes=400))
    assert [record.value for record in read(batches)] == value.to_pylist()
    assert all(batch.size_bytes <= 400 or batch.record_count == 1 for batch in batches)
