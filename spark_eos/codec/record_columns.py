"""The columns of records, and the bytes of some rows of them.

A record is `length attributes timestamp_delta offset_delta key_length key value_length value header_count headers`, and
nearly all of its small fields are varints. Fields that do not depend on the batch are computed once for all rows; the
deltas, which do, are given for the rows to be encoded.

A record without headers ends in a zero byte. That byte is written in front of the next record instead, which saves a
piece in the join; the first record's byte of a batch is then skipped and the last one's added.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker_core.types import counted
from spark_eos.codec.arrow_numbers import numbers_of
from spark_eos.codec.columns import ByteColumn, EncodeError, binary_column, join, merge, one_array
from spark_eos.codec.header_column import EncodedHeaders, encode_headers
from spark_eos.codec.varints import InlineBytes, Ints, encode_varints, repeat_byte, varint_sizes

_ATTRIBUTES_BYTES: Final = 1
# The varint of a length of -1.
_NO_KEY: Final = 1


class RecordColumns(NamedTuple):
    """The columns of all rows, and the sizes of records without what depends on their batch."""

    key: ByteColumn | None
    value: ByteColumn
    headers: EncodedHeaders | None
    timestamps: Ints | int
    fixed_sizes: Ints

    @property
    def borrowed(self) -> int:
        """Return how many bytes of each record are written in front of the next one."""
        return 1 if self.headers is None else 0

    def pick(self, rows: slice) -> "RecordColumns":
        return RecordColumns(
            None if self.key is None else self.key.pick(rows),
            self.value.pick(rows),
            None if self.headers is None else self.headers.pick(rows),
            self.timestamps if isinstance(self.timestamps, int) else self.timestamps[rows],
            self.fixed_sizes[rows],
        )


class EncodedRows(NamedTuple):
    """The encoded records of some rows, where each begins, and where the last one ends.

    Each has the borrowed byte of the one before it in front, and lacks its own.
    """

    data: memoryview
    bounds: npt.NDArray[np.int32]

    def between(self, first: int, after: int) -> memoryview:
        return self.data[self.bounds[first] : self.bounds[after]]


def record_columns(key: Any, value: Any, headers: Any, timestamp_ms: Any) -> RecordColumns:
    """Convert the columns of `encode_batches` to record columns; raise `EncodeError` if they are not suitable."""
    values = binary_column(value, "value")
    keys = None if key is None else binary_column(key, "key")
    if keys is not None and keys.null_count == len(keys):
        keys = None
    encoded_headers = None if headers is None else encode_headers(one_array(headers))
    timestamps = _timestamps(timestamp_ms)
    for name, column in (("key", key), ("headers", headers), ("timestamp", timestamps)):
        if column is not None and not isinstance(column, int) and len(column) != len(values):
            raise EncodeError(
                f"The {name} column has {counted(len(column), 'row')}, the value column has {len(values)}"
            )
    value_column, key_column = ByteColumn.of(values), None if keys is None else ByteColumn.of(keys)
    sizes = _field_sizes(value_column)
    sizes += _ATTRIBUTES_BYTES + (1 if encoded_headers is None else encoded_headers.sizes)
    sizes += 1 if key_column is None else _field_sizes(key_column)
    return RecordColumns(key_column, value_column, encoded_headers, timestamps, sizes)


def _field_sizes(column: ByteColumn) -> Ints:
    sizes = varint_sizes(column.lengths)
    sizes += np.maximum(column.lengths, 0)
    return sizes


def _timestamps(timestamp_ms: Any) -> Ints | int:
    if isinstance(timestamp_ms, int):
        return timestamp_ms
    array = one_array(timestamp_ms)
    if array.null_count:
        raise EncodeError(
            f"The timestamp column has {counted(array.null_count, 'null timestamp')}; every record needs one"
        )
    if array.type != pa.int64():
        raise EncodeError(f"The timestamp column is of type {array.type}, expected int64 milliseconds")
    return numbers_of(array)


def encode_rows(rows: RecordColumns, first: int, after: int, deltas: list[InlineBytes]) -> EncodedRows:
    """Encode rows with these deltas of time and offset."""
    rows = rows.pick(slice(first, after))
    lengths = rows.fixed_sizes.copy()
    for column in deltas:
        lengths += column.sizes
    [length] = encode_varints(lengths)
    # The attributes byte is zero, so it is already present in the word above the length.
    added = rows.borrowed + _ATTRIBUTES_BYTES
    opening = InlineBytes(length.words << np.uint64(8 * rows.borrowed), length.sizes + added, length.longest + added)
    prefix = [opening, *deltas]
    [value_length] = encode_varints(rows.value.lengths)
    columns: list[InlineBytes | ByteColumn]
    if rows.key is None:
        no_key = repeat_byte(_NO_KEY, after - first)
        columns = [*merge([*prefix, no_key, value_length]), rows.value]
    else:
        columns = [*merge([*prefix, *encode_varints(rows.key.lengths)]), rows.key, value_length, rows.value]
    if rows.headers is not None:
        columns += [rows.headers.counts, rows.headers.bytes]
    joined = join(columns)
    return EncodedRows(memoryview(joined.buffers()[2]), np.frombuffer(joined.buffers()[1], np.int32)[:: len(columns)])
