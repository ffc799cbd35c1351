"""Checksums of rows that do not depend on the rows' order.

Two writes of the same rows have the same checksum, however the rows were ordered and split into batches: each row gets
a 64-bit hash of everything that a record would contain of it, and a checksum is the sum of the hashes modulo 2**64. The
sums of parts add up to the sum of the whole.

A row's hash processes one word after the other: for each field that is not null a word with the field and its length,
then its bytes, eight at a time. The hash protects against differences in data, not against an attacker. Its step
spreads the top bits of a word before it multiplies them: without that, two words whose sign bits differ would cancel
out, as in a vector and its negation.

Rows are hashed together, the first words of every row, then the next ones, as in `partitioner`; thousands at a time, so
that all of it stays in a core's cache.
"""

from enum import IntEnum
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.codec.arrow_numbers import numbers_of, valid_of
from spark_eos.codec.columns import binary_column, bounds_of, lengths_of
from spark_eos.codec.varints import Ints, Octets

Hashes = npt.NDArray[np.uint64]

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_SPREAD: Final = np.uint64(29)
_WORD_BYTES: Final = 8
_ROWS_AT_ONCE: Final = 16384
_MOST_IN_GROUP: Final = 16
_FIELD_BIT: Final = np.uint64(56)
# From here on a CRC for each value costs less than its words do: a call takes about as long as 30 steps of 8 bytes.
_LONG_BYTES: Final = 512
_MOST_WORDS: Final = _LONG_BYTES // _WORD_BYTES
# The most that is read from the start of a value that is not long.
_READ_BYTES: Final = _LONG_BYTES + _MOST_IN_GROUP * _WORD_BYTES
# What is copied of the end of the data: all rows of a small task, which are read at once then.
_COPIED_BYTES: Final = 64 * 1024
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)


class _Field(IntEnum):
    KEY = 1
    VALUE = 2
    HEADERS = 3
    PARTITION = 4
    TIMESTAMP = 5
    HEADER_KEY = 6
    HEADER_VALUE = 7
    END = 8


def hash_rows(
    *, value: Any, key: Any = None, headers: Any = None, partition: Any = None, timestamp_ms: Any = None
) -> Hashes:
    """Return a 64-bit hash for each row.

    `key` and `value` are Arrow arrays of strings or bytes, `headers` of lists of (key, value) structs, `partition` and
    `timestamp_ms` of whole numbers. A missing column counts as one of nulls, a null list of headers as an empty one.

    >>> one = hash_rows(value=pa.array(["a", "b"]))
    >>> other = hash_rows(value=pa.array([b"b", b"a"]), key=pa.array([None, None], pa.string()))
    >>> sum_of(one) == sum_of(other)
    True
    """
    hashes = np.full(len(value), _SEED)
    columns = (value, key, headers, partition, timestamp_ms)
    for first in range(0, len(value), _ROWS_AT_ONCE):
        some = (None if column is None else column.slice(first, _ROWS_AT_ONCE) for column in columns)
        _hash_some(hashes[first : first + _ROWS_AT_ONCE], *some)
    return hashes


def _hash_some(hashes: Hashes, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any) -> None:
    _add_bytes(hashes, key, _Field.KEY)
    _add_bytes(hashes, value, _Field.VALUE)
    _add_headers(hashes, headers)
    _add_numbers(hashes, partition, _Field.PARTITION)
    _add_numbers(hashes, timestamp_ms, _Field.TIMESTAMP)
    _step(hashes, _tag(_Field.END))


def sum_of(hashes: Hashes) -> int:
    """Return the checksum of rows, from 0 to 2**64 - 1."""
    return int(np.add.reduce(hashes, dtype=np.uint64))


def _step(hashes: Hashes, words: Any) -> None:
    hashes ^= words
    hashes ^= hashes >> _HALF
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _SPREAD


def _tag(field: _Field) -> np.uint64:
    return np.uint64(field) << _FIELD_BIT


def _add_numbers(hashes: Hashes, column: Any, field: _Field) -> None:
    if column is None or column.null_count == len(column):
        return
    rows = np.flatnonzero(valid_of(column))
    present = hashes[rows]
    _step(present, _tag(field))
    _step(present, numbers_of(column.drop_null().cast(pa.int64())).view(np.uint64))
    hashes[rows] = present


def _add_bytes(hashes: Hashes, column: Any, field: _Field) -> None:
    """Add the length and the bytes of each value to its hash; a null leaves it unchanged."""
    if column is None or column.null_count == len(column):
        return
    array = binary_column(column, field.name.lower())
    lengths = lengths_of(array)
    bounds, buffer = bounds_of(array)
    starts = bounds[:-1]
    if not array.null_count:
        _add_values(hashes, buffer, starts, lengths, field)
        return
    rows = np.flatnonzero(lengths >= 0)
    present = hashes[rows]
    _add_values(present, buffer, starts[rows], lengths[rows], field)
    hashes[rows] = present


