"""Batches rewritten with some of their records, for compaction.

Offsets and sequences stay the same, so that readers, indexes and producer state are not affected. A record is
copied unchanged; only if a delete horizon replaces the base timestamp (KIP-534), its timestamp is rewritten.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import crc32c

from broker_core.errors import InvalidBatch
from broker_core.records.compression import compress
from broker_core.records.header import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from broker_core.records.varint import append_varint, read_varint, read_varint32
from broker_core.types import NO_TIMESTAMP, TimestampType

_DELETE_HORIZON_BIT: Final = 0x40
_KEPT_WHEN_EMPTY: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class RawRecord(NamedTuple):
    """One record in its section: [start, end) includes its length, `rest` is the position after the timestamp."""

    start: int
    end: int
    attributes: int
    timestamp_delta: int
    rest: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def walk_records(section: bytes, record_count: int) -> Iterator[RawRecord]:
    """Yield each record of a decompressed section; raise `InvalidBatch` if they do not fill it."""
    at = 0
    try:
        for _ in range(record_count):
            start = at
            size, at = read_varint32(section, at)
            if size < 0:
                raise InvalidBatch(f"a record has length {size}")
            timestamp_delta, rest = read_varint(section, at + 1)
            offset_delta, place = read_varint32(section, rest)
            key_size, place = read_varint32(section, place)
            key = None if key_size < 0 else section[place : place + key_size]
            value_size, _ = read_varint32(section, place + max(key_size, 0))
            yield RawRecord(start, at + size, section[at], timestamp_delta, rest, offset_delta, key, value_size >= 0)
            at += size
    except IndexError:
        raise InvalidBatch("a record is cut short") from None
    if at != len(section):
        raise InvalidBatch(f"the records end at byte {at} of {len(section)}")


def rewrite(header: BatchHeader, section: bytes, records: Sequence[RawRecord], delete_horizon_ms: int | None) -> bytes:
    """Return the batch with only these records of its section, and with the delete horizon if one is given."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | _DELETE_HORIZON_BIT, delete_horizon_ms
    body = bytearray()
    for record in records:
        if delete_horizon_ms is None:
            body += section[record.start : record.end]
            continue
        inner = bytearray([record.attributes])
        append_varint(inner, header.base_timestamp + record.timestamp_delta - base_timestamp)
        inner += section[record.rest : record.end]
        append_varint(body, len(inner))
        body += inner
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in records)
    return _seal(
        header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(records)
        ),
        compress(header.compression, body),
    )


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without records, which keeps the epoch and sequence of a live producer."""
    return _seal(
        header._replace(attributes=header.attributes & _KEPT_WHEN_EMPTY, base_timestamp=NO_TIMESTAMP, record_count=0),
        b"",
    )


def _seal(header: BatchHeader, body: bytes) -> bytes:
    sized = header._replace(batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(body))
    covered = HEADER.pack(*sized)[ATTRIBUTES_POSITION:]
    return HEADER.pack(*sized._replace(crc=crc32c.crc32c(body, crc32c.crc32c(covered)))) + body
