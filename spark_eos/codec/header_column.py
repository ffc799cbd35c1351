"""The encoder and decoder of the headers column: lists of (key, value) structs, as their flattened children."""

import itertools
from array import array
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.errors import InvalidBatch
from broker_core.records.varint import read_varint
from broker_core.types import counted
from spark_eos.codec.arrow_numbers import arrow_booleans, arrow_numbers, numbers_of
from spark_eos.codec.columns import BufferView, ByteColumn, EncodeError, as_text, binary_column, bounds_of, join
from spark_eos.codec.varints import InlineBytes, Ints, Octets, encode_varints, ends_of, read_varints

# As many as fit, at two bytes each, into the largest batch that a broker accepts by default; more is malicious.
_MOST_HEADERS: Final = 2**19
# For fewer rows, reading a header in Python costs less than a step with numpy.
_FEWEST_ROWS_IN_STEP: Final = 64
# The lengths of a header's key and value, and the key and value.
_ENTRY_FIELDS: Final = 4
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class EncodedHeaders(NamedTuple):
    """Each row's encoded headers: the count, the bytes after it, and the size of both together."""

    counts: InlineBytes
    bytes: ByteColumn
    sizes: Ints

    def pick(self, rows: slice) -> "EncodedHeaders":
        return EncodedHeaders(self.counts.pick(rows), self.bytes.pick(rows), self.sizes[rows])


def encode_headers(headers: Any) -> EncodedHeaders | None:
    """Encode the headers of all rows; return None if the column has no header at all.

    Raises `EncodeError` if a header or its key is null: Kafka has no such header.
    """
    if pa.types.is_null(headers.type):
        return None
    kind = headers.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        wanted = "array<struct<key:string,value:binary>>"
        raise EncodeError(f"The headers column is of type {headers.type}", remedy=f"Cast it to {wanted}")
    entries = headers.flatten()
    if not len(entries):
        return None
    if entries.null_count:
        raise EncodeError(
            f"The column 'headers' has {counted(entries.null_count, 'null header')}",
            remedy="Remove them from the lists: Kafka has no such header",
        )
    names, values = entries.flatten()[:2]
    if names.null_count:
        raise EncodeError(
            f"The column 'headers' has {counted(names.null_count, 'null header key')}",
            remedy="Give each header a key, or remove it: Kafka has no header without one",
        )
    names = as_text(binary_column(names, "header key"))
    columns = [ByteColumn.of(binary_column(names, "header key")), ByteColumn.of(binary_column(values, "header value"))]
    [name_lengths], [value_lengths] = (encode_varints(column.lengths) for column in columns)
    # An element for each field of every header of every row; large, because they may exceed a batch.
    encoded = join([name_lengths, columns[0], value_lengths, columns[1]], large=True)
    # Imported here, because it takes long, and most rows have no headers.
    import pyarrow.compute as pc

    counts = numbers_of(pc.list_value_length(headers)).astype(np.int64)
    bounds, data = bounds_of(encoded)
    offsets = bounds[_ENTRY_FIELDS * ends_of(counts)]
    lengths = np.diff(offsets)
    [pieces] = encode_varints(counts)
    return EncodedHeaders(pieces, ByteColumn(data, offsets[:-1], lengths), pieces.sizes + lengths)


def decode_headers(view: BufferView, positions: Ints, counts: Ints, record_ends: Ints) -> Any:
    """Decode each row's headers from `positions` on; a row without headers becomes null, as in Spark.

    Rows are decoded together as long as their headers fit into memory. Raises `InvalidBatch` for a row of more than
    524,288.
    """
    if len(counts) and counts.max() > _MOST_HEADERS:
        raise InvalidBatch(
            f"a record has {counts.max()} headers; records with more than {_MOST_HEADERS} can only be read "
            "without headers"
        )
    sums = np.cumsum(counts)
    total = int(sums[-1]) if len(sums) else 0
    cuts = np.searchsorted(sums, np.arange(_MOST_HEADERS, total, _MOST_HEADERS), "right")
    bounds = [0, *np.unique(cuts[cuts > 0]).tolist(), len(counts)]
    parts = [
        _decode_rows(view, positions[first:after], counts[first:after], record_ends[first:after])
        for first, after in itertools.pairwise(bounds)
    ]
    return pa.concat_arrays(parts) if len(parts) > 1 else parts[0]


def _decode_rows(view: BufferView, positions: Ints, counts: Ints, record_ends: Ints) -> Any:
    """Decode the first header of every row, then the second, and so on; when few rows have more, row by row."""
    ends = ends_of(counts)
    total = int(ends[-1])
    bounds = np.empty((total, 4), np.int64)
    name_lengths = np.empty(total, np.int64)
    value_lengths = np.empty(total, np.int64)
    at = positions.copy()
    rows = np.flatnonzero(counts)
    step = 0
    while len(rows) >= _FEWEST_ROWS_IN_STEP:
        slots = ends[rows] + step
        limits = record_ends[rows]
        name_lengths[slots], bounds[slots, 0], value_at = read_field(view.octets, at[rows], limits)
        value_lengths[slots], bounds[slots, 2], after = read_field(view.octets, value_at, limits)
        bounds[slots, 1] = value_at
        bounds[slots, 3] = after
        at[rows] = after
        step += 1
        rows = rows[counts[rows] > step]
    data = view.octets.data
    for row in rows.tolist():
        found, at[row] = _walk_fields(data, int(at[row]), 2 * (int(counts[row]) - step), int(record_ends[row]))
        slots = np.arange(ends[row] + step, ends[row + 1])
        fields = np.frombuffer(found, np.int64).reshape(-1, 4)
        name_lengths[slots], value_lengths[slots] = fields[:, 0], fields[:, 2]
        bounds[slots, 0::2] = fields[:, 1::2]
        bounds[slots, 1::2] = fields[:, 1::2] + np.maximum(fields[:, 0::2], 0)
    if (name_lengths < 0).any():
        raise InvalidBatch("a record header has no key")
    if (at != record_ends).any():
        raise InvalidBatch("the headers of a record do not end at the end of the record")
    names, values = view.take(bounds, name_lengths, value_lengths)
    entries = pa.StructArray.from_arrays([as_text(names), values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(
        arrow_numbers(ends.astype(np.int32)), entries, type=HEADER_TYPE, mask=arrow_booleans(counts == 0)
    )


def _walk_fields(data: memoryview, at: int, count: int, limit: int) -> tuple["array[int]", int]:
    """Read `count` length-prefixed fields in sequence: return the length and start of each, and the end of all."""
    found = array("q")
    for _ in range(count):
        length, at = read_varint(data, at)
        if length > limit - at:
            raise _too_long()
        found.append(length)
        found.append(at)
        if length > 0:
            at += length
    return found, at


def read_field(data: Octets, positions: Ints, limits: Ints) -> tuple[Ints, Ints, Ints]:
    """Read a length-prefixed field of each row: its length (null if negative), start and end, checked by `limits`."""
    lengths, starts = read_varints(data, positions)
    if (lengths > limits - starts).any():
        raise _too_long()
    return lengths, starts, starts + np.maximum(lengths, 0)


def _too_long() -> InvalidBatch:
    return InvalidBatch("a key, value or header extends beyond its record")