def _add_values(hashes: Hashes, buffer: Any, starts: Ints, lengths: Ints, field: _Field) -> None:
    _step(hashes, lengths.view(np.uint64) | _tag(field))
    if buffer is None or not buffer.size:
        return
    long = np.flatnonzero(lengths >= _LONG_BYTES)
    if len(long):
        _add_long(hashes, long, memoryview(buffer), starts, lengths)
        lengths[long] = 0
    _add_words(hashes, np.frombuffer(buffer, np.uint8), starts, lengths)


def _add_long(hashes: Hashes, rows: Ints, data: memoryview, starts: Ints, lengths: Ints) -> None:
    places = zip(starts[rows].tolist(), (starts + lengths)[rows].tolist(), strict=True)
    found = hashes[rows]
    _step(found, np.array([crc32c.crc32c(data[start:end]) for start, end in places], np.uint64))
    hashes[rows] = found


def _add_words(hashes: Hashes, data: Octets, starts: Ints, lengths: Ints) -> None:
    """Add the words of each value to its hash; the last one only as far as the value goes."""
    near_end = int(np.searchsorted(starts, len(data) - _COPIED_BYTES))
    _add_readable(hashes[:near_end], data, starts[:near_end], lengths[:near_end])
    if near_end < len(starts):
        # Words are read in groups that may extend beyond the value, and there is nothing behind the last ones.
        first = int(starts[near_end])
        copy = np.concatenate([data[first:], np.zeros(_READ_BYTES, np.uint8)])
        _add_readable(hashes[near_end:], copy, starts[near_end:] - first, lengths[near_end:])


def _add_readable(hashes: Hashes, data: Octets, starts: Ints, lengths: Ints) -> None:
    word_counts = (lengths + (_WORD_BYTES - 1)) // _WORD_BYTES
    most = int(word_counts.max(initial=0))
    if not most:
        return
    if most == word_counts.min():
        _add_ordered(hashes, data, starts, lengths, [len(hashes)] * most)
        return
    # The rows with the most words first, so that those with an n-th word are the first ones.
    order = np.argsort((_MOST_WORDS - word_counts).astype(np.uint8), kind="stable")
    row_counts = len(hashes) - np.cumsum(np.bincount(word_counts, minlength=most))[:most]
    ordered = hashes[order]
    _add_ordered(ordered, data, starts[order], lengths[order], row_counts.tolist())
    hashes[order] = ordered


def _add_ordered(hashes: Hashes, data: Octets, starts: Ints, lengths: Ints, row_counts: list[int]) -> None:
    """Add words to the hashes: the n-th to as many of the first rows as `row_counts` has.

    Finding a word in the data takes several times as long as adding it, and finding many at once no longer than one.
    """
    size = min(_MOST_IN_GROUP, 1 << (len(row_counts) - 1).bit_length())
    kind = np.dtype(f"V{size * _WORD_BYTES}")
    groups: Any = np.ndarray((len(data) - kind.itemsize + 1,), kind, data.data, 0, (1,))
    for first in range(0, len(row_counts), size):
        found = groups[starts[: row_counts[first]] + first * _WORD_BYTES].view("<u8").reshape(-1, size)
        for index, row_count in enumerate(row_counts[first : first + size], first):
            words = found[:row_count, index - first]
            going_on = row_counts[index + 1] if index + 1 < len(row_counts) else 0
            if going_on < row_count:
                words[going_on:] &= _MASKS[lengths[going_on:row_count] - index * _WORD_BYTES]
            _step(hashes[:row_count], words)


def _add_headers(hashes: Hashes, headers: Any) -> None:
    """Add each row's headers to its hash, in their order, which Kafka keeps."""
    entries = None if headers is None or pa.types.is_null(headers.type) else headers.flatten()
    if entries is None or not len(entries):
        return
    names, values = entries.flatten()[:2]
    of_entries = np.full(len(entries), _SEED)
    _add_bytes(of_entries, names, _Field.HEADER_KEY)
    _add_bytes(of_entries, values, _Field.HEADER_VALUE)
    counts = numbers_of(pc.list_value_length(headers)).astype(np.int64)
    firsts = np.cumsum(counts) - counts
    _step(of_entries, (np.arange(len(entries)) - np.repeat(firsts, counts)).astype(np.uint64))
    rows = np.flatnonzero(counts)
    found = hashes[rows]
    _step(found, counts[rows].astype(np.uint64) | _tag(_Field.HEADERS))
    _step(found, np.add.reduceat(of_entries, firsts[rows]))
    hashes[rows] = found
