"""Arrow columns of bytes of any type as one array with lengths, and bytes as Arrow columns.

Slices, chunks, views and dictionaries are converted here, so the rest of the package does not need to handle them.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_eos.codec.arrow_numbers import arrow_numbers, valid_of
from spark_eos.codec.varints import Ints, Octets
from spark_eos.errors import EosKafkaError

NULL_LENGTH: Final = -1
# Of a record: the start and end of its key, and of its value.
_FIELDS: Final = 4
_LARGE_TYPES: Final = frozenset({pa.large_binary(), pa.large_string()})


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


def lengths_of(array: Any) -> Ints:
    """Return the length in bytes of each value of a binary array, -1 for null."""
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
