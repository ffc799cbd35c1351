"""The join of bytes from many places into one buffer, row by row, in a single copy.

Each row of the result consists of the same few columns: small fields that were just computed, and values somewhere in
Arrow's buffers. Each of them gets a view: 16 bytes that contain the place of its bytes or, up to 12 bytes, the bytes.
That is the layout of Arrow's binary_view type, and casting such an array to binary copies everything in C++ and in
order. Arrow's own join of columns takes several times as long for the same work.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_eos.codec.columns import bounds_of, lengths_of
from spark_eos.codec.varints import WORD_BYTES, InlineBytes, Ints, Words

_VIEW: Final = np.dtype("V16")
_VIEW_BYTES: Final = 16
# The length, which precedes the bytes in an inline view.
_VIEW_LENGTH_BYTES: Final = 4
_LARGEST_INLINE: Final = 12
_HALF: Final = np.uint64(32)
# A view has 31-bit offsets, so a larger buffer is listed as several that begin a page apart.
_PAGE_BITS: Final = 30
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1


class ByteColumn(NamedTuple):
    """The place of each row's bytes in a buffer, and their length, -1 for null."""

    buffer: Any
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, array: Any) -> "ByteColumn":
        """Convert a binary or large_binary array to such a column, without copying."""
        bounds, buffer = bounds_of(array)
        return cls(buffer, bounds[:-1], lengths_of(array))

    def pick(self, rows: Ints | slice) -> "ByteColumn":
        return ByteColumn(self.buffer, self.starts[rows], self.lengths[rows])


def join(columns: Sequence[InlineBytes | ByteColumn], *, large: bool = False) -> Any:
    """Return a binary array with an element for every row and column, in that order, row by row.

    With `large`, which is required for 2 GiB and more, the array is large_binary.
    """
    rows, width = len(columns[0][1]), len(columns)
    views = np.empty((rows, width, 2), np.uint64)
    buffers: list[Any] = []
    for index, column in enumerate(columns):
        if isinstance(column, InlineBytes):
            np.bitwise_or(column.sizes.view(np.uint64), column.words << _HALF, out=views[:, index, 0])
            np.right_shift(column.words, _HALF, out=views[:, index, 1])
        else:
            _write_views(views, index, column, len(buffers))
            if column.buffer is not None:
                buffers += _pages(column.buffer)
    array = pa.Array.from_buffers(pa.binary_view(), rows * width, [None, pa.py_buffer(views), *buffers])
    return array.cast(pa.large_binary() if large else pa.binary())


def merge(columns: Sequence[InlineBytes]) -> list[InlineBytes]:
    """Merge adjacent columns wherever every row's pieces fit into one word together, which saves views."""
    merged = [columns[0]]
    for column in columns[1:]:
        last = merged[-1]
        longest = last.longest + column.longest
        if longest > WORD_BYTES:
            merged.append(column)
            continue
        shifted = column.words << (last.sizes << 3).view(np.uint64)
        shifted |= last.words
        merged[-1] = InlineBytes(shifted, last.sizes + column.sizes, longest)
    return merged


def _pages(buffer: Any) -> list[Any]:
    if buffer.size <= _PAGE_MASK:
        return [buffer]
    return [buffer.slice(start) for start in range(0, buffer.size, 1 << _PAGE_BITS)]


def _write_views(views: Words, index: int, column: ByteColumn, first_buffer: int) -> None:
    lengths = column.lengths
    if not len(lengths):
        return
    shortest, longest = int(np.minimum.reduce(lengths)), int(np.maximum.reduce(lengths))
    if shortest < 0:
        lengths = np.maximum(lengths, 0)
        column = column._replace(lengths=lengths)
    views[:, index, 0] = lengths
    if longest <= 0:
        return
    if longest <= _LARGEST_INLINE:
        _write_inline(views, slice(None), index, column)
        return
    # The upper half is the offset, the lower half the number of the buffer.
    if column.buffer.size <= _PAGE_MASK:
        places = column.starts << 32
    else:
        places = (column.starts & _PAGE_MASK) << 32 | column.starts >> _PAGE_BITS
    np.add(places, first_buffer, out=views.view(np.int64)[:, index, 1])
    if shortest <= _LARGEST_INLINE:
        rows = np.flatnonzero(lengths <= _LARGEST_INLINE)
        _write_inline(views, rows, index, column.pick(rows))


def _write_inline(views: Words, rows: Ints | slice, index: int, column: ByteColumn) -> None:
    """Copy 12 bytes for each row into its view; the view's length determines how many of them count."""
    data = np.frombuffer(column.buffer, np.uint8)
    if len(data) < _VIEW_BYTES:
        data = np.concatenate([data, np.zeros(_VIEW_BYTES, np.uint8)])
    sixteens: Any = np.ndarray((len(data) - _VIEW_BYTES + 1,), _VIEW, data.data, 0, (1,))
    places = column.starts - _VIEW_LENGTH_BYTES
    outside = None
    if np.minimum.reduce(places) < 0 or np.maximum.reduce(places) >= len(sixteens):
        outside = (places < 0) | (places >= len(sixteens))
        places[outside] = 0
    views.view(_VIEW)[rows, index, 0] = sixteens[places]
    views.view(np.uint32)[rows, index, 0] = column.lengths
    if outside is None:
        return
    # Bytes near the ends of the buffer cannot be read that way. Apart from empty values these are few.
    for row in np.flatnonzero(outside & (column.lengths > 0)).tolist():
        start, length = int(column.starts[row]), int(column.lengths[row])
        place = row if isinstance(rows, slice) else int(rows[row])
        views[place, index].view(np.uint8)[_VIEW_LENGTH_BYTES:][:length] = data[start : start + length]
