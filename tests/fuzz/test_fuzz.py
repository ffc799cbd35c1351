"""A limited number of hostile inputs for every target, and each of the named attacks."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given

from broker_core.broker.apis import SERVED
from broker_core.records.compression import Compression
from tests.fuzz import seeds
from tests.fuzz.attacks import A_MILLION_ARRAYS, MALFORMED_FRAMES, batch, hostile
from tests.fuzz.peak_memory import peak_bytes
from tests.fuzz.targets import TARGETS, Target
from tests.support.examples import examples

# The memory that an attack of a few bytes may use, apart from the limits that a user sets.
_MOST_BYTES = 48 << 20


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_inputs_are_accepted(target: Target) -> None:
    # Some tokens are refused in the end, and each text is valid for one parser only.
    taken = [target.try_one(data) for data in target.seeds()]
    assert any(taken)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_declared_errors_are_raised(target: Target) -> None:
    @examples(150)
    @given(hostile(target.seeds()))
    def try_all(data: bytes) -> None:
        target.try_one(data)

    try_all()


NAMED_ATTACKS = {name: ("frames", data) for name, data in MALFORMED_FRAMES.items()} | {
    "a million empty arrays": ("frames", A_MILLION_ARRAYS),
    "a batch header with 2^31 records": ("records", batch(b"\x00" * 50, count=2**31 - 1)),
    "a record with 2^31 headers": ("records", batch(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", count=1)),
    "a snapshot of 2^31 producers": ("producer snapshot", b"\x00\x01" + b"\x00" * 4 + b"\x7f\xff\xff\xff"),
    "a journal with 2^31 members": (
        "group journal",
        bytes([8]) + b"\x00\x03" + b"\x00\x01c" + b"\x00" * 4 + b"\xff\xff" * 2 + b"\x00" * 8 + b"\x7f\xff\xff\xff",
    ),
    "a hundred thousand nested brackets": ("options", b"[" * 100_000),
    "brackets that nothing closes, and a backslash": ("options", b"[" * 100_000 + b"\\"),
    "a decision of nested brackets": ("decisions", b"[" * 100_000),
}


BOMBS: dict[Compression, Callable[[bytes], Any]] = {
    Compression.ZSTD: cramjam.zstd.compress,
    Compression.GZIP: cramjam.gzip.compress,
    Compression.LZ4: cramjam.lz4.compress,
    Compression.SNAPPY: cramjam.snappy.compress_raw,
}


@pytest.mark.parametrize("name", NAMED_ATTACKS)
def test_attack_costs_little_memory(name: str) -> None:
    target, data = NAMED_ATTACKS[name]
    assert peak_bytes(target, data) < _MOST_BYTES + 40 * len(data)


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
def test_bomb_costs_little_memory(codec: Compression) -> None:
    data = batch(bytes(BOMBS[codec](bytes(64 << 20))), count=1, codec=codec)
    assert peak_bytes("records", data) < _MOST_BYTES + 40 * len(data)


def test_every_request_type_is_a_seed() -> None:
    keys = {struct.unpack_from(">h", data, 4)[0] for data in seeds.frames()}
    assert len(keys) >= len(SERVED) - 4
