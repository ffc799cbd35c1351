"""Check what the leader finds wrong with the records of a produced batch (facts C.1 rows 16 and 17)."""

import struct

import pytest

from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.records.header import BatchHeader
from broker_core.records.validation import SMALL_BATCH_RECORDS, validate_records

ALL_CODECS = pytest.mark.parametrize("codec", list(Compression))


def errors_of(data: bytes, *, require_keys: bool = False, full: bool | None = None) -> list[tuple[int, str]]:
    return validate_records(data, 0, BatchHeader.parse(data), require_keys=require_keys, full=full)


@ALL_CODECS
def test_a_good_batch_has_no_errors(codec: Compression) -> None:
    data = build_batch([NewRecord(b"k", b"v", (("h", None),), 1)] * 100, compression=codec)
    for full in (None, True, False):
        assert errors_of(data, require_keys=True, full=full) == []


@ALL_CODECS
def test_each_record_without_a_needed_key_is_named(codec: Compression) -> None:
    records = [NewRecord(b"", b"v"), NewRecord(None, b"v"), NewRecord(b"k", None), NewRecord(None, None)]
    data = build_batch(records, compression=codec)
    assert errors_of(data) == []
    assert [index for index, _ in errors_of(data, require_keys=True)] == [1, 3]


@ALL_CODECS
def test_keys_are_looked_for_beyond_the_small_batch(codec: Compression) -> None:
    records = [NewRecord(b"k", b"v")] * 200 + [NewRecord(None, b"v")]
    assert [index for index, _ in errors_of(build_batch(records, compression=codec), require_keys=True)] == [200]


def test_wrong_offset_deltas_are_named() -> None:
    data = build_batch([NewRecord(b"k", b"v")] * 3, offset_deltas=[0, 2, 2])
    assert errors_of(data) == [(1, "offset delta is 2, expected 1")]


@pytest.mark.parametrize(("count", "last_delta"), [(0, -1), (2, 2), (4, 2), (-1, 2), (3, 3)])
def test_the_count_must_equal_the_span(count: int, last_delta: int) -> None:
    data = bytearray(build_batch([NewRecord(b"k", b"v")] * 3))
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">i", data, 23, last_delta)
    assert len(errors_of(bytes(data))) == 1


def test_a_large_batch_is_walked_whole_only_when_asked() -> None:
    size = SMALL_BATCH_RECORDS + 10
    data = build_batch([NewRecord(b"k", b"v")] * size, offset_deltas=[*range(size - 2), 5, size - 1])
    assert errors_of(data) == []
    assert [index for index, _ in errors_of(data, full=True)] == [size - 2]


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_bytes_of_another_codec_are_an_error_not_an_exception(codec: Compression) -> None:
    data = bytearray(build_batch([NewRecord(b"k", b"v")]))
    data[22] = codec
    [(index, message)] = errors_of(bytes(data))
    assert index == 0
    assert codec.name.lower() in message


def test_an_unknown_codec_is_an_error_not_an_exception() -> None:
    data = bytearray(build_batch([NewRecord(b"k", b"v")]))
    data[22] = 7
    assert "compression code 7" in errors_of(bytes(data))[0][1]
