"""Arrow columns of bytes of any type as one array with lengths, and bytes as Arrow columns.

Slices, chunks, views and dictionaries are converted here, so the rest of the package does not need to handle them.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_eos.codec.arrow_numbers import arrow_numbers, valid_of
from spark_eos.codec.varints import WORD_BYTES, InlineBytes, Ints, Octets, Words
from spark_eos.errors import EosKafkaError

NULL_LENGTH: Final = -1
# Of a record: the start and end of its key, and of its value.
_FIELDS: Final = 4
_LARGE_TYPES: Final = frozenset({pa.large_binary(), pa.large_string()})
_VIEW: Final = np.dtype("V16")
_VIEW_BYTES: Final = 16
# The length, which precedes the bytes in an inline view.
_VIEW_LENGTH_BYTES: Final = 4
_LARGEST_INLINE: Final = 12
_HALF: Final = np.uint64(32)
# A view has 31-bit offsets, so a larger buffer is listed as several that begin a page apart.
_PAGE_BITS: Final = 30
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1


class EncodeError(EosKafkaError, ValueError):
    """A column that cannot become records, with what to change."""


def one_array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return column


def binary_column(column: Any, name: str) -> Any:
    """Return the column as a binary or large_binary array, copying only if its type requires it."""
    array = one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return array.cast(pa.binary())
    wanted = pa.large_binary() if array.type in _LARGE_TYPES else pa.binary()
    if array.type == wanted:
        return array
    try:
        if array.type in (pa.string_view(), pa.binary_view()):
            return array.cast(pa.large_binary())
        if array.type in (pa.string(), pa.large_string()) or pa.types.is_fixed_size_binary(array.type):
            return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"The {name} column of type {array.type} cannot be read as bytes: {error}") from None
    raise EncodeError(f"The {name} column is of type {array.type}", remedy="Cast it to string or binary")


def as_text(array: Any) -> Any:
    """Return a binary or large_binary array as text; invalid UTF-8 becomes U+FFFD, as in the Java client.

    A string of Spark may hold any bytes, and so may a header's key in Kafka.
    """
    kind = pa.large_string() if pa.types.is_large_binary(array.type) else pa.string()
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        distinct = array.dictionary_encode()
        texts = [each.decode(errors="replace") for each in distinct.dictionary.to_pylist()]
        return pa.array(texts, kind).take(distinct.indices)


def texts_of(column: Any, name: str) -> list[str]:
    """Return the values of a column of strings without nulls."""
    texts: list[str] = as_text(binary_column(column, name)).to_pylist()
    return texts


def lengths_of(array: Any) -> Ints:
    offsets = _offsets(array)
    lengths: Ints = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    if array.null_count:
        lengths[~valid_of(array)] = NULL_LENGTH
    return lengths


def bounds_of(array: Any) -> tuple[Ints, Any]:
    """Return the value offsets of a binary array (one more than its rows) and the data buffer they point into."""
    return _offsets(array).astype(np.int64), array.buffers()[2]


def _offsets(array: Any) -> Any:
    if not len(array):
        return np.zeros(1, np.int64)
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array) + 1]


class BufferView:
    """Raw bytes as a numpy array and as an Arrow buffer, so that fields are copied once, in C++; at most 2 GiB.

    A binary array is a buffer and ascending offsets into it. With the offsets `key start, key end, value start, value
    end` of every record, every fourth element is a key and the second after it a value; the others, the bytes in
    between, are ignored.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.octets: Octets = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)

    def take(self, bounds: npt.NDArray[np.signedinteger], first_lengths: Ints, second_lengths: Ints) -> tuple[Any, Any]:
        """Return two binary arrays, of the fields between columns 0 and 1 of `bounds` and between 2 and 3.

        `bounds` ascends in reading order; a length of -1 makes the value null.
        """
        rows = len(bounds)
        if not rows:
            return pa.nulls(0, pa.binary()), pa.nulls(0, pa.binary())
        offsets = bounds.astype(np.int32, copy=False).ravel()
        laid = pa.Array.from_buffers(pa.binary(), _FIELDS * rows - 1, [None, pa.py_buffer(offsets), self._buffer])
        places = np.arange(0, _FIELDS * rows, _FIELDS, dtype=np.int32)
        return laid.take(_places(places, first_lengths)), laid.take(_places(places + 2, second_lengths))


def _places(places: Any, lengths: Ints) -> Any:
    present = lengths >= 0
    return arrow_numbers(places, None if present.all() else present)


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

    Each column gets a view of each row: 16 bytes that contain the place of its bytes or, up to 12 bytes, the bytes.
    That is the layout of Arrow's binary_view type, and casting such an array to binary copies everything once, in C++
    and in order. Arrow's own join of columns takes several times as long for the same work. With `large`, which is
    required for 2 GiB and more, the array is large_binary.
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
