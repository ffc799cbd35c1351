"""Joined bytes, compared with Python's own slices, above all at the ends of buffers, where views are built directly."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.codec import columns as codec_columns
from spark_eos.codec.columns import ByteColumn, join
from spark_eos.codec.varints import encode_varints

VALUES = st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=20)
KINDS = st.sampled_from([pa.binary(), pa.large_binary()])


@given(VALUES, VALUES, st.integers(0, 5), KINDS, KINDS)
def test_values_and_pieces_alternate_in_the_output(
    first: Any, second: Any, skipped: int, kind: Any, other: Any
) -> None:
    rows = max(min(len(first), len(second)) - skipped, 1)
    columns = [
        pa.array(values, given_kind).slice(min(skipped, len(values) - rows), rows)
        for values, given_kind in ((first, kind), (second, other))
    ]
    [numbers] = encode_varints(np.arange(rows))
    joined = join([ByteColumn.of(columns[0]), numbers, ByteColumn.of(columns[1])])
    pairs = zip(*(column.to_pylist() for column in columns), strict=True)
    expected = [(one or b"", bytes([2 * row]), other or b"") for row, (one, other) in enumerate(pairs)]
    assert joined.to_pylist() == [piece for row in expected for piece in row]
    assert join([ByteColumn.of(columns[1])], large=True).to_pylist() == [row[2] for row in expected]


@given(VALUES, st.data())
def test_rows_are_joined_in_any_order(values: Any, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30))
    column = ByteColumn.of(pa.array(values, pa.binary())).pick(np.array(order, np.int64))
    assert join([column]).to_pylist() == [values[place] or b"" for place in order]


@given(VALUES)
def test_buffer_of_many_pages_is_joined(values: Any) -> None:
    """A view's offset has 31 bits, so a larger buffer has several pages; here a page has 16 bytes instead of 1 GiB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec_columns, "_PAGE_BITS", 4)
        patch.setattr(codec_columns, "_PAGE_MASK", 15)
        column = ByteColumn.of(pa.array(values, pa.binary()))
        assert join([column, column]).to_pylist() == [value or b"" for value in values for _ in range(2)]


def test_columns_without_bytes_are_joined() -> None:
    for array in (pa.nulls(2).cast(pa.binary()), pa.array([b"", None]), pa.array([b"", b""], pa.large_binary())):
        assert join([ByteColumn.of(array)]).to_pylist() == [b"", b""]
    assert join([ByteColumn.of(pa.array([], pa.binary()))]).to_pylist() == []
