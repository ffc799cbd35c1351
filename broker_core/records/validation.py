"""The partition leader's checks of a produced batch's records, which identify invalid ones (rules C.1/17 and C.1/18).

All records are scanned once for the facts that the rules need. Only if the scan finds an invalid record are they
checked one by one, to identify the invalid ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker_core.errors import DecompressedTooLarge, InvalidBatch, UnreadableRecords
from broker_core.records.batch import DECOMPRESSED_LIMIT_BYTES, read_section
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
    """Walk all records of the batch at `position`.

    Raises `UnreadableRecords` when they cannot be decompressed, `DecompressedTooLarge` when that takes more than
    `limit_bytes`, `InvalidRecord` at the first that is broken.
    """
    if header.record_count < 1:
        raise InvalidBatch(f"the batch at byte {position} has a record count of {header.record_count}")
    section, start = _section(buffer, position, header, limit_bytes)
    survey = scan_records(section, start, header.record_count)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return RecordSummary(header.max_timestamp, header.max_timestamp, survey.all_have_keys)
    smallest, largest = header.base_timestamp + survey.smallest_delta, header.base_timestamp + survey.largest_delta
    if smallest != _wrapped(smallest) or largest != _wrapped(largest):
        # Where deltas lead out of 64 bits, the extremes are not those of the timestamps.
        timestamps_ms = [each.timestamp_ms for each in iter_record_facts(buffer, position, header)]
        smallest, largest = min(timestamps_ms), max(timestamps_ms)
    # Kafka begins to look for the largest at -1, so that a batch of nothing but older ones says -1.
    return RecordSummary(smallest, max(NO_TIMESTAMP, largest), survey.all_have_keys)


def iter_record_facts(buffer: Bytes, position: int, header: BatchHeader) -> Iterator[RecordFacts]:
    """Yield the facts of each record of a batch that `summarize_records` found sound."""
    section, at = _section(buffer, position, header, DECOMPRESSED_LIMIT_BYTES)
    for _ in range(header.record_count):
        size, at = read_varint32(section, at)
        delta, place = read_varint(section, at + 1)
        _, place = read_varint32(section, place)
        key_size, _ = read_varint32(section, place)
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        yield RecordFacts(header.max_timestamp if stamped else _wrapped(header.base_timestamp + delta), key_size >= 0)
        at += size


def _wrapped(timestamp_ms: int) -> int:
    """Keep the lower 64 bits, as Java does where a hostile delta leads out of them."""
    return (timestamp_ms + (1 << 63)) % (1 << 64) - (1 << 63)


def _section(buffer: Bytes, position: int, header: BatchHeader, limit_bytes: int) -> tuple[bytes, int]:
    """Return bytes that end with the batch's records, and where in them the records begin."""
    end = position + header.size_bytes
    try:
        if header.compression is Compression.NONE and isinstance(buffer, bytes) and end == len(buffer):
            return buffer, position + HEADER_SIZE
        return bytes(read_section(buffer, position, header, limit_bytes)), 0
    except DecompressedTooLarge:
        raise
    except InvalidBatch as error:
        raise UnreadableRecords(str(error)) from None
