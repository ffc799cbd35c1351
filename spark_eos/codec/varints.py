"""Write and read whole columns of zigzag varints with numpy.

Writing rests on one trick. A varint of up to eight bytes fits a 64-bit word, so a column of varints is a column of
words and a column of sizes: pieces. Laying pieces end to end is then a single scatter of eight-byte words, in ascending
order, over a byte buffer seen through overlapping words: what a word writes beyond its piece its successor overwrites.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker_core.records.invalid import InvalidBatch

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Octets: TypeAlias = npt.NDArray[np.uint8]

_WORD_BYTES: Final = 8
_LONGEST_BYTES: Final = 10
# The continuation bits of a varint of each size, as far as they lie in its first word.
_CONTINUATION: Final[Words] = np.array(
    [sum(0x80 << (8 * k) for k in range(min(max(size - 1, 0), 8))) for size in range(_LONGEST_BYTES + 1)], np.uint64
)


class Pieces(NamedTuple):
    """Hold a short run of bytes for each row: the first `sizes` bytes of little-endian `words`, whose rest is zero."""

    words: Words
    sizes: Ints

    def slice(self, start: int, stop: int) -> "Pieces":
        """Return the pieces of some rows, without copying."""
        return Pieces(self.words[start:stop], self.sizes[start:stop])


def zigzag(values: Ints) -> Words:
    """Map signed numbers to unsigned ones, small magnitudes to small numbers."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(values: Ints) -> Ints:
    """Return the size in bytes of each value's varint."""
    return _sizes(zigzag(values))


def _sizes(unsigned: Words) -> Ints:
    sizes = np.ones(len(unsigned), np.int64)
    longest = _longest(unsigned)
    for index in range(1, longest):
        sizes += unsigned >= np.uint64(1 << (7 * index))
    return sizes


def _longest(unsigned: Words) -> int:
    return max(1, -(-int(unsigned.max()).bit_length() // 7)) if len(unsigned) else 1


def varint_pieces(values: Ints) -> list[Pieces]:
    """Encode a column: one column of pieces, or two when some varint is longer than eight bytes."""
    unsigned = zigzag(values)
    longest = _longest(unsigned)
    words = unsigned & np.uint64(0x7F)
    if longest == 1:
        return [Pieces(words, np.ones(len(values), np.int64))]
    for index in range(1, min(longest, _WORD_BYTES)):
        words |= (unsigned << np.uint64(index)) & np.uint64(0x7F << (8 * index))
    sizes = _sizes(unsigned)
    words |= _CONTINUATION[sizes]
    if longest <= _WORD_BYTES:
        return [Pieces(words, sizes)]
    rest = unsigned >> np.uint64(56)
    high = np.where(sizes == _LONGEST_BYTES, (rest & np.uint64(0x7F)) | np.uint64(0x180), rest)
    return [Pieces(words, np.minimum(sizes, _WORD_BYTES)), Pieces(high, np.maximum(sizes - _WORD_BYTES, 0))]


def lay(columns: Sequence[Pieces]) -> Any:
    """Join each row's pieces, in the order of the columns; returns an Arrow binary array."""
    columns = _merge(columns)
    rows, width = len(columns[0].words), len(columns)
    words = np.empty((rows, width), np.dtype("<u8"))
    sizes = np.empty((rows, width), np.int64)
    for index, column in enumerate(columns):
        words[:, index] = column.words
        sizes[:, index] = column.sizes
    ends = np.cumsum(sizes.ravel())
    total = int(ends[-1])
    data = np.empty(total + _WORD_BYTES, np.uint8)
    overlapping: Words = np.ndarray((total + 1,), np.dtype("<u8"), data.data, 0, (1,))
    overlapping[ends - sizes.ravel()] = words.ravel()
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1:] = ends[width - 1 :: width]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _merge(columns: Sequence[Pieces]) -> list[Pieces]:
    """Make one column of neighbours wherever every row's pieces fit a word together: fewer words to scatter."""
    merged = [columns[0]]
    for column in columns[1:]:
        last = merged[-1]
        if int(last.sizes.max()) + int(column.sizes.max()) > _WORD_BYTES:
            merged.append(column)
            continue
        shifted = column.words << (last.sizes << 3).view(np.uint64)
        merged[-1] = Pieces(last.words | shifted, last.sizes + column.sizes)
    return merged


def read_varints(data: Octets, positions: Ints) -> tuple[Ints, Ints]:
    """Return the varint at each position and the position after it.

    Raises `IndexError` past the end of the data and `InvalidBatch` for a varint of more than ten bytes.
    """
    octets = data[positions]
    unsigned = (octets & 0x7F).astype(np.uint64)
    after = positions + 1
    more = octets >> 7
    index = 1
    while index < _LONGEST_BYTES and more.any():
        # All rows read on, for that is quicker than to pick out some; a varint that has ended adds nothing.
        octets = data[np.minimum(after, len(data) - 1)] * more
        unsigned |= (octets & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after += more
        more = octets >> 7
        index += 1
    if index > 1 and (after > len(data)).any():
        raise IndexError("a varint runs past the end of the data")
    if more.any():
        raise InvalidBatch(f"varint before byte {after[more.argmax()]} is longer than {_LONGEST_BYTES} bytes")
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(unsigned & np.uint64(1)).view(np.int64), after
