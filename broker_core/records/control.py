"""Control records: the markers that end a transaction in a partition (KIP-98)."""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from broker_core.errors import InvalidBatch
from broker_core.records.batch import BuiltBatch, build_single, read_records
from broker_core.records.compression import Bytes
from broker_core.records.header import BatchHeader

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records that end transactions; other types have no effect on a partition."""

    ABORT = 0
    COMMIT = 1


class EndTxnMarker(NamedTuple):
    """The content of a marker: commit or abort, and the coordinator epoch."""

    control_type: ControlType
    coordinator_epoch: int


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> BuiltBatch:
    """Build the 78-byte batch that commits or aborts a producer's transaction in one partition."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    return build_single(
        _KEY.pack(0, control_type),
        _VALUE.pack(0, coordinator_epoch),
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_type_of(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key; None for types that do not end a transaction (rules B.5)."""
    if key is None or len(key) < _KEY.size:
        return None
    code = _KEY.unpack_from(key)[1]
    return ControlType(code) if code in tuple(ControlType) else None


def parse_end_txn_marker(buffer: Bytes, position: int, header: BatchHeader) -> EndTxnMarker | None:
    """Return the marker in a control batch; None for control types that do not end a transaction (rules B.5).

    Versions above 0 are read as version 0, as in Kafka, so that logs of newer brokers can be read. Raises
    `InvalidBatch` if the key is missing, or if a commit or abort has no coordinator epoch.
    """
    record = next(iter(read_records(buffer, position, header)), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise InvalidBatch(f"the control batch at byte {position} has no control record key of {_KEY.size} bytes")
    control_type = control_type_of(record.key)
    if control_type is None:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise InvalidBatch(f"the marker at byte {position} has no coordinator epoch in its value")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTxnMarker(control_type, coordinator_epoch)
