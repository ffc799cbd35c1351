"""An encoded record batch, and the fields that a producer sets before it is sent.

This is separate from the encoder, which a process that only commits does not need.
"""

import struct
from dataclasses import dataclass
from typing import Final

import crc32c

from broker_core.records.header import ATTRIBUTES_POSITION, CRC_POSITION, TRANSACTIONAL_BIT

_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")


@dataclass(slots=True)
class EncodedBatch:
    """A whole record batch; its producer fields and CRC are unset until `seal`."""

    data: bytearray
    record_count: int
    level: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.data)


def seal(batch: EncodedBatch, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """Write the producer fields and the CRC, in place; the result may be sealed again with other values."""
    data = batch.data
    [attributes] = _ATTRIBUTES.unpack_from(data, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(data, ATTRIBUTES_POSITION, attributes | TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(data, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(data, CRC_POSITION, crc32c.crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))
    return data
