"""The encoder and decoder of whole columns of zigzag varints with numpy.

A varint of up to eight bytes fits into a 64-bit word, so a column of varints is a column of words and a column of
sizes: pieces, which `join` concatenates.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from broker_core.errors import InvalidBatch

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Octets: TypeAlias = npt.NDArray[np.uint8]

WORD_BYTES: Final = 8
_LONGEST_BYTES: Final = 10
# The continuation bits of a varint of each size, as far as they are in its first word.
_CONTINUATION: Final[Words] = np.array(
    [sum(0x80 << (8 * k) for k in range(min(max(size - 1, 0), 8))) for size in range(_LONGEST_BYTES + 1)], np.uint64
)


# The varints of numbers from -1 to almost this are in a table, because a look-up costs less than computing them. That
# is nearly all varints: lengths, including -1 for null, and offsets and times relative to a batch's.
_TABLE_NUMBERS: Final = 2**14
_TABLE_SIZE_BIT: Final = np.uint64(56)
_TABLE_WORD: Final = np.uint64((1 << 56) - 1)


class InlineBytes(NamedTuple):
    """A short run of bytes for each row: the first `sizes` bytes of little-endian `words`, whose rest is zero.

    No size is larger than `longest`.
    """

    words: Words
    sizes: Ints
    longest: int

    def pick(self, rows: slice) -> "InlineBytes":
        return InlineBytes(self.words[rows], self.sizes[rows], self.longest)


def repeat_byte(octet: int, rows: int) -> InlineBytes:
    return InlineBytes(np.full(rows, octet, np.uint64), np.ones(rows, np.int64), 1)


def ends_of(sizes: Ints) -> Ints:
    """Return where adjacent things of these sizes end, with a 0 before the first."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def varint_sizes(values: Ints) -> Ints:
    if _longest_in_table(values):
        return (_TABLE[values] >> _TABLE_SIZE_BIT).view(np.int64)
    return _sizes(_zigzag(values))


def varint_size(value: int) -> int:
    return max(1, -(-(value << 1 if value >= 0 else ~value << 1 | 1).bit_length() // 7))


def encode_varints(values: Ints) -> list[InlineBytes]:
    """Encode a column: one column of pieces, or two when some varint is longer than eight bytes."""
    longest = _longest_in_table(values)
    if longest:
        found = _TABLE[values]
        return [InlineBytes(found & _TABLE_WORD, (found >> _TABLE_SIZE_BIT).view(np.int64), longest)]
    unsigned = _zigzag(values)
    sizes = _sizes(unsigned)
    words = _words(unsigned, sizes)
    longest = int(sizes.max())
    if longest <= WORD_BYTES:
        return [InlineBytes(words, sizes, longest)]
    rest = unsigned >> np.uint64(56)
    high = np.where(sizes == _LONGEST_BYTES, (rest & np.uint64(0x7F)) | np.uint64(0x180), rest)
    return [
        InlineBytes(words, np.minimum(sizes, WORD_BYTES), WORD_BYTES),
        InlineBytes(high, np.maximum(sizes - WORD_BYTES, 0), longest - WORD_BYTES),
    ]


def _longest_in_table(values: Ints) -> int:
    """Return the largest size that the table has for these values, 0 if it does not have them all."""
    if not len(values):
        return 1
    largest = int(np.maximum.reduce(values))
    # Its last entry is for -1.
    return varint_size(largest) if largest < _TABLE_NUMBERS - 1 and np.minimum.reduce(values) >= -1 else 0


def _zigzag(values: Ints) -> Words:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _sizes(unsigned: Words) -> Ints:
    sizes = np.ones(len(unsigned), np.int64)
    for index in range(1, -(-int(unsigned.max()).bit_length() // 7)):
        sizes += unsigned >= np.uint64(1 << (7 * index))
    return sizes


def _words(unsigned: Words, sizes: Ints) -> Words:
    words = unsigned & np.uint64(0x7F)
    for index in range(1, min(int(sizes.max()), WORD_BYTES)):
        words |= (unsigned << np.uint64(index)) & np.uint64(0x7F << (8 * index))
    words |= _CONTINUATION[sizes]
    return words


def _table() -> Words:
    """Make the table: words of up to three bytes, with their size in the highest one."""
    unsigned = np.arange(_TABLE_NUMBERS, dtype=np.uint64) << np.uint64(1)
    sizes = _sizes(unsigned)
    table = _words(unsigned, sizes) | sizes.view(np.uint64) << _TABLE_SIZE_BIT
    # An index of -1 is the last place.
    table[-1] = np.uint64(1) | np.uint64(1) << _TABLE_SIZE_BIT
    return table


_TABLE: Final = _table()


def _pairs() -> npt.NDArray[np.int32]:
    """Make the table for two bytes: a number times four, and its size; a size of 3 means a longer varint."""
    pairs = np.arange(2**16, dtype=np.int32)
    low, high = pairs & 0xFF, pairs >> 8
    unsigned = np.where(low < 0x80, low, low & 0x7F | high << 7)
    sizes = np.where(low < 0x80, 1, np.where(high < 0x80, 2, _LONGER))
    return (((unsigned >> 1) ^ -(unsigned & 1)) << _PAIR_SIZE_BITS | sizes).astype(np.int32)


_LONGER: Final = np.int32(3)
_PAIR_SIZE_BITS: Final = np.int32(2)
_PAIRS: Final = _pairs()


def read_varints(data: Octets, positions: Ints) -> tuple[Ints, Ints]:
    """Return the varint at each position and the position after it.

    Raises `IndexError` past the end of the data and `InvalidBatch` for a varint of more than ten bytes.
    """
    octets = data[positions]
    after = positions + 1
    if np.maximum.reduce(octets, initial=0) < 0x80:
        return ((octets >> 1) ^ -(octets & 1)).view(np.int8).astype(np.int64), after
    is_near_end = bool(np.maximum.reduce(after) >= len(data))
    pairs = data[np.minimum(after, len(data) - 1) if is_near_end else after].astype(np.uint16)
    pairs <<= 8
    pairs |= octets
    found = _PAIRS[pairs]
    sizes = found & _LONGER
    values, after = (found >> _PAIR_SIZE_BITS).astype(np.int64), positions + sizes
    if np.maximum.reduce(sizes) == _LONGER:
        longer = np.flatnonzero(sizes == _LONGER)
        values[longer], after[longer] = _read_longer(data, positions[longer])
    if is_near_end and (after > len(data)).any():
        raise IndexError("a varint extends beyond the end of the data")
    return values, after


def _read_longer(data: Octets, positions: Ints) -> tuple[Ints, Ints]:
    """Read varints of any size, one byte of each at a time."""
    octets = data[positions]
    unsigned = (octets & 0x7F).astype(np.uint64)
    after = positions + 1
    more = octets >> 7
    index = 1
    while index < _LONGEST_BYTES and more.any():
        # All rows are read on, which is faster than selecting some; a varint that has ended adds nothing.
        octets = data[np.minimum(after, len(data) - 1)] * more
        unsigned |= (octets & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after += more
        more = octets >> 7
        index += 1
    if index > 1 and (after > len(data)).any():
        raise IndexError("a varint extends beyond the end of the data")
    if more.any():
        raise InvalidBatch(f"the varint before byte {after[more.argmax()]} is longer than {_LONGEST_BYTES} bytes")
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(unsigned & np.uint64(1)).view(np.int64), after
