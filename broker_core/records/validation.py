"""The partition leader's checks of the records of a produced batch (rules C.1/17 and C.1/18).

`summarize_records` scans a whole batch. `iter_record_facts` yields the same facts record by record; it is slower, and
identifies the records that violate a rule.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker_core.errors import DecompressedTooLarge, InvalidBatch, UnreadableRecords
from broker_core.records.batch import DECOMPRESSED_LIMIT_BYTES, read_section, wrapped
from broker_core.records.compression import Bytes, Compression
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.records.record_scan import scan_records
from broker_core.records.varint import read_varint, read_varint32
from broker_core.types import NO_TIMESTAMP, TimestampType


class RecordSummary(NamedTuple):
    """The leader's facts of all records of a valid batch."""

    min_timestamp_ms: int
    max_timestamp_ms: int
    all_have_keys: bool


class RecordFacts(NamedTuple):
    """The leader's facts of one record."""

    timestamp_ms: int
    has_key: bool


def summarize_records(
    buffer: Bytes, position: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> RecordSummary:
    """Check the structure of all records of the batch at `position`, and return their summary.

    Raises `UnreadableRecords` if they cannot be decompressed, `DecompressedTooLarge` if they decompress to more than
    `limit_bytes`, and `InvalidRecord` for the first malformed record.
    """
    if header.record_count < 1:
        raise InvalidBatch(f"the batch at byte {position} has a record count of {header.record_count}")
    section, start = _section(buffer, position, header, limit_bytes)
    survey = scan_records(section, start, header.record_count)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return RecordSummary(header.max_timestamp, header.max_timestamp, survey.all_have_keys)
    smallest, largest = header.base_timestamp + survey.smallest_delta, header.base_timestamp + survey.largest_delta
    if not -(2**63) <= smallest <= largest < 2**63:
        # Timestamps overflow 64 bits and wrap around, so the extreme deltas do not belong to the extreme timestamps.
        timestamps_ms = [each.timestamp_ms for each in iter_record_facts(buffer, position, header)]
        smallest, largest = min(timestamps_ms), max(timestamps_ms)
    # Kafka starts its search for the largest timestamp at -1, so the result is never below -1.
    return RecordSummary(smallest, max(NO_TIMESTAMP, largest), survey.all_have_keys)


def iter_record_facts(buffer: Bytes, position: int, header: BatchHeader) -> Iterator[RecordFacts]:
    """Yield the facts of each record of a batch that `summarize_records` accepted."""
    section, at = _section(buffer, position, header, DECOMPRESSED_LIMIT_BYTES)
    for _ in range(header.record_count):
        size, at = read_varint32(section, at)
        delta, place = read_varint(section, at + 1)
        _, place = read_varint32(section, place)
        key_size, _ = read_varint32(section, place)
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        yield RecordFacts(header.max_timestamp if stamped else wrapped(header.base_timestamp + delta), key_size >= 0)
        at += size


def _section(buffer: Bytes, position: int, header: BatchHeader, limit_bytes: int) -> tuple[bytes | bytearray, int]:
    """Return bytes that end with the batch's records, and the position in them at which the records begin."""
    end = position + header.size_bytes
    try:
        if header.compression is Compression.NONE and isinstance(buffer, bytes | bytearray) and end == len(buffer):
            return buffer, position + HEADER_SIZE
        return bytes(read_section(buffer, position, header, limit_bytes)), 0
    except DecompressedTooLarge:
        raise
    except InvalidBatch as error:
        raise UnreadableRecords(str(error)) from None
