"""The leader's validation of the records of a produced batch (rules C.1/16 to C.1/18)."""

import struct

import pytest

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, BatchHeader, crc_matches, framed_size, write_timestamps
from broker_core.records.record_scan import InvalidRecord
from broker_core.records.validation import RecordFacts, RecordSummary, iter_record_facts, summarize_records
from broker_core.records.varint import varint_bytes
from broker_core.types import TimestampType

ALL_CODECS = pytest.mark.parametrize("codec", list(Compression))


def summary_of(data: bytes) -> RecordSummary:
    return summarize_records(data, 0, BatchHeader.parse(data))


def with_attributes(data: bytes, attributes: int) -> bytes:
    return data[:21] + struct.pack(">h", attributes) + data[23:]


@ALL_CODECS
def test_batch_summary_matches_its_records(codec: Compression) -> None:
    data = build_batch([NewRecord(b"k", b"v", (("h", None),), at) for at in (5, 3, 9, 4)] * 30, compression=codec)
    assert summary_of(data) == RecordSummary(3, 9, True)
    facts = list(iter_record_facts(data, 0, BatchHeader.parse(data)))
    assert facts == [RecordFacts(at, True) for at in (5, 3, 9, 4)] * 30


@ALL_CODECS
def test_missing_keys_are_detected_at_any_position(codec: Compression) -> None:
    records = [NewRecord(b"k", b"v")] * 200 + [NewRecord(None, b"v"), NewRecord(b"", b"v")]
    data = build_batch(records, compression=codec)
    assert not summary_of(data).all_have_keys
    assert [fact.has_key for fact in iter_record_facts(data, 0, BatchHeader.parse(data))][-3:] == [True, False, True]


def test_summary_ignores_header_fields_derived_from_records() -> None:
    data = build_batch([NewRecord(b"k", b"v", (), at) for at in (10, 20)])
    for lie in (0, 15, 10**6):
        assert summary_of(data[:35] + struct.pack(">q", lie) + data[43:]).max_timestamp_ms == 20


def test_log_append_time_header_overrides_record_timestamps() -> None:
    data = with_attributes(build_batch([NewRecord(b"k", b"v", (), at) for at in (10, 20)]), 8)
    assert summary_of(data) == RecordSummary(20, 20, True)
    assert [fact.timestamp_ms for fact in iter_record_facts(data, 0, BatchHeader.parse(data))] == [20, 20]


def test_timestamps_below_minus_one() -> None:
    data = build_batch([NewRecord(b"k", b"v", (), -5), NewRecord(b"k", b"v", (), -3)])
    assert summary_of(data) == RecordSummary(-5, -1, True)


def test_timestamps_beyond_64_bits_wrap() -> None:
    data = build_batch([NewRecord(b"k", b"v", (), 0), NewRecord(b"k", b"v", (), 7)])
    data = data[:27] + struct.pack(">q", 2**63 - 5) + data[35:]
    assert summary_of(data) == RecordSummary(-(2**63) + 2, 2**63 - 5, True)


def test_malformed_record_is_reported_with_its_index() -> None:
    data = build_batch([NewRecord(b"k", b"v")] * 300, offset_deltas=[*range(298), 5, 299])
    with pytest.raises(InvalidRecord, match="record 298 .* offset delta is 5") as caught:
        summary_of(data)
    assert caught.value.index == 298


@pytest.mark.parametrize("before", [0, 8, 0x30, 0x40, 0x7F80])
@pytest.mark.parametrize("kind", list(TimestampType))
def test_timestamps_are_written_in_place(before: int, kind: TimestampType) -> None:
    data = bytearray(b"???" + with_attributes(build_batch([NewRecord(b"k", b"v", (), 5)]), before))
    header = write_timestamps(data, 3, BatchHeader.parse(data, 3), kind, 77)
    assert header == BatchHeader.parse(data, 3)
    assert crc_matches(data, 3, header)
    assert (header.timestamp_type, header.max_timestamp) == (kind, 77)
    assert header.attributes & ~8 == before & 0x77


WHOLE = build_batch([NewRecord(b"k", b"v")])
FRAMES: list[tuple[bytes, int | None]] = [
    (b"", None),
    (WHOLE[:11], None),
    (WHOLE[:12], None),
    (WHOLE[:16], None),
    (WHOLE[:-1], None),
    (WHOLE, len(WHOLE)),
    (WHOLE + b"x", len(WHOLE)),
    (WHOLE[:16] + b"\0" + WHOLE[17:], len(WHOLE)),
    (bytes(11), None),
]


@pytest.mark.parametrize(("data", "size"), FRAMES)
def test_batch_boundaries_are_found(data: bytes, size: int | None) -> None:
    assert framed_size(b"??" + data, 2) == size


@pytest.mark.parametrize(
    "data",
    [
        bytes(12),
        WHOLE[:8] + struct.pack(">i", 13) + WHOLE[12:],
        b"\xff" * 70,
        WHOLE[:16] + b"\3" + WHOLE[17:],
        WHOLE[:16] + b"\xff" + WHOLE[17:],
    ],
)
def test_impossible_batches_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        framed_size(data)


def test_deltas_beyond_64_bits_do_not_hide_a_timestamp() -> None:
    """Java drops the excess bits, so the largest delta need not be that of the largest timestamp."""
    now_ms = 1_700_000_000_000
    far_ms = 10**13
    bodies = [
        b"\0" + delta + offset + b"\1\1\0"
        for delta, offset in ((b"\0", b"\0"), (varint_bytes(far_ms), b"\2"), (b"\x80" * 9 + b"\x04", b"\4"))
    ]
    section = b"".join(bytes([2 * len(body)]) + body for body in bodies)
    sound = build_batch([NewRecord(None, None, (), now_ms)] * 3)
    data = bytearray(sound[:HEADER_SIZE] + section)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    header = BatchHeader.parse(bytes(data), 0)
    summary = summarize_records(bytes(data), 0, header)
    assert (summary.min_timestamp_ms, summary.max_timestamp_ms) == (now_ms, now_ms + far_ms)


@pytest.mark.parametrize("count", [0, -1])
def test_batch_with_a_record_count_of_zero_is_refused(count: int):
    """Found by fuzzing: an empty batch has no smallest timestamp."""
    data = bytearray(build_batch([NewRecord(b"k", b"v", (), 5)]))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidBatch, match=f"a record count of {count}"):
        summarize_records(bytes(data), 0, BatchHeader.parse(data))
