"""Checksums of rows that do not depend on the rows' order.

Two writes of the same rows have the same checksum, however the rows were ordered and cut into batches: each row gets a
64-bit hash of all that a record would hold of it, and a checksum is the sum of the hashes modulo 2**64. Sums of parts
add up to the sum of the whole.

A row's hash takes one word after the other: for each field that is not null a word that names the field and its length,
then its bytes, eight at a time. The hash is made for data, not against an attacker. Its step spreads the top bits of a
word before it multiplies them: without that, two words whose sign bits differ would cancel, as in a vector and its
negative.

All rows are hashed at once, the first words of every row, then the next ones, as in `partitioner`.
"""

from enum import IntEnum
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.codec.columns import binary_column, bounds_of, lengths_of
from spark_eos.codec.varints import Ints

Hashes = npt.NDArray[np.uint64]

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_SPREAD: Final = np.uint64(29)
_WORD_BYTES: Final = 8
_GROUP_WORDS: Final = 4
_FIELD_BIT: Final = np.uint64(56)
# From here on a CRC for each value costs less than its words do: a call takes about as long as 30 steps of 8 bytes.
_LONG_BYTES: Final = 512
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD_BYTES)], np.uint64)


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
    `timestamp_ms` of whole numbers. A column that is missing counts as one of nulls, a null list of headers as an empty
    one.

    >>> one = hash_rows(value=pa.array(["a", "b"]))
    >>> other = hash_rows(value=pa.array([b"b", b"a"]), key=pa.array([None, None], pa.string()))
    >>> sum_of(one) == sum_of(other)
    True
    """
    hashes = np.full(len(value), _SEED)
    _add_bytes(hashes, key, _Field.KEY)
    _add_bytes(hashes, value, _Field.VALUE)
    _add_headers(hashes, headers)
    _add_numbers(hashes, partition, _Field.PARTITION)
    _add_numbers(hashes, timestamp_ms, _Field.TIMESTAMP)
    _step(hashes, _tag(_Field.END))
    return hashes


def sum_of(hashes: Hashes) -> int:
    """Return the checksum of rows, from 0 to 2**64 - 1."""
    return int(np.add.reduce(hashes, dtype=np.uint64))


def _step(hashes: Hashes, words: Any) -> None:
    """Take one word into each hash, in place."""
    hashes ^= words
    hashes ^= hashes >> _HALF
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _SPREAD


def _tag(field: _Field) -> np.uint64:
    """Give the word that names a field; its lower bits have space for a length."""
    return np.uint64(field) << _FIELD_BIT


def _add_numbers(hashes: Hashes, column: Any, field: _Field) -> None:
    if column is None or column.null_count == len(column):
        return
    rows = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
    present = hashes[rows]
    _step(present, _tag(field))
    _step(present, column.drop_null().cast(pa.int64()).to_numpy().view(np.uint64))
    hashes[rows] = present


def _add_bytes(hashes: Hashes, column: Any, field: _Field) -> None:
    """Take the length and the bytes of each value into its hash; a null leaves it as it is."""
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
    """Take the CRC-32C of each of these values into its hash."""
    places = zip(starts[rows].tolist(), (starts + lengths)[rows].tolist(), strict=True)
    found = hashes[rows]
    _step(found, np.array([crc32c.crc32c(data[start:end]) for start, end in places], np.uint64))
    hashes[rows] = found


def _add_words(hashes: Hashes, data: Any, starts: Ints, lengths: Ints) -> None:
    word_counts = lengths // _WORD_BYTES
    _add_groups(hashes, data, starts, word_counts // _GROUP_WORDS, _GROUP_WORDS)
    done = word_counts // _GROUP_WORDS * _GROUP_WORDS
    _add_groups(hashes, data, starts + done * _WORD_BYTES, word_counts - done, 1)
    _add_tails(hashes, data, starts + word_counts * _WORD_BYTES, lengths % _WORD_BYTES)


def _add_groups(hashes: Hashes, data: Any, starts: Ints, group_counts: Ints, group_words: int) -> None:
    """Take groups of words into the hashes, each row as many as its count says.

    To find a word in the data takes several times as long as to mix it in, and to find four at once no longer than one.
    """
    most = int(group_counts.max(initial=0))
    if not most:
        return
    size = group_words * _WORD_BYTES
    groups: Any = np.ndarray((len(data) - size + 1,), np.dtype(f"V{size}"), data.data, 0, (1,))
    if most == group_counts.min():
        # All rows have the same number of groups, so no row needs to be picked.
        for index in range(most):
            _step_through(hashes, groups[starts + index * size], group_words)
        return
    # The rows with the most groups first, so that those with an n-th group are the first ones.
    order = np.argsort(-group_counts.astype(np.int16), kind="stable")
    ordered, places = hashes[order], starts[order]
    row_counts = np.searchsorted(-group_counts[order], -np.arange(most), side="left")
    for index, row_count in enumerate(row_counts.tolist()):
        _step_through(ordered[:row_count], groups[places[:row_count] + index * size], group_words)
    hashes[order] = ordered


def _step_through(hashes: Hashes, groups: Any, group_words: int) -> None:
    for words in groups.view("<u8").reshape(-1, group_words).T:
        _step(hashes, words)


def _add_tails(hashes: Hashes, data: Any, places: Ints, sizes: Ints) -> None:
    """Take the last bytes of each value, fewer than eight; a word that would reach past the data is read before it."""
    rows = np.flatnonzero(sizes)
    if not len(rows):
        return
    if len(data) < _WORD_BYTES:
        data = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    words: Any = np.ndarray((len(data) - _WORD_BYTES + 1,), np.dtype("<u8"), data.data, 0, (1,))
    at = np.minimum(places[rows], len(words) - 1)
    shifts = ((places[rows] - at) * 8).astype(np.uint64)
    found = hashes[rows]
    _step(found, (words[at] >> shifts) & _MASKS[sizes[rows]])
    hashes[rows] = found


def _add_headers(hashes: Hashes, headers: Any) -> None:
    """Take each row's headers into its hash, in their order: Kafka keeps it."""
    entries = None if headers is None or pa.types.is_null(headers.type) else headers.flatten()
    if entries is None or not len(entries):
        return
    names, values = entries.flatten()[:2]
    of_entries = np.full(len(entries), _SEED)
    _add_bytes(of_entries, names, _Field.HEADER_KEY)
    _add_bytes(of_entries, values, _Field.HEADER_VALUE)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    firsts = np.cumsum(counts) - counts
    _step(of_entries, (np.arange(len(entries)) - np.repeat(firsts, counts)).astype(np.uint64))
    rows = np.flatnonzero(counts)
    found = hashes[rows]
    _step(found, counts[rows].astype(np.uint64) | _tag(_Field.HEADERS))
    _step(found, np.add.reduceat(of_entries, firsts[rows]))
    hashes[rows] = found
