"""The partitioner of the Java client: murmur2 of the key, over all keys at once.

Murmur2 processes a key four bytes at a time, so all keys are processed in step: the first word of every key, then the
second word of longer keys, and so on. The number of numpy calls depends on the longest key, not on the number of
rows.
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
_GROUP_WORDS: Final = 4
_GROUP_BYTES: Final = 16
_GROUP: Final = np.dtype("V16")
_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
# As many as keep the work in a core's cache.
_ROWS_AT_ONCE: Final = 16384

Hashes = npt.NDArray[np.uint32]
Partitions = npt.NDArray[np.int32]


class RowGroups(NamedTuple):
    """Rows sorted by partition: rows `order[boundaries[i]:boundaries[i + 1]]` belong to `partitions[i]`."""

    order: npt.NDArray[np.int64]
    partitions: Partitions
    boundaries: npt.NDArray[np.int64]


def murmur2_partitions(keys: Any, partition_count: int | npt.NDArray[np.integer]) -> Partitions:
    """Return the partition of each key of a string or binary array, -1 for a null key.

    The number of partitions is one for all keys, or an array with one for each.

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
    for first in range(0, len(hashes), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        _mix(hashes[some], data, starts[some], lengths[some])
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix(hashes: Hashes, data: Octets, starts: Any, lengths: Any) -> None:
    """Add the bytes of each key to its hash; words are read four at a time, which costs no more than one."""
    longest = int(lengths.max())
    if not longest:
        return
    if int(starts.max()) + longest + _GROUP_BYTES > len(data):
        first, end = int(starts.min()), int((starts + lengths).max())
        data, starts = np.concatenate([data[first:end], np.zeros(longest + _GROUP_BYTES, np.uint8)]), starts - first
    groups: Any = np.ndarray((len(data) - _GROUP_BYTES + 1,), _GROUP, data.data, 0, (1,))
    found = groups[starts].view("<u4").reshape(-1, _GROUP_WORDS)
    _mix_group(hashes, found, lengths)
    rows = np.flatnonzero(lengths > _GROUP_BYTES)
    offset = _GROUP_BYTES
    while len(rows):
        found = groups[starts[rows] + offset].view("<u4").reshape(-1, _GROUP_WORDS)
        mixed = hashes[rows]
        _mix_group(mixed, found, lengths[rows] - offset)
        hashes[rows] = mixed
        offset += _GROUP_BYTES
        rows = rows[lengths[rows] > offset]


def _mix_group(hashes: Hashes, words: Any, left: Any) -> None:
    for index in range(min(_GROUP_WORDS, (int(left.max()) + 3) // 4)):
        _mix_word(hashes, words[:, index], left - 4 * index)


def _mix_word(hashes: Hashes, words: Any, left: Any) -> None:
    """Add the next word of each key; a key with fewer than four bytes left adds these."""
    whole = left >= 4
    mixed = words * _M
    mixed ^= mixed >> _R
    mixed *= _M
    mixed ^= hashes * _M
    np.copyto(hashes, mixed, where=whole)
    tails = np.flatnonzero((left > 0) & ~whole)
    hashes[tails] = (hashes[tails] ^ (words[tails] & _MASKS[left[tails]])) * _M


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
