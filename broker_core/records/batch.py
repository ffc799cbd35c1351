"""Functions that build and read whole batches, record by record, in Python.

They are for small batches: the broker's internal topics, control records and tests. The broker does not build records
from client data, and `spark_eos` has a vectorized codec for Spark's data.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import crc32c

from broker_core.errors import InvalidBatch
from broker_core.records.compression import Bytes, Compression, compress, decompress
from broker_core.records.header import (
    CONTROL_BIT,
    COVERED,
    FRONT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from broker_core.records.varint import append_varint, read_varint, read_varint32, varint_bytes
from broker_core.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
    counted,
)

# Far more than a batch of the default max.message.bytes contains, and far less than the memory of a test process.
DECOMPRESSED_LIMIT_BYTES: Final = 256 * 1024 * 1024
# The largest signed number of 64 bits is one less; the smallest is its negative.
_SIGN: Final = 1 << 63

Headers = tuple[tuple[str, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = NO_TIMESTAMP


class Record(NamedTuple):
    """A record as read from a log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Build one batch, CRC included.

    `offset_deltas` and `last_offset_delta` make a batch as compaction leaves it. By default the deltas count up from 0.
    Raises `ValueError` if there are no records.
    """
    if not records:
        raise ValueError("a record batch needs at least one record")
    base_timestamp = records[0].timestamp_ms
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    section = bytearray()
    for delta, record in zip(deltas, records, strict=True):
        _append_record(section, record, delta, wrapped(record.timestamp_ms - base_timestamp))
    body = compress(compression, section, compression_level)
    attributes = compression | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
    attributes |= (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    covered = COVERED.pack(
        attributes,
        deltas[-1] if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c.crc32c(body, crc32c.crc32c(covered))
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(body)
    return b"".join((FRONT.pack(base_offset, length, partition_leader_epoch, MAGIC, crc), covered, body))


class BuiltBatch(NamedTuple):
    """A batch that was just built, and its header, which the log then need not read from the bytes."""

    data: bytearray
    header: BatchHeader


def build_single(
    key: bytes,
    value: bytes | None,
    timestamp_ms: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> BuiltBatch:
    """Build an uncompressed batch of one record without headers, as coordinators write them, CRC included.

    It takes 1.7 µs, `build_batch` 3.8 µs without the header, and each small transaction needs four.
    """
    body = b"".join(
        (
            # No attributes, and the batch's own timestamp and offset.
            b"\0\0\0",
            varint_bytes(len(key)),
            key,
            varint_bytes(-1 if value is None else len(value)),
            value or b"",
            b"\0",
        )
    )
    record = varint_bytes(len(body)) + body
    attributes = (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    covered = (attributes, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, 1)
    packed = COVERED.pack(*covered)
    crc = crc32c.crc32c(record, crc32c.crc32c(packed))
    front = (0, HEADER_SIZE - LENGTH_OVERHEAD + len(record), NO_LEADER_EPOCH, MAGIC, crc)
    data = bytearray().join((FRONT.pack(*front), packed, record))
    return BuiltBatch(data, tuple.__new__(BatchHeader, front + covered))


def _append_record(section: bytearray, record: NewRecord, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(b"\x00")
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode())
        _append_bytes(body, value)
    append_varint(section, len(body))
    section += body


def _append_bytes(body: bytearray, data: bytes | None) -> None:
    if data is None:
        append_varint(body, -1)
    else:
        append_varint(body, len(data))
        body += data


def read_section(
    buffer: Bytes, position: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> bytes | memoryview:
    """Return the decompressed records section; raise `InvalidBatch` if it is truncated or cannot be decompressed."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise InvalidBatch(f"the batch at byte {position} ends at byte {end}, the buffer at byte {len(buffer)}")
    section = memoryview(buffer)[position + HEADER_SIZE : end]
    codec = header.compression
    return section if codec is Compression.NONE else decompress(codec, section, limit_bytes)


def read_records(buffer: Bytes, position: int, header: BatchHeader) -> list[Record]:
    """Return all records of the batch at `position`; raise `InvalidBatch`, which names the invalid record."""
    section = bytes(read_section(buffer, position, header))
    stamp = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    records: list[Record] = []
    at = 0
    for index in range(header.record_count):
        try:
            record, at = _read_record(section, at, header)
        except (IndexError, InvalidBatch) as error:
            raise InvalidBatch(f"record {index} of the batch at byte {position}: {_reason(error)}") from None
        records.append(record if stamp is None else record._replace(timestamp_ms=stamp))
    if at != len(section):
        raise InvalidBatch(
            f"{counted(len(section) - at, 'byte')} after the last record of the batch at byte {position}"
        )
    return records


def wrapped(timestamp_ms: int) -> int:
    """Return the lower 64 bits as a signed number: a delta may overflow, and Java wraps around."""
    return (timestamp_ms + _SIGN) % (2 * _SIGN) - _SIGN


def _reason(error: Exception) -> str:
    return "it is cut short" if isinstance(error, IndexError) else str(error)


def _read_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    size, at = read_varint32(data, position)
    end = at + size
    timestamp_delta, at = read_varint(data, at + 1)
    offset_delta, at = read_varint32(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = read_varint32(data, at)
    if count < 0:
        raise InvalidBatch(f"header count is {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise InvalidBatch("a header has no key")
        header_value, at = _read_bytes(data, at)
        # As Java reads it.
        headers.append((name.decode(errors="replace"), header_value))
    if at != end:
        raise InvalidBatch(f"its length ends it at byte {end}, its fields at byte {at}")
    timestamp_ms = wrapped(header.base_timestamp + timestamp_delta)
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers)), at


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, at = read_varint32(data, position)
    if size < 0:
        # Kafka reads any negative length as null, so logs may contain such records.
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size
