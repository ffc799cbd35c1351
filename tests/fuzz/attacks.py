"""Hostile inputs: named attacks, and valid inputs with random damage."""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import crc32c
from hypothesis import strategies as st

from broker_core.records.compression import Compression
from broker_core.records.header import ATTRIBUTES_POSITION, HEADER, HEADER_SIZE

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
_INTERESTING_WORDS = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00" * 4, b"\x00\x0f\xff\xff")


@st.composite
def hostile(draw: st.DrawFn, good: Sequence[bytes]) -> bytes:
    """Damage a valid input in a few places, or draw random bytes."""
    if not good or draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(data)))
        how = draw(st.integers(0, 5))
        if how == 0:
            data[place : place + 1] = bytes([draw(st.sampled_from(_INTERESTING))])
        elif how == 1:
            data[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif how == 2:
            word = draw(st.sampled_from(_INTERESTING_WORDS))
            data[place : place + len(word)] = word
        elif how == 3:
            del data[place : place + draw(st.integers(1, 20))]
        elif how == 4:
            data[place:place] = draw(st.binary(min_size=1, max_size=20))
        else:
            other = draw(st.sampled_from(good))
            data[place:] = other[draw(st.integers(0, len(other))) :]
    return bytes(data)


def batch(payload: bytes, *, count: int, codec: Compression = Compression.NONE) -> bytes:
    """Return a valid batch header for `count` records, followed by any payload."""
    fields = [0, HEADER_SIZE - 12 + len(payload), 0, 2, 0, int(codec), max(count - 1, 0), 0, 0, -1, -1, -1, count]
    fields[4] = crc32c.crc32c(payload, crc32c.crc32c(HEADER.pack(*fields)[ATTRIBUTES_POSITION:]))
    return HEADER.pack(*fields) + payload


def frame(key: int, version: int, body: bytes, length: int | None = None) -> bytes:
    """Return the frame of a request; `length` is a false length."""
    content = struct.pack(">hhi", key, version, 1) + body
    return struct.pack(">i", len(content) if length is None else length) + content


MALFORMED_FRAMES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "a frame of 2 GiB": frame(3, 1, b"", length=2**31 - 1),
        "a frame of a negative length": frame(3, 1, b"", length=-5),
        "an array of 2^31 topics": frame(3, 1, b"\xff\xff" + b"\x7f\xff\xff\xff"),
        "a compact array of 2^32 entries": frame(3, 12, b"\x00\x01a\x00" + b"\xff\xff\xff\xff\x0f"),
        "a string of 2^31 bytes": frame(3, 12, b"\x00\x01a\x00\x02" + b"\x00" * 16 + b"\xff\xff\xff\xff\x07"),
    }
)
# A valid Fetch: as many topics as the count, each without partitions.
A_MILLION_ARRAYS: Final = frame(
    1,
    4,
    b"\xff\xff"
    + struct.pack(">iiiib", -1, 0, 0, 0, 0)
    + struct.pack(">i", 1_000_000)
    + (b"\x00\x01t" + struct.pack(">i", 0)) * 1_000_000,
)
