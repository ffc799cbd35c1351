"""The checksums of rows: they equal a plain hash of one row at a time, which decisions of every version hold."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.codec.row_checksum import hash_rows, sum_of
from tests.support.examples import examples
from tests.support.function_calls import count_calls

Header = tuple[str, bytes | None]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LONG_BYTES = 512


@dataclass(frozen=True)
class Row:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


def arrays(rows: Sequence[Row], kind: pa.DataType | None = None) -> dict[str, Any]:
    kind = kind or pa.binary()
    headers = [None if row.headers is None else [{"key": k, "value": v} for k, v in row.headers] for row in rows]
    return {
        "value": pa.array([row.value for row in rows], pa.binary()).cast(kind),
        "key": pa.array([row.key for row in rows], pa.binary()).cast(kind),
        "headers": pa.array(headers, HEADERS),
        "partition": pa.array([row.partition for row in rows], pa.int64()),
        "timestamp_ms": pa.array([row.timestamp_ms for row in rows], pa.int64()),
    }


def hashes(rows: Sequence[Row]) -> list[int]:
    return hash_rows(**arrays(rows)).tolist()


def checksum(rows: Sequence[Row]) -> int:
    return sum_of(hash_rows(**arrays(rows)))


# The hash of one row, as in decisions of every version.

_MASK = 2**64 - 1


class OneHash:
    """A hash of words and bytes in sequence."""

    def __init__(self) -> None:
        self.state = 0x243F6A8885A308D3

    def word(self, word: int) -> None:
        self.state ^= word & _MASK
        self.state ^= self.state >> 32
        self.state = self.state * 0x9E3779B97F4A7C15 & _MASK
        self.state ^= self.state >> 29

    def octets(self, field: int, octets: bytes | None) -> None:
        if octets is None:
            return
        self.word(field << 56 | len(octets))
        if len(octets) >= LONG_BYTES:
            self.word(crc32c.crc32c(octets))
            return
        for start in range(0, len(octets), 8):
            self.word(int.from_bytes(octets[start : start + 8], "little"))

    def number(self, field: int, number: int | None) -> None:
        if number is not None:
            self.word(field << 56)
            self.word(number)


def plain_hash(row: Row) -> int:
    whole = OneHash()
    whole.octets(1, row.key)
    whole.octets(2, row.value)
    if row.headers:
        total = 0
        for index, (key, value) in enumerate(row.headers):
            one = OneHash()
            one.octets(6, key.encode())
            one.octets(7, value)
            one.word(index)
            total += one.state
        whole.word(3 << 56 | len(row.headers))
        whole.word(total)
    whole.number(4, row.partition)
    whole.number(5, row.timestamp_ms)
    whole.word(8 << 56)
    return whole.state


octets = st.none() | st.binary(max_size=40) | st.integers(LONG_BYTES - 9, LONG_BYTES + 9).map(lambda n: b"\xff" * n)
header_lists = st.none() | st.lists(st.tuples(st.text(max_size=9), octets), max_size=3).map(tuple)
rows_of_any_kind = st.builds(
    Row,
    octets,
    octets,
    header_lists,
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
row_lists = st.lists(rows_of_any_kind, max_size=12)


@given(row_lists)
@examples(200)
def test_vectorized_row_hash_matches_the_reference(rows: list[Row]) -> None:
    assert hashes(rows) == [plain_hash(row) for row in rows]


@pytest.mark.parametrize("longest", [12, 90, 530])
def test_rows_of_several_rounds_match_the_reference(longest: int) -> None:
    """More rows than are hashed at once, with values of all lengths in the middle of a buffer."""
    generator = np.random.default_rng(1)
    octets = generator.integers(0, 256, longest).astype(np.uint8).tobytes()
    rows = [
        Row(octets[: generator.integers(0, longest + 1)], octets[: generator.integers(0, 13)] or None)
        for _ in range(17_000)
    ]
    columns = {name: column.slice(100) for name, column in arrays(rows).items()}
    found = hash_rows(**columns)
    some = [*range(300), *generator.integers(300, 16_800, 300).tolist(), *range(16_700, 16_900)]
    assert [int(found[row]) for row in some] == [plain_hash(rows[row + 100]) for row in some]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row(None), 0xB880A225F8C33476),
        (Row(b""), 0xCD760A70F7AC2436),
        (Row(b"a"), 0xB10F851F137A5734),
        (Row(b"12345678"), 0xB0BE605272A63909),
        (Row(b"123456789", b"key"), 0xE7A7C53458396A37),
        (Row(b"v" * 511), 0xE966C60E76B55CAD),
        (Row(b"v" * 512), 0xE9684496DAC7EAA4),
        (Row(b"v", headers=()), 0xD0C1F9D89A4072E5),
        (Row(b"v", headers=(("a", b"1"), ("a", None), ("", b""))), 0x9565B9D44CFFF109),
        (Row(b"v", partition=0), 0xD518059F5A398946),
        (Row(b"v", timestamp_ms=-1), 0x7A33DACD4481374C),
        (Row(b"v" * 1000, b"k" * 600, (("h", b"x" * 700),), 7, 1_700_000_000_000), 0x154263A95C4BADA7),
    ],
)
def test_row_hash_is_stable_across_versions(row: Row, expected: int) -> None:
    """A decision may be older than the installed version of the package."""
    assert hashes([row]) == [expected]


def test_checksum_of_no_rows_is_zero() -> None:
    assert checksum([]) == 0


# Order, batches and Arrow types do not affect the sum.


@given(row_lists, st.randoms(use_true_random=False), st.integers(0, 12))
@examples(100)
def test_checksum_is_independent_of_row_order_and_chunking(rows: list[Row], chance: random.Random, cut: int) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert checksum(shuffled) == checksum(rows)
    assert (checksum(rows[:cut]) + checksum(rows[cut:])) % 2**64 == checksum(rows)


@given(row_lists, st.integers(0, 12), st.integers(0, 12))
@examples(100)
def test_slice_has_the_hashes_of_its_rows(rows: list[Row], start: int, count: int) -> None:
    sliced = {name: column.slice(start, count) for name, column in arrays(rows).items()}
    assert hash_rows(**sliced).tolist() == hashes(rows[start : start + count])


TEXTS = ["", "a", None, "12345678", "ü" * 5, "x" * 600, "123456789012345"]


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
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
def test_hash_is_independent_of_the_column_type(kind: pa.DataType) -> None:
    expected = hash_rows(value=pa.array(TEXTS), key=pa.array(TEXTS[::-1]))
    if pa.types.is_dictionary(kind):
        value, key = (pa.array(texts).cast(kind.value_type).dictionary_encode() for texts in (TEXTS, TEXTS[::-1]))
    else:
        value, key = (pa.array(texts).cast(kind) for texts in (TEXTS, TEXTS[::-1]))
    assert hash_rows(value=value, key=key).tolist() == expected.tolist()
    chunked = pa.chunked_array([value.slice(0, 2), value.slice(2)])
    assert hash_rows(value=chunked).tolist() == hash_rows(value=pa.array(TEXTS)).tolist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_hash_is_independent_of_the_integer_width(kind: pa.DataType) -> None:
    value, numbers = pa.array(["a", "b", "c"]), [0, None, 127]
    assert hash_rows(value=value, partition=pa.array(numbers, kind)).tolist() == hashes(
        [Row(b"a", partition=0), Row(b"b"), Row(b"c", partition=127)]
    )


def test_header_list_types_and_null_columns_hash_equally() -> None:
    rows = [Row(b"a", headers=(("x", b"1"), ("y", None))), Row(b"b", headers=(("x", b""), ("x", b"2")))]
    columns = arrays(rows)
    for kind in (pa.large_list(HEADERS.value_type), pa.list_(HEADERS.value_type, 2)):
        assert hash_rows(**columns | {"headers": columns["headers"].cast(kind)}).tolist() == hashes(rows)
    nulls = pa.nulls(2)
    found = hash_rows(value=columns["value"], key=nulls, headers=nulls, partition=nulls, timestamp_ms=nulls)
    assert found.tolist() == hash_rows(value=columns["value"]).tolist()


def test_entries_of_null_header_lists_are_ignored() -> None:
    """Arrow may keep the entries of a list that a mask has made null."""
    entries = pa.array([{"key": "x", "value": b"1"}, {"key": "y", "value": b"2"}], HEADERS.value_type)
    masked = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    found = hash_rows(value=pa.array(["a", "b"]), headers=masked)
    assert found.tolist() == hashes([Row(b"a"), Row(b"b", headers=(("y", b"2"),))])


@pytest.mark.parametrize("last", range(41))
def test_last_row_may_end_at_the_buffer_end(last: int) -> None:
    """The hash reads words of eight bytes; it must use no byte beyond the buffer and none before the row."""
    for first in (0, 1, 7, 8, 9):
        data = bytes(range(1, first + last + 1))
        offsets = pa.py_buffer(struct.pack("<3i", 0, first, first + last))
        # A buffer of exactly this size; Arrow rounds its own up to 64 bytes.
        column = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(data)])
        assert hash_rows(value=column).tolist() == [plain_hash(Row(data[:first])), plain_hash(Row(data[first:]))]


def test_few_rows_at_the_end_of_a_buffer_are_hashed_at_once() -> None:
    rows = [bytes([65 + at % 26]) * (at % 60) for at in range(100)]
    behind = pa.array([*rows, *[b"x" * 500] * 400], pa.binary()).slice(0, len(rows))

    def calls(column: Any) -> int:
        return count_calls(lambda: hash_rows(value=column), builtins=True)

    assert calls(pa.array(rows, pa.binary())) <= calls(behind) + 10


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40, 503, 504, 505, 510, 511, 512, 513, 1024])
def test_hash_of_a_row_is_independent_of_other_rows(size: int) -> None:
    sizes = [0, 1, 8, 40, 511, 512, 513]
    rows = [Row(bytes([65 + at]) * each) for at, each in enumerate([*sizes, size, *sizes])]
    assert hashes(rows) == [plain_hash(row) for row in rows]
