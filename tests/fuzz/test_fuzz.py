"""Give every target a share of hostile inputs, and the attacks that have names one by one."""

import struct
import tracemalloc
from collections.abc import Sequence

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.records.compression import Compression
from broker_core.records.header import HEADER, HEADER_SIZE
from broker_core.wire.versions import SERVED
from tests.fuzz import seeds
from tests.fuzz.targets import BY_NAME, TARGETS, Target

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
_INTERESTING_WORDS = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00" * 4, b"\x00\x0f\xff\xff")
# What an attack of a few bytes may make the process hold, beside the limits that a user sets.
_MOST_BYTES = 48 << 20


@st.composite
def hostile(draw: st.DrawFn, good: Sequence[bytes]) -> bytes:
    """Spoil a good input in a few places, or make one up."""
    if not good or draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(data)))
        how = draw(st.integers(0, 5))
        if how == 0:
            data[place:place + 1] = bytes([draw(st.sampled_from(_INTERESTING))])
        elif how == 1:
            data[place:place + 1] = bytes([draw(st.integers(0, 255))])
        elif how == 2:
            word = draw(st.sampled_from(_INTERESTING_WORDS))
            data[place:place + len(word)] = word
        elif how == 3:
            del data[place:place + draw(st.integers(1, 20))]
        elif how == 4:
            data[place:place] = draw(st.binary(min_size=1, max_size=20))
        else:
            other = draw(st.sampled_from(good))
            data[place:] = other[draw(st.integers(0, len(other))):]
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_good_inputs_are_taken(target: Target) -> None:
    # Of the tokens some are refused in the end, of the texts each is good for one reader only.
    taken = [target.try_one(data) for data in target.seeds()]
    assert any(taken)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_but_the_declared_refusals(target: Target) -> None:
    @settings(max_examples=150, deadline=None)
    @given(hostile(target.seeds()))
    def try_all(data: bytes) -> None:
        target.try_one(data)

    try_all()


def peak_bytes(target: str, data: bytes) -> int:
    """Measure what one input makes the process hold at most."""
    tracemalloc.start()
    try:
        BY_NAME[target].try_one(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def batch(payload: bytes, *, count: int, codec: Compression = Compression.NONE) -> bytes:
    return HEADER.pack(
        0, HEADER_SIZE - 12 + len(payload), 0, 2, 0, int(codec), max(count - 1, 0), 0, 0, -1, -1, -1, count) + payload


def frame(key: int, version: int, body: bytes, length: int | None = None) -> bytes:
    content = struct.pack(">hhi", key, version, 1) + body
    return struct.pack(">i", len(content) if length is None else length) + content


NAMED_ATTACKS = {
    "a frame of 2 GiB": ("frames", frame(3, 1, b"", length=2**31 - 1)),
    "a frame of a negative length": ("frames", frame(3, 1, b"", length=-5)),
    "an array of 2^31 topics": ("frames", frame(3, 1, b"\xff\xff" + b"\x7f\xff\xff\xff")),
    "a million arrays of nothing": ("frames", frame(1, 4, b"\xff\xff" + struct.pack(
        ">iiiib", -1, 0, 0, 0, 0) + struct.pack(">i", 100_000) + (b"\x00\x01t" + struct.pack(">i", 0)) * 100_000)),
    "a compact array of 2^32 entries": ("frames", frame(3, 12, b"\x00\x01a\x00" + b"\xff\xff\xff\xff\x0f")),
    "a string of 2^31 bytes": ("frames", frame(3, 12, b"\x00\x01a\x00\x02" + b"\x00" * 16 + b"\xff\xff\xff\xff\x07")),
    "a batch that says 2^31 records": ("records", batch(b"\x00" * 50, count=2**31 - 1)),
    "a record that says 2^31 headers": ("records", batch(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", count=1)),
    "a zstd bomb": ("records", batch(bytes(cramjam.zstd.compress(bytes(64 << 20))), count=1, codec=Compression.ZSTD)),
    "a gzip bomb": ("records", batch(bytes(cramjam.gzip.compress(bytes(64 << 20))), count=1, codec=Compression.GZIP)),
    "an lz4 bomb": ("records", batch(bytes(cramjam.lz4.compress(bytes(64 << 20))), count=1, codec=Compression.LZ4)),
    "a snappy bomb": (
        "records", batch(bytes(cramjam.snappy.compress_raw(bytes(64 << 20))), count=1, codec=Compression.SNAPPY)),
    "a snapshot of 2^31 producers": ("producer snapshot", b"\x00\x01" + b"\x00" * 4 + b"\x7f\xff\xff\xff"),
    "a journal with 2^31 members": (
        "group journal", bytes([8]) + b"\x00\x03" + b"\x00\x01c" + b"\x00" * 4 + b"\xff\xff" * 2 + b"\x00" * 8
        + b"\x7f\xff\xff\xff"),
    "brackets a hundred thousand deep": ("options", b"[" * 100_000),
    "decisions of brackets": ("decisions", b"[" * 100_000),
}


@pytest.mark.parametrize("name", NAMED_ATTACKS)
def test_an_attack_costs_little_memory(name: str) -> None:
    target, data = NAMED_ATTACKS[name]
    assert peak_bytes(target, data) < _MOST_BYTES + 40 * len(data)


def test_every_kind_of_request_is_a_seed() -> None:
    keys = {struct.unpack_from(">h", data, 4)[0] for data in seeds.frames()}
    assert len(keys) >= len(SERVED) - 4
