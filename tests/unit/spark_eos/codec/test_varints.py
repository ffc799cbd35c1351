"""Vectorized varints, compared with the broker's, which are written one at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidBatch
from broker_core.records.varint import append_varint
from spark_eos.codec.columns import join, merge
from spark_eos.codec.varints import InlineBytes, encode_varints, read_varints, varint_size, varint_sizes
from tests.support.examples import examples

POWERS = [sign * 2**power for power in range(63) for sign in (1, -1)]
NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200), st.sampled_from(POWERS))
COLUMNS = st.lists(NUMBERS, min_size=1, max_size=40)


def batched(items: list[bytes], size: int) -> list[list[bytes]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def one_at_a_time(values: list[int]) -> list[bytes]:
    encoded = []
    for value in values:
        target = bytearray()
        append_varint(target, value)
        encoded.append(bytes(target))
    return encoded


@given(COLUMNS)
def test_pieces_are_encoded_varints(values: list[int]) -> None:
    column = np.array(values, np.int64)
    pieces = encode_varints(column)
    joined = join(pieces).to_pylist()
    assert [b"".join(each) for each in batched(joined, len(pieces))] == one_at_a_time(values)
    sizes = [len(data) for data in one_at_a_time(values)]
    assert varint_sizes(column).tolist() == [varint_size(value) for value in values] == sizes
    assert max(sizes) <= sum(column.longest for column in pieces)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_varint_pieces_are_joined_by_row(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    empty = InlineBytes(np.zeros(len(pairs), np.uint64), np.zeros(len(pairs), np.int64), 0)
    columns = [*encode_varints(first), empty, *encode_varints(second), empty]
    expected = b"".join(one_at_a_time([number for pair in pairs for number in pair]))
    for given_columns in (columns, merge(columns)):
        assert b"".join(join(given_columns).to_pylist()) == expected
    assert all(column.sizes.max() <= column.longest <= 8 for column in merge(columns))


@given(COLUMNS)
@examples(200)
def test_encoded_varints_are_read_back(values: list[int]) -> None:
    encoded = one_at_a_time(values)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum([len(item) for item in encoded])
    starts = ends - [len(item) for item in encoded]
    found, after = read_varints(data, starts)
    assert found.tolist() == values
    assert after.tolist() == ends.tolist()


def test_unterminated_varint_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="longer than 10"):
        read_varints(np.full(20, 0xFF, np.uint8), np.array([0, 3]))
    with pytest.raises(IndexError):
        read_varints(np.full(3, 0xFF, np.uint8), np.array([0]))
