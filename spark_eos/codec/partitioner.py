"""Place rows as the Java client does: murmur2 of the key, over all keys at once.

Murmur2 works through a key four bytes at a time, so the keys go in step: the first word of every key, then the second
of those that have one, and so on. The number of numpy calls follows from the longest key, not from the number of rows.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_eos.codec.columns import binary_column, bounds_of, lengths_of
from spark_eos.codec.varints import Octets

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
NO_PARTITION: Final = -1

Hashes = npt.NDArray[np.uint32]
Partitions = npt.NDArray[np.int32]


class RowGroups(NamedTuple):
    """Hold rows sorted by partition: rows `order[boundaries[i]:boundaries[i + 1]]` belong to `partitions[i]`."""

    order: npt.NDArray[np.int64]
    partitions: Partitions
    boundaries: npt.NDArray[np.int64]


def murmur2_partitions(keys: Any, partition_count: int) -> Partitions:
    """Return the partition of each key of a string or binary array, -1 for a null key.

    >>> import pyarrow as pa
    >>> murmur2_partitions(pa.array(["21", None, "foobar"]), 1000).tolist()
    [340, -1, 166]
    """
    array = binary_column(keys, "key")
    partitions = ((murmur2(array) & _POSITIVE) % np.uint32(partition_count)).astype(np.int32)
    if array.null_count:
        partitions[lengths_of(array) < 0] = NO_PARTITION
    return partitions


def murmur2(array: Any) -> Hashes:
    """Return the 32-bit hash of each value of a binary array, as Kafka's Java `Utils.murmur2`; nulls hash as empty."""
    lengths = np.maximum(lengths_of(array), 0)
    bounds, buffer = bounds_of(array)
    starts = bounds[:-1]
    data: Octets = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    hashes: Hashes = (lengths.astype(np.uint32)) ^ np.uint32(_SEED)
    _mix_words(hashes, data, starts, lengths >> 2)
    _mix_tails(hashes, data, starts + (lengths & ~3), lengths & 3)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix_words(hashes: Hashes, data: Octets, starts: Any, word_counts: Any) -> None:
    if not len(word_counts) or not word_counts.max():
        return
    words: Any = np.ndarray((len(data) - 3,), np.dtype("<u4"), data.data, 0, (1,))
    rows = np.flatnonzero(word_counts)
    index = 0
    while len(rows):
        mixed = words[starts[rows] + 4 * index] * _M
        mixed ^= mixed >> _R
        mixed *= _M
        hashes[rows] = (hashes[rows] * _M) ^ mixed
        index += 1
        rows = rows[word_counts[rows] > index]


def _mix_tails(hashes: Hashes, data: Octets, tails: Any, tail_lengths: Any) -> None:
    for index in (2, 1, 0):
        rows = np.flatnonzero(tail_lengths > index)
        hashes[rows] ^= data[tails[rows] + index].astype(np.uint32) << np.uint32(8 * index)
    rows = np.flatnonzero(tail_lengths)
    hashes[rows] *= _M


def group_rows(partition_ids: npt.NDArray[Any]) -> RowGroups:
    """Sort rows by partition, keeping their order within each, as `take` needs it.

    >>> group_rows(np.array([1, 0, 1])).order.tolist()
    [1, 0, 2]
    """
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    narrow = len(partition_ids) > 0 and max(abs(partition_ids.min()), abs(partition_ids.max())) < 2**15
    ids = partition_ids.astype(np.int16 if narrow else np.int32)
    order = np.argsort(ids, kind="stable")
    placed = ids[order]
    firsts = np.flatnonzero(np.concatenate([[True], placed[1:] != placed[:-1]])[: len(placed)])
    return RowGroups(order, placed[firsts].astype(np.int32), np.append(firsts, len(placed)))
