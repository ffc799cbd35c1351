"""A fast scan of all records of a decompressed section, for the partition leader's checks (rules C.1, rows 17, 18).

A leader checks every record of every produced batch. Parsing each record in Python would take longer than all other
handling of the batch. Consecutive records of one producer usually have the same *shape*: the same size, with the same
field lengths at the same positions. The scan makes use of this:

1. Parse one record and note the positions of its length bytes. Its size is the `stride`.
2. Take one length byte of each following record as a column: a slice with step `stride`.
3. Compare the column with the byte of the first record. If the bytes at all length positions are equal, each record
   ends where the next one begins, so the structure of all of them is valid.

One slice comparison thus replaces parsing a field of up to 8,192 records. A shape is first tried on 16 records. Where
lengths vary, a failed attempt costs little, and the records are parsed one by one.
"""

from typing import Final, NamedTuple

from broker_core.errors import InvalidBatch
from broker_core.records.varint import read_varint, read_varint32, varint_bytes
from broker_core.types import counted

_HIGH: Final = bytes(range(0x80, 0x100))
_LOW: Final = bytes(range(0x80))
# The low 7 bits of the zigzag varint of i, which are 2 * i & 0x7f; they repeat every 64 values of i.
_LOW_BITS: Final = bytes(range(0, 0x80, 2))
# Each byte with the bit of a varint that goes on.
_CONTINUED: Final = bytes(byte | 0x80 for byte in range(256))
# How many records a shape is tried on first, and at most.
_FIRST_TRIED: Final = 16
_MOST_TRIED: Final = 8192
# After a run shorter than _WORTHWHILE, the number of records parsed before the next attempt doubles, up to the pause.
_WORTHWHILE: Final = 8
_LONGEST_PAUSE: Final = 256


class RecordScan(NamedTuple):
    """The result of a scan: the range of the timestamp deltas, and whether all records have keys."""

    smallest_delta: int
    largest_delta: int
    all_have_keys: bool


