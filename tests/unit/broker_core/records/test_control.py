"""Transaction markers compared with known bytes and with kafka-python."""

import struct

import pytest
from kafka.record import MemoryRecords

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.control import ControlType, EndTxnMarker, build_end_txn_marker, parse_end_txn_marker
from broker_core.records.header import BatchHeader, assign_offsets

COMMIT_AT_7 = bytes.fromhex(
    "0000000000000007 00000042 00000000 02 1bd20761 0030 00000000 0000018bcfe56800 0000018bcfe56800"
    "0000000000000fa0 0006 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000003 00"
)


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([NewRecord(key, value)], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)


def parse(data: bytes) -> EndTxnMarker | None:
    return parse_end_txn_marker(data, 0, BatchHeader.parse(data))


# Rules B.5/5 and B.5/6.
def test_commit_marker_is_78_bytes_as_in_kafka() -> None:
    built = build_end_txn_marker(
        commit=True, producer_id=4000, producer_epoch=6, coordinator_epoch=3, timestamp_ms=1700000000000
    )
    assign_offsets(built.data, 0, 7, 0)
    assert built.data == COMMIT_AT_7
    assert len(built.data) == 78


# Rule B.5/1.
@pytest.mark.parametrize("commit", [True, False])
def test_markers_round_trip(commit: bool) -> None:
    data = build_end_txn_marker(
        commit=commit, producer_id=4, producer_epoch=6, coordinator_epoch=9, timestamp_ms=5
    ).data
    assert parse(data) == EndTxnMarker(ControlType.COMMIT if commit else ControlType.ABORT, 9)
    header = BatchHeader.parse(data)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    theirs = next(iter(MemoryRecords(data).next_batch()))
    assert (theirs.commit, theirs.abort) == (commit, not commit)


# Rule B.5/2.
@pytest.mark.parametrize("code", [2, 3, 4, 5, 6, 99, -1])
def test_other_control_types_are_not_markers(code: int) -> None:
    assert parse(control_batch(struct.pack(">hh", 0, code), b"")) is None


# Rule B.5/3.
def test_newer_versions_are_read_as_version_0() -> None:
    data = control_batch(struct.pack(">hh", 3, 1) + b"more", struct.pack(">hi", 2, 8) + b"more")
    assert parse(data) == EndTxnMarker(ControlType.COMMIT, 8)


# Rule B.5/4.
@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"123456"), (b"\x00\x00\x00", b"123456"), (b"\x00\x00\x00\x01", None), (bytes(4), b"12345")],
)
def test_truncated_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        parse(control_batch(key, value))
