"""Check the records of a produced batch as the partition leader must (facts C.1 row 17).

Kafka walks every record of every produced batch. In Python that costs more than a microsecond for each record, several
hundred times the CRC of its bytes, so the walk is whole when it decides something (keys are required) or is cheap (few
records, compressed ones included); otherwise the count and the first records are looked at. A simulation or a test
that feeds damaged bytes asks for `full=True`.
"""

from typing import Final

from broker_core.records.compression import Bytes, Compression
from broker_core.records.header import BatchHeader
from broker_core.records.invalid import InvalidBatch
from broker_core.records.section import read_section
from broker_core.records.varint import read_varint

SMALL_BATCH_RECORDS: Final = 64


def validate_records(
    buffer: Bytes, position: int, header: BatchHeader, *, require_keys: bool, full: bool | None = None
) -> list[tuple[int, str]]:
    """Return what is wrong with the batch's records as (index in the batch, reason); empty when nothing is.

    `full` walks all records or only the first `SMALL_BATCH_RECORDS`; None walks all when keys are required or
    the batch is small, and leaves a larger compressed batch folded. The walk stops at a record whose lengths do not
    add up, for what follows it cannot be found. Never raises for what a client sent.
    """
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        return [(0, f"the header counts {count} records over {header.last_offset_delta + 1} offsets")]
    walk_all = require_keys or count <= SMALL_BATCH_RECORDS if full is None else full
    try:
        if not walk_all and header.compression is not Compression.NONE:
            return []
        section = read_section(buffer, position, header)
    except InvalidBatch as error:
        return [(0, str(error))]
    return _walk(bytes(section), count, count if walk_all else min(count, SMALL_BATCH_RECORDS), require_keys)


def _walk(section: bytes, count: int, wanted: int, require_keys: bool) -> list[tuple[int, str]]:
    errors: list[tuple[int, str]] = []
    at = 0
    for index in range(wanted):
        try:
            offset_delta, has_key, at = _skip_record(section, at)
        except IndexError:
            return [*errors, (index, "the record is cut short")]
        except InvalidBatch as error:
            return [*errors, (index, str(error))]
        if offset_delta != index:
            errors.append((index, f"offset delta is {offset_delta}, expected {index}"))
        elif require_keys and not has_key:
            errors.append((index, "a compacted topic takes no record without a key"))
    if wanted == count and at != len(section):
        errors.append((count - 1, f"{len(section) - at} bytes follow the last record"))
    return errors


def _skip_record(data: bytes, position: int) -> tuple[int, bool, int]:
    """Return offset delta, whether there is a key, and the position after the record at `position`."""
    size, at = read_varint(data, position)
    end = at + size
    if size < 0 or end > len(data):
        raise InvalidBatch(f"record length {size} does not fit the {len(data) - at} bytes left")
    _, at = read_varint(data, at + 1)
    offset_delta, at = read_varint(data, at)
    key_size, at = _skip_field(data, at)
    _, at = _skip_field(data, at)
    headers, at = read_varint(data, at)
    if headers < 0:
        raise InvalidBatch(f"header count is {headers}")
    while headers and at < end:
        name_size, at = _skip_field(data, at)
        if name_size < 0:
            raise InvalidBatch("a header has no key")
        _, at = _skip_field(data, at)
        headers -= 1
    if headers or at != end:
        raise InvalidBatch(f"the record's length says it ends at byte {end}, its fields say byte {at}")
    return offset_delta, key_size >= 0, at


def _skip_field(data: bytes, position: int) -> tuple[int, int]:
    size, at = read_varint(data, position)
    if size < -1:
        raise InvalidBatch(f"field length at byte {position} is {size}")
    return size, at + size if size > 0 else at