class InvalidRecord(InvalidBatch):
    """The error for the first invalid record; the records after it cannot be located."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index} of the batch: {reason}")
        self.index = index


class _Shape(NamedTuple):
    """The size of a record and the positions of its varints, relative to its first byte.

    `lengths` are the positions of all bytes of the lengths and the header count. The timestamp delta is at
    [timestamp, offset), the offset delta at [offset, key).
    """

    stride: int
    lengths: tuple[int, ...]
    timestamp: int
    offset: int
    key: int


def scan_records(data: bytes | bytearray, start: int, count: int) -> RecordScan:
    """Check the `count` records from `start` to the end of `data`; raise `InvalidRecord` for the first invalid one."""
    index, at, size = 0, start, len(data)
    deltas, all_have_keys = set[int](), True
    next_try, pause = 0, 1
    while index < count:
        index, at, have_keys = _pass_plain(data, at, index, count, next_try, deltas)
        all_have_keys = all_have_keys and have_keys
        if index == count:
            break
        try:
            timestamp_delta, has_key, end = _walk_one(data, at, index)
        except IndexError:
            raise InvalidRecord(index, "it is cut short") from None
        except InvalidBatch as error:
            raise InvalidRecord(index, str(error)) from None
        deltas.add(timestamp_delta)
        all_have_keys = all_have_keys and has_key
        index += 1
        if index >= next_try and end < size and data[end] == data[at]:
            run = _measure_run(data, at, end, index, count - index, deltas)
            pause = 1 if run >= _WORTHWHILE else min(2 * pause, _LONGEST_PAUSE)
            index += run
            end += run * (end - at)
            next_try = index + pause
        at = end
    if at != size:
        raise InvalidRecord(count - 1, f"{counted(size - at, 'byte')} after it, the last one")
    return RecordScan(min(deltas), max(deltas), all_have_keys)


def _pass_plain(
    data: bytes | bytearray, at: int, index: int, count: int, next_try: int, deltas: set[int]
) -> tuple[int, int, bool]:
    """Check records one by one while they are valid and their varints short, as most are.

    Return the index and position of the first record that was not checked, and whether all checked ones have keys.
    That record needs the complete parser `_walk_one`, or its index is at least `next_try` and it may have the shape of
    the record before it. Varints are decoded inline: a function call costs as much as the rest of the loop.
    """
    have_keys, last, before = True, -1, -1
    try:
        while index < count:
            size, place, wide = data[at], at + 1, 0
            if size == before and index >= next_try:
                break
            before = size
            if size > 0x7F:
                wide = data[place]
                size, place = size & 0x7F | wide << 7, place + 1
            end = place + (size >> 1)
            delta, place = data[place + 1], place + 2
            if delta > 0x7F:
                high = data[place]
                delta, place, wide = delta & 0x7F | high << 7, place + 1, wide | high
            if index < 64:
                is_next = data[place] == index << 1
                place += 1
            else:
                width = 2 if index < 8192 else 3
                is_next = data[place : place + width] == varint_bytes(index)
                place += width
            key_size = data[place]
            place += 1 + (key_size >> 1)
            value_size = data[place]
            place += 1
            if value_size > 0x7F:
                high = data[place]
                value_size, place, wide = value_size & 0x7F | high << 7, place + 1, wide | high
            place += value_size >> 1
            # Leave to `_walk_one`: negative lengths (odd in zigzag) other than -1, and varints of more bytes than read.
            if (
                not is_next
                or wide > 0x7F
                or size & 1
                or key_size > 0x7F
                or (key_size & 1 and key_size > 1)
                or (value_size & 1 and value_size > 1)
            ):
                break
            if data[place] or place + 1 != end:
                _check_headers(data, place, end)
            if key_size == 1:
                have_keys = False
            if delta != last:
                deltas.add((delta >> 1) ^ -(delta & 1))
                last = delta
            at, index = end, index + 1
    except (IndexError, InvalidBatch):
        # `_walk_one` parses the record that fails here again, and its error describes the reason.
        return index, at, have_keys
    return index, at, have_keys


def _walk_one(data: bytes | bytearray, at: int, index: int) -> tuple[int, bool, int]:
    """Parse the record at `at`; return its timestamp delta, whether it has a key, and the position of its end."""
    length, at = read_varint32(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise InvalidBatch(f"its length {length} does not fit the {len(data) - at} bytes left")
    timestamp_delta, at = read_varint(data, at + 1)
    offset_delta, at = read_varint32(data, at)
    if offset_delta != index:
        raise InvalidBatch(f"its offset delta is {offset_delta}, expected {index}")
    key_size, at = read_varint32(data, at)
    value_size, at = read_varint32(data, at + max(key_size, 0))
    _check_headers(data, at + max(value_size, 0), end)
    return timestamp_delta, key_size >= 0, end


def _check_headers(data: bytes | bytearray, at: int, end: int) -> None:
    count = data[at]
    at += 1
    if count > 0x7F:
        count, at = read_varint32(data, at - 1)
    else:
        count = (count >> 1) ^ -(count & 1)
    if count < 0:
        raise InvalidBatch(f"its header count is {count}")
    while count and at < end:
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = read_varint32(data, at - 1)
        else:
            size = (size >> 1) ^ -(size & 1)
        if size < 0:
            raise InvalidBatch("a header has no key")
        at += size
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = read_varint32(data, at - 1)
        else:
            size = (size >> 1) ^ -(size & 1)
        if size > 0:
            at += size
        count -= 1
    if count or at != end or end > len(data):
        raise InvalidBatch(f"its length ends it at byte {end}, its fields at byte {at}")


def _header_lengths(data: bytes | bytearray, at: int, end: int) -> list[int]:
    """Return the positions of the bytes of the header count and of all header lengths."""
    _, after = read_varint32(data, at)
    places = [*range(at, after)]
    while after < end:
        at = after
        size, after = read_varint32(data, at)
        places += range(at, after)
        after += max(size, 0)
    return places


def _learn_shape(data: bytes | bytearray, at: int, end: int) -> _Shape:
    _, body = read_varint32(data, at)
    _, offset = read_varint(data, body + 1)
    _, key = read_varint32(data, offset)
    key_size, after_key = read_varint32(data, key)
    value = after_key + max(key_size, 0)
    value_size, after_value = read_varint32(data, value)
    places = [
        *range(at, body),
        *range(key, after_key),
        *range(value, after_value),
        *_header_lengths(data, after_value + max(value_size, 0), end),
    ]
    return _Shape(end - at, tuple(place - at for place in places), body + 1 - at, offset - at, key - at)


def _measure_run(data: bytes | bytearray, at: int, end: int, index: int, left: int, deltas: set[int]) -> int:
    """Count how many of the `left` records from `end` on are valid and have the shape of the record in [at, end).

    The first of them is number `index`. The extremes of their timestamp deltas are added to `deltas`. A record that is
    not counted may be valid; the caller has to parse it.
    """
    shape = _learn_shape(data, at, end)
    width = shape.key - shape.offset
    # At 64 (then 8192, ...) the offset delta needs another byte, so the shape ends there.
    left = min(left, (1 << (7 * width - 1)) - index, (len(data) - end) // shape.stride)
    total, tried = 0, _FIRST_TRIED
    while left > 0:
        wanted = min(tried, left)
        run = _match(data, at, end, shape, index, wanted)
        _note_deltas(data, end, shape, run, deltas)
        total, index, left, end = total + run, index + run, left - run, end + run * shape.stride
        if run < wanted:
            break
        tried = min(8 * tried, _MOST_TRIED)
    return total


def _match(data: bytes | bytearray, at: int, end: int, shape: _Shape, index: int, wanted: int) -> int:
    """Return how many of the `wanted` records from `end` have the shape of the one at `at`, compared by columns.

    The last byte of a varint is below 0x80 and its other bytes are not, so timestamp deltas may differ in value but not
    in width. Offset deltas must count up from `index`.
    """
    stride, last_of_timestamp, last_of_offset = shape.stride, shape.offset - 1, shape.key - 1
    for place in shape.lengths:
        wanted = _count(data, end + place, stride, wanted, data[at + place : at + place + 1])
    for place in range(shape.timestamp, shape.offset):
        wanted = _count(data, end + place, stride, wanted, _LOW if place == last_of_timestamp else _HIGH)
    for number, place in enumerate(range(shape.offset, shape.key)):
        column = data[end + place : end + wanted * stride : stride]
        if column != _offset_column(index, wanted, number, place == last_of_offset):
            return 0
    return wanted


def _count(data: bytes | bytearray, place: int, stride: int, wanted: int, allowed: bytes | bytearray) -> int:
    """Return how many bytes at the start of a column are in `allowed`."""
    column = data[place : place + wanted * stride : stride]
    return len(column) - len(column.lstrip(allowed))


def _note_deltas(data: bytes | bytearray, at: int, shape: _Shape, count: int, deltas: set[int]) -> None:
    """Add the smallest and largest timestamp delta of `count` matching records from `at`.

    Zigzag encoding keeps the sign in the lowest bit, and numbers of one sign are ordered by magnitude. The extremes are
    therefore among the smallest and largest even and odd encoded values.
    """
    columns = [
        data[at + place : at + count * shape.stride : shape.stride]
        for place in range(shape.offset - 1, shape.timestamp - 1, -1)
    ]
    found = set(zip(*columns, strict=True))
    for sign in (0, 1):
        same_sign = [digits for digits in found if digits[-1] & 1 == sign]
        if same_sign:
            for digits in (min(same_sign), max(same_sign)):
                deltas.add(read_varint(bytes(digits[::-1]), 0)[0])


def _offset_column(index: int, count: int, number: int, is_last: bool) -> bytes:
    """Return the column of byte `number` of the varints of `count` numbers from `index`."""
    more = 0 if is_last else 0x80
    if number == 0:
        around = (_LOW_BITS * (count // 64 + 2))[index % 64 : index % 64 + count]
        return around if is_last else around.translate(_CONTINUED)
    # Byte `number` is made of the bits of the index from `shift` on, so 2**shift consecutive numbers share it.
    shift = 7 * number - 1
    first = index >> shift
    end = index + count
    return b"".join(
        bytes(((value & 0x7F) | more,)) * (min(value + 1 << shift, end) - max(value << shift, index))
        for value in range(first, (end - 1 >> shift) + 1)
    )
