"""The codecs: both snappy forms, the lz4 frames that Java requires, and limits against decompression bombs."""

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidBatch
from broker_core.records.compression import Compression, compress, decompress, decompress_into
from tests.support.examples import examples

PACKED = [codec for codec in Compression if codec]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("limit_bytes", [None, 200_000])
@given(data=st.binary(max_size=300), times=st.integers(1, 300))
@examples(25)
def test_round_trip(codec: Compression, limit_bytes: int | None, data: bytes, times: int) -> None:
    plain = data * times
    for view in (plain, bytearray(plain), memoryview(plain)):
        assert decompress(codec, compress(codec, view), limit_bytes) == plain


@pytest.mark.parametrize("codec", list(Compression))
def test_section_is_decompressed_into_given_memory_or_does_not_fit(codec: Compression) -> None:
    plain = b"some words, again and again. " * 5000
    packed, space = compress(codec, plain), bytearray(b"." * (len(plain) + 10))
    assert decompress_into(codec, packed, memoryview(space)[4:]) == len(plain)
    assert bytes(space) == b"...." + plain + b"......"
    for too_small in (len(plain) - 1, 3, 0):
        assert decompress_into(codec, packed, memoryview(space)[:too_small]) is None
    if codec:
        with pytest.raises(InvalidBatch):
            decompress_into(codec, packed[:-30], memoryview(space))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_compression_agrees_with_arrow(codec: Compression) -> None:
    plain = b"some words, again and again. " * 5000
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, codec.name.lower()) as stream:
        stream.write(plain)
    assert decompress(codec, packed.getvalue().to_pybytes()) == plain
    with pa.CompressedInputStream(pa.py_buffer(compress(codec, plain)), codec.name.lower()) as reader:
        assert reader.read() == plain


def test_raw_snappy_of_librdkafka_is_read() -> None:
    plain = b"abc" * 50_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain


def test_snappy_is_written_in_xerial_blocks() -> None:
    plain = bytes(range(256)) * 250
    framed = compress(Compression.SNAPPY, plain)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    size = int.from_bytes(framed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + size])) == plain[: 32 * 1024]


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses linked blocks: bit 5 of the frame's flags must be set."""
    framed = compress(Compression.LZ4, b"x" * 200_000)
    assert framed.startswith(b"\x04\x22\x4d\x18")
    assert framed[4] & 0x20


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [10_000_000, 1_000_001])
def test_decompression_bomb_is_refused(codec: Compression, size: int) -> None:
    bomb = compress(codec, bytes(size))
    with pytest.raises(InvalidBatch, match="limit of 1000000 bytes"):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", list(Compression))
def test_output_of_exactly_the_limit_is_allowed(codec: Compression) -> None:
    assert len(decompress(codec, compress(codec, bytes(1_000_000)), 1_000_000)) == 1_000_000


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("limit_bytes", [None, 1_000_000])
@pytest.mark.parametrize("cut", [0, 3, 9, -3])
def test_truncated_or_foreign_bytes_are_refused(codec: Compression, limit_bytes: int | None, cut: int) -> None:
    packed = compress(codec, b"0123456789" * 100)
    with pytest.raises(InvalidBatch, match=codec.name.lower()):
        decompress(codec, packed[:cut], limit_bytes)
    with pytest.raises(InvalidBatch, match=codec.name.lower()):
        decompress(codec, b"\xffthis was never compressed", limit_bytes)


@pytest.mark.parametrize(("codec", "level"), [(Compression.GZIP, 1), (Compression.LZ4, 9), (Compression.ZSTD, 10)])
def test_compression_levels_are_applied(codec: Compression, level: int) -> None:
    plain = b"".join(b"%d %d;" % (index % 89, index * index) for index in range(30_000))
    assert decompress(codec, compress(codec, plain, level)) == plain
    assert len(compress(codec, plain, level)) != len(compress(codec, plain))
