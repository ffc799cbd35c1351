"""The 61-byte header of a record batch, which is read and modified without parsing the records.

The broker's produce and fetch paths meet every batch only here: one `struct` call reads all thirteen fields, and the
offsets are written in place into the bytes that came from the wire. That is cheap because Kafka left the base offset
and the leader epoch outside the CRC (KIP-98), which is then only computed again when the broker stamps the batch.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

import crc32c

from broker_core.errors import InvalidBatch
from broker_core.records.compression import Bytes, Compression
from broker_core.types import NO_SEQUENCE, TimestampType, counted, next_sequence

__all__ = [
    "ATTRIBUTES_POSITION",
    "CONTROL_BIT",
    "COVERED",
    "CRC_POSITION",
    "FRONT",
    "HEADER",
    "HEADER_SIZE",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME_BIT",
    "MAGIC",
    "MAGIC_POSITION",
    "TRANSACTIONAL_BIT",
    "BatchHeader",
    "assign_offsets",
    "check_crcs",
    "crc_matches",
    "framed_size",
    "iter_headers",
    "write_crc",
    "write_producer",
    "write_timestamps",
]

# The header in two parts: the fields up to the CRC, and the fields that it covers, with the records.
FRONT: Final = struct.Struct(">qiibI")
COVERED: Final = struct.Struct(">hiqqqhii")
HEADER: Final = struct.Struct(FRONT.format + COVERED.format.removeprefix(">"))
HEADER_SIZE: Final = 61
# The base offset and the batch length, which `batch_length` does not include.
LENGTH_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAGIC: Final = 2
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

_LENGTH_POSITION: Final = 8
_LEADER_EPOCH_POSITION: Final = 12
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43
_CODEC_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
_DELETE_HORIZON_BIT: Final = 0x40
_DEFINED_BITS: Final = 0x7F
_CODECS: Final = tuple(Compression)
# The shortest batch length that Kafka accepts: the length of a batch of magic 0.
_SHORTEST_LENGTH: Final = 14
_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_EPOCH: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qh")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """One batch's header fields in wire order (rules B.4)."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, buffer: Bytes, position: int = 0) -> Self:
        """Read the header at `position`; the buffer need not contain the records.

        Raises `InvalidBatch` if fewer than 61 bytes are left, the magic is not 2, or the length is too small.
        """
        try:
            # What `_make` does, which is a function in Python.
            header = tuple.__new__(cls, HEADER.unpack_from(buffer, position))
        except struct.error:
            raise _too_short(buffer, position) from None
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise _not_a_batch(header, position)
        return header

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 if the batch has no sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Return whether the batch contains control records, which consumers do not return."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Return whether the base timestamp is the delete horizon: when compaction may remove tombstones (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON_BIT)

    @property
    def has_codec(self) -> bool:
        return self.attributes & _CODEC_BITS < len(_CODECS)

    @property
    def compression(self) -> Compression:
        """Return the codec; raise `InvalidBatch` if the codec bits are unknown."""
        code = self.attributes & _CODEC_BITS
        if code >= len(_CODECS):
            raise InvalidBatch(f"compression code {code} is not one of Kafka's codecs (0 to {len(_CODECS) - 1})")
        return _CODECS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        """Return whether the timestamps were set by the producer or by the broker."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def has_producer(self) -> bool:
        """Return whether the batch has a producer id, so that its sequence must be checked."""
        return self.producer_id >= 0


def _too_short(buffer: Bytes, position: int) -> InvalidBatch:
    left = max(len(buffer) - position, 0)
    return InvalidBatch(
        f"{counted(left, 'byte')} at byte {position}: too few for a batch header of {HEADER_SIZE} bytes"
    )


def _not_a_batch(header: BatchHeader, position: int) -> InvalidBatch:
    if header.magic != MAGIC:
        return InvalidBatch(f"magic {header.magic} at byte {position}: only record batches of magic {MAGIC} are read")
    return InvalidBatch(f"batch length {header.batch_length} at byte {position} cannot hold a batch header")


def iter_headers(buffer: Bytes, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch from `start`.

    A fetch response and a torn log may end within a batch, so an incomplete last batch ends the iteration without an
    error. Raises `InvalidBatch` for an invalid magic or length.
    """
    position = start
    end = len(buffer)
    parse = BatchHeader.parse
    while end - position >= HEADER_SIZE:
        header = parse(buffer, position)
        next_position = position + header.batch_length + LENGTH_OVERHEAD
        if next_position > end:
            return
        yield position, header
        position = next_position


def framed_size(buffer: Bytes, position: int = 0) -> int | None:
    """Return the size of the batch that a client sent at `position`, None if it is incomplete.

    Kafka drops an incomplete batch at the end without an error; this checks the same fields as Kafka. Raises
    `InvalidBatch` for an invalid length or magic.
    """
    left = len(buffer) - position
    if left < LENGTH_OVERHEAD:
        return None
    length: int = _LENGTH.unpack_from(buffer, position + _LENGTH_POSITION)[0]
    if length < _SHORTEST_LENGTH:
        raise InvalidBatch(f"Record size {length} is less than the minimum record overhead ({_SHORTEST_LENGTH})")
    if left <= MAGIC_POSITION:
        return None
    if buffer[position + MAGIC_POSITION] > MAGIC:
        raise InvalidBatch(f"magic {buffer[position + MAGIC_POSITION]} at byte {position} is not between 0 and {MAGIC}")
    size_bytes = length + LENGTH_OVERHEAD
    return size_bytes if size_bytes <= left else None


def crc_matches(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    """Return whether the buffer contains the whole batch and its CRC-32C matches the header."""
    end = position + header.size_bytes
    if end > len(buffer):
        return False
    return bool(crc32c.crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc)


def check_crcs(buffer: Bytes, batches: Iterable[tuple[int, BatchHeader]]) -> None:
    """Raise `InvalidBatch` for the first batch, by position and header, whose CRC-32C does not match.

    The CRC covers the header, so what the header says is believed only after this.
    """
    for position, header in batches:
        if not crc_matches(buffer, position, header):
            problem = f"the CRC-32C is not {header.crc:#010x}, or the batch is truncated"
            raise InvalidBatch(f"the batch at offset {header.base_offset} is corrupt: {problem}")


def assign_offsets(
    buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Write base offset and leader epoch in place; the leader assigns both, and the CRC does not cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, partition_leader_epoch)


def write_timestamps(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    timestamp_type: TimestampType,
    max_timestamp_ms: int,
) -> BatchHeader:
    """Write timestamp type and largest timestamp in place, with a new CRC; return the changed header.

    The CRC covers no other field that a broker writes. Unknown attribute bits are cleared, as in Kafka.
    """
    stamped = LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    attributes = header.attributes & _DEFINED_BITS & ~LOG_APPEND_TIME_BIT | stamped
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    crc = write_crc(buffer, position, header.size_bytes)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp_ms, crc=crc)


def write_producer(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, producer_id: int, producer_epoch: int
) -> BatchHeader:
    """Write producer id and epoch in place, with a new CRC; return the changed header."""
    _PRODUCER.pack_into(buffer, position + _PRODUCER_POSITION, producer_id, producer_epoch)
    crc = write_crc(buffer, position, header.size_bytes)
    return header._replace(producer_id=producer_id, producer_epoch=producer_epoch, crc=crc)


def write_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> int:
    crc: int = crc32c.crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)
    return crc
