"""Decoding of any record batch takes bounded time and memory, and valid batches are read completely.

Limits are about ten times the measured processor time and three times the measured memory.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import EmbeddedBroker
from broker_core.errors import DecompressedTooLarge, InvalidBatch
from broker_core.log.producer_state import AppendOrigin
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression, compress
from broker_core.records.header import HEADER_SIZE, iter_headers
from broker_core.records.varint import append_varint
from broker_core.types import TopicPartition
from spark_eos.codec import decode, header_column
from spark_eos.codec.decode import decode_slabs
from spark_eos.errors import BrokerError
from spark_eos.options.source import batch_options
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.range_reader import read_range
from tests.support.examples import examples
from tests.support.short_form import chosen
from tests.support.spark_eos.decode_bombs import CODECS, MIB, TINY, batch, bomb, cost
from tests.support.spark_eos.decoding import decode_batches

EVERYTHING: Final = {"first_offset": 0, "end_offset": 2**62}
SOME: Final = chosen(CODECS, "codecs of large batches", of=3)
SMALL_SLABS: Final = 200
RECORDS: Final = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40) | st.integers(90, 1000).map(bytes),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=5).map(tuple),
        st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=40,
)


def record(value_bytes: int, header_count: int = 0) -> bytes:
    """Return a record with a value of zeros, and with headers of two zero bytes each."""
    body = bytearray(b"\x00\x00\x00\x01")
    append_varint(body, value_bytes)
    body += bytes(value_bytes)
    append_varint(body, header_count)
    body += bytes(2 * header_count)
    append_varint(whole := bytearray(), len(body))
    return bytes(whole + body)


def decoded(data: bytes, **options: Any) -> Any:
    return decode_batches(data, list(iter_headers(data)), **{"include_headers": False, **EVERYTHING, **options})


def slabs(data: bytes, **options: Any) -> Iterator[Any]:
    return decode_slabs(data, list(iter_headers(data)), **{"include_headers": False, **EVERYTHING, **options})


def refusal(data: bytes, problem: str, *, seconds: float, mib: float, **options: Any) -> None:
    """Check that a batch is refused with this problem, in both ways of decoding and within limits."""
    for read in (lambda: decoded(data, **options), lambda: sum(1 for _ in slabs(data, **options))):
        found = cost(read)
        assert isinstance(found.outcome, InvalidBatch), found.outcome
        assert problem in str(found.outcome)
        # The measurement includes delays of a busy machine and other threads of this process.
        assert found.seconds < 2 * seconds, found
        assert found.mib < 1.5 * mib + 50, found


@pytest.mark.parametrize("codec", SOME)
@pytest.mark.parametrize("first", [TINY, record(17 * MIB)], ids=["tiny", "large"])
def test_bytes_after_the_last_record_are_not_decompressed(codec: Compression, first: bytes) -> None:
    # Snappy cannot be decompressed in pieces, but one byte decompresses to at most 22.
    snappy = codec is Compression.SNAPPY
    data = bomb(codec, first, 64 if snappy else 512)
    follows = "data after the last of its 1 records"
    refusal(data, follows, seconds=3, mib=400 if snappy else 180)


@pytest.mark.parametrize("codec", SOME)
def test_small_surplus_is_refused(codec: Compression) -> None:
    refusal(batch(TINY + bytes(2 * MIB), 1, codec), "do not add up", seconds=1, mib=25)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_decompression_bomb_cost_is_independent_of_its_size(codec: Compression) -> None:
    refusal(bomb(codec, TINY, 8192), "has data after the last", seconds=3, mib=150)


def test_many_small_bombs_are_not_kept_in_memory_together() -> None:
    data = batch(TINY + bytes(2 * MIB), 1, Compression.ZSTD) * 2000
    refusal(data, "do not add up", seconds=3, mib=150)


@pytest.mark.parametrize("codec", SOME)
def test_endless_empty_records_are_refused_early(codec: Compression) -> None:
    snappy = codec is Compression.SNAPPY
    refusal(batch(bytes(8 * MIB), 2 * MIB, codec), "cannot fit", seconds=1, mib=60)
    refusal(bomb(codec, b"", 64, 9 * MIB), "extends beyond its record", seconds=6, mib=400 if snappy else 200)


def test_scanning_zeros_for_records_is_cheap() -> None:
    refusal(batch(TINY + bytes(64 * MIB), 20_000, Compression.NONE), "do not add up", seconds=3, mib=80)


@pytest.mark.parametrize("codec", SOME)
def test_missing_records_are_refused(codec: Compression) -> None:
    refusal(batch(TINY, 2**31 - 1, codec), "2147483647 records cannot fit in 7 bytes", seconds=1, mib=20)
    there = 20 * MIB // len(record(1000))
    most = record(1000) * there
    refusal(batch(most, there + 1, codec), f"record count of {there + 1}, 1 more than there are", seconds=3, mib=300)
    refusal(batch(most[:-1], there, codec), f"record count of {there}, 1 more than there are", seconds=3, mib=300)


@pytest.mark.parametrize("codec", SOME)
def test_record_with_a_false_length_costs_only_its_real_bytes(codec: Compression) -> None:
    for length in (2**30, 2**31 - 1, 2**31, 2**40, 2**62):
        append_varint(head := bytearray(), length)
        refusal(batch(bytes(head) + bytes(40), 1, codec), "do not add up", seconds=1, mib=20)
        if length not in (2**31, 2**40):
            problem = "1 more than there are" if length < 2**31 - 6 else "the maximum is 2 GiB"
            refusal(bomb(codec, bytes(head), 32), problem, seconds=2, mib=200)


@pytest.mark.parametrize("codec", SOME)
def test_unterminated_record_length_is_refused(codec: Compression) -> None:
    refusal(batch(b"\xff" * (20 * MIB), 1, codec), "the maximum is 2 GiB", seconds=3, mib=200)
    refusal(batch(record(17 * MIB) + b"\xff" * 5, 2, codec), "do not add up", seconds=3, mib=200)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_truncated_large_section_is_refused(codec: Compression) -> None:
    folded = compress(codec, record(20 * MIB))
    refusal(batch(b"", 1, codec, folded=folded[:-9]), "decompress", seconds=3, mib=150)
    refusal(batch(b"", 1, codec, folded=folded + b"junk of more than a header"), "decompress", seconds=3, mib=150)


def test_snappy_block_with_a_false_size_is_refused() -> None:
    folded = b"\xff\xff\xff\xff\x07" + compress(Compression.SNAPPY, TINY)[20:]
    refusal(batch(b"", 1, Compression.SNAPPY, folded=folded), "limit", seconds=1, mib=20)


@pytest.mark.parametrize("codec", [Compression.NONE, *SOME])
def test_a_million_tiny_records_are_read(codec: Compression) -> None:
    data = batch(TINY * MIB, MIB, codec)
    found = cost(lambda: decoded(data).num_rows)
    assert found.outcome == MIB
    assert found.seconds < 4
    assert found.mib < 300
    assert cost(lambda: max(slab.num_rows for slab in slabs(data))).outcome < MIB


@pytest.mark.parametrize("codec", SOME)
def test_batch_of_equal_rows_is_read_completely(codec: Compression) -> None:
    # With zstd 64 MiB of rows take 7 kB: a high compression ratio alone does not make a batch hostile.
    one, value = record(100), bytes(100)
    count = (64 if codec is Compression.ZSTD else 24) * MIB // len(one)
    data = batch(one * count, count, codec)
    assert codec is not Compression.ZSTD or len(data) < 100_000
    found = cost(lambda: decoded(data))
    assert found.outcome.num_rows == count
    assert found.outcome["value"].value_counts().to_pylist() == [{"values": value, "counts": count}]
    assert found.seconds < 6
    assert found.mib < 3 * len(one) * count / MIB + 150
    by_slabs = cost(lambda: sum(slab.num_rows for slab in slabs(data)))
    assert by_slabs.outcome == count
    assert by_slabs.mib < 250


def test_slabs_are_released_after_they_are_decoded() -> None:
    data = batch(record(MIB) * 300, 300, Compression.ZSTD)
    found = cost(lambda: [slab.num_rows for slab in slabs(data)])
    assert sum(found.outcome) == 300
    assert max(found.outcome) <= 16
    assert found.seconds < 5
    assert found.mib < 200


@pytest.mark.parametrize("codec", SOME)
def test_record_larger_than_a_slab_is_read(codec: Compression) -> None:
    data = batch(TINY + record(33 * MIB) + TINY, 3, codec)
    found = cost(lambda: decoded(data))
    assert [value.as_py() and len(value.as_py()) for value in found.outcome["value"]] == [None, 33 * MIB, None]
    assert found.mib < 330


def test_header_memory_is_proportional_to_header_bytes() -> None:
    found = cost(lambda: decoded(batch(record(0, 2**18), 1, Compression.ZSTD), include_headers=True))
    assert len(found.outcome["headers"][0]) == 2**18
    assert found.seconds < 3
    assert found.mib < 150
    many = batch(record(0, 2**15) * 48, 48, Compression.ZSTD)
    by_rows = cost(lambda: decoded(many, include_headers=True)["headers"].combine_chunks().value_lengths().to_pylist())
    assert by_rows.outcome == [2**15] * 48
    assert by_rows.seconds < 8
    assert by_rows.mib < 250


def test_header_count_above_the_limit_is_refused() -> None:
    data = batch(record(0, 2**19 + 1), 1, Compression.ZSTD)
    refusal(data, "a record has 524289 headers", seconds=1, mib=50, include_headers=True)
    assert decoded(data).num_rows == 1


def test_arrow_batch_stays_within_arrow_offset_limits() -> None:
    data = build_batch([NewRecord(None, bytes(150))] * 9, compression=Compression.ZSTD)
    with small_slabs(), patch.object(decode, "LARGEST_BYTES", 1000):
        assert sum(slab.num_rows for slab in slabs(data)) == 9
    with patch.object(decode, "LARGEST_BYTES", len(data) - 1), pytest.raises(DecompressedTooLarge, match="fetch fewer"):
        decoded(data)


@contextmanager
def small_slabs(header_rows: int = 1) -> Iterator[None]:
    """Lower the thresholds so that little data takes the paths of much data."""
    with (
        patch.object(decode, "_SLAB_BYTES", SMALL_SLABS),
        patch.object(decode, "_ROWS_AT_ONCE", 3),
        patch.multiple(header_column, _FEWEST_ROWS_IN_STEP=header_rows, _MOST_HEADERS=6),
    ):
        yield


BATCHES: Final = st.lists(st.tuples(RECORDS, st.sampled_from(Compression)), min_size=1, max_size=4)


def laid(batches: list[tuple[list[NewRecord], Compression]]) -> bytes:
    data, offset = b"", 0
    for records, codec in batches:
        data += build_batch(records, base_offset=offset, compression=codec)
        offset += len(records)
    return data


@given(BATCHES, st.sampled_from([1, 2, 64]), st.integers(0, 50), st.integers(0, 100))
@examples(60)
def test_slabs_yield_the_same_rows_as_one_decode(
    batches: list[tuple[list[NewRecord], Compression]], header_rows: int, first_offset: int, width: int
) -> None:
    data = laid(batches)
    options = {"include_headers": True, "first_offset": first_offset, "end_offset": first_offset + width}
    expected = decoded(data, **options)
    with small_slabs(header_rows):
        found = list(slabs(data, **options))
        whole = decoded(data, **options)
    whole.validate(full=True)
    assert whole.equals(expected)
    assert sum((slab.to_pylist() for slab in found), []) == expected.to_pylist()
    assert all(0 < slab.num_rows <= 3 for slab in found)


def test_length_varint_may_cross_a_slab_boundary() -> None:
    for size in range(100, SMALL_SLABS):
        records = [NewRecord(None, bytes(each)) for each in (size, 9000, 90, size, 90)]
        data = build_batch(records, compression=Compression.ZSTD)
        with small_slabs():
            assert decoded(data)["value"].to_pylist() == [each.value for each in records]


@pytest.mark.parametrize("rows_in_step", [1, 64])
@pytest.mark.parametrize("fields", [b"\x03\x00", b"\x06k\x00", b"\x02k\x04", b"\xfe\xff\xff\xff\x0f\x00"])
def test_impossible_header_length_is_refused(rows_in_step: int, fields: bytes) -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + fields
    data = batch(bytes([2 * len(body)]) + body, 1, Compression.NONE)
    with patch.object(header_column, "_FEWEST_ROWS_IN_STEP", rows_in_step):
        with pytest.raises(InvalidBatch, match="key, value or header extends beyond its record|header has no key"):
            decoded(data, include_headers=True)


@given(RECORDS, st.sampled_from(CODECS), st.integers(-2, 2), st.binary(max_size=3), st.data())
@examples(120)
def test_slabs_refuse_the_same_damage_as_one_decode(
    records: list[NewRecord], codec: Compression, more: int, tail: bytes, data: st.DataObject
) -> None:
    section = bytearray(build_batch(records)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    hostile = batch(bytes(section) + tail, max(1, len(records) + more), codec)
    expected = None
    with contextlib.suppress(InvalidBatch):
        expected = decoded(hostile, include_headers=True)
    try:
        with small_slabs(header_rows=2):
            found = decoded(hostile, include_headers=True)
    except InvalidBatch:
        assert expected is None
    else:
        assert found.equals(expected)


# A decompression bomb is reported once and at a bounded cost


SOURCE_BOMBS: Final = {
    "surplus": (TINY, 1),
    "zeros": (b"", 1),
    "huge-record": (b"\xfe\xff\xff\xff\x0f", 1),
    "more-records": (TINY, 2**31 - 1),
}


@pytest.mark.parametrize("codec", CODECS)
def test_source_reports_a_decompression_bomb_once(codec: Compression, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as kafka:
        for name, (first, count) in SOURCE_BOMBS.items():
            kafka.create_topic(name, config={"max.message.bytes": str(8 * MIB)})
            at, data = TopicPartition(name, 0), bytearray(bomb(codec, first, 64, count))
            end = kafka._call(lambda cluster, at=at, data=data: _append(cluster, at, data))
            piece = OffsetRange(name, 0, 0, end)
            options = batch_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name})
            fetches = len(kafka.requests(api="Fetch"))
            found = cost(lambda piece=piece, options=options: _refusal(piece, options))
            assert found.outcome.startswith(f"A record batch of {at} between offsets 0 and {end} cannot be read: ")
            assert "Read it with another client" in found.outcome
            assert len(kafka.requests(api="Fetch")) == fetches + 1
            assert found.seconds < 6
            assert found.mib < 500
    # Clients of earlier tests in this process may log when their idle connections are due.
    assert [each.getMessage() for each in caplog.records if not each.name.startswith("kafka.")] == []


def _append(cluster: Any, at: TopicPartition, data: bytearray) -> int:
    """Append a batch to the log without a produce request, which would be refused; return the log end offset."""
    log = cluster.logs.get(at, cluster.now_ms)
    log.append_as_leader(data, now_ms=cluster.now_ms, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    cluster.logs.appended(at)
    return int(log.log_end_offset)


def _refusal(piece: OffsetRange, options: Any) -> str:
    with pytest.raises(BrokerError) as refused:
        list(read_range(piece, options))
    return str(refused.value)
