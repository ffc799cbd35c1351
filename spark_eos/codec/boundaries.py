"""Find where records end: the one loop over records in this room.

Each record's place follows from the length of the one before, so no vector operation finds them directly. Doubling
pointers over all bytes does, and was measured at fifteen to twenty times the cost of this loop for records of a hundred
bytes; `numpy.fromiter` over a generator, or a list in place of the array, came within a tenth of it.
"""

from array import array

from broker_core.records.invalid import InvalidBatch


def find_record_ends_one_by_one(
    data: bytes | bytearray | memoryview, start: int, end: int, count: int, ends: "array[int]"
) -> None:
    """Append the end position of each of the `count` records between `start` and `end`.

    Raises `InvalidBatch` when the lengths do not lead from `start` to exactly `end`.
    """
    position = start
    append = ends.append
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                # Records of 64 to 8191 bytes, most of all: two bytes hold 6 and 7 bits of their length.
                position += 2 + (byte >> 1 & 0x3F) + (second << 6)
            else:
                unsigned = byte & 0x7F
                shift = 7
                while True:
                    position += 1
                    byte = data[position]
                    if byte < 0x80:
                        break
                    unsigned |= (byte & 0x7F) << shift
                    shift += 7
                position += 1 + ((unsigned | byte << shift) >> 1)
            append(position)
    except (IndexError, OverflowError):
        position = -1
    if position != end:
        raise InvalidBatch(f"the lengths of {count} records do not fill the {end - start} bytes of their batch")
