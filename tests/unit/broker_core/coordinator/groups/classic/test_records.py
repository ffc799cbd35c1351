"""The records of `__consumer_offsets` are Kafka's, byte for byte (rules B.3)."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.classic.records import (
    GroupMetadata,
    RecordedMember,
    group_record,
    read_group_metadata,
)
from broker_core.coordinator.groups.offsets.store import (
    OffsetKey,
    OffsetValue,
    offset_record,
    read_offset_key,
    read_offset_value,
)
from broker_core.errors import DamageError
from broker_core.types import TopicPartition

TOPIC_ID = UUID(int=0xAB)
KEY = OffsetKey("group-1", TopicPartition("t", 0))
STAMP_MS = 1_700_000_000_000
STAMP = "0000018bcfe56800"
MEMBER = RecordedMember("m-1", "i", "c", "/h", 60_000, 10_000, b"sub", b"asg")
METADATA = GroupMetadata("consumer", 7, "range", "m-1", STAMP_MS, (MEMBER,))


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# Rules B.3/1 and B.3/2.
def test_offset_record_bytes_match_the_rules():
    value = OffsetValue(42, -1, "", STAMP_MS, topic_id=TOPIC_ID)
    record = offset_record(KEY, value)
    assert record.key == unhex("0001 0007 67726f75702d31 0001 74 00000000")
    assert record.value == unhex(f"0004 000000000000002a ffffffff 01 0000018bcfe56800 01 00 10 {TOPIC_ID.hex}")
    older = offset_record(KEY, value, with_topic_id=False)
    assert older.value == unhex("0003 000000000000002a ffffffff 0000 0000018bcfe56800")


def test_tombstone_has_no_value():
    assert offset_record(KEY, None).value is None
    assert group_record("g", None) == (unhex("0002 0001 67"), None)


# Rule B.3/3.
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (f"0000 000000000000002a 0001 6d {STAMP}", OffsetValue(42, -1, "m", STAMP_MS)),
        (f"0001 000000000000002a 0001 6d {STAMP} {STAMP}", OffsetValue(42, -1, "m", STAMP_MS, STAMP_MS)),
        (f"0002 000000000000002a 0001 6d {STAMP}", OffsetValue(42, -1, "m", STAMP_MS)),
        (f"0003 000000000000002a 00000009 0001 6d {STAMP}", OffsetValue(42, 9, "m", STAMP_MS)),
        (f"0004 000000000000002a ffffffff 01 {STAMP} 00", OffsetValue(42, -1, "", STAMP_MS)),
        (
            f"0004 000000000000002a ffffffff 026d {STAMP} 01 00 10 {TOPIC_ID.hex}",
            OffsetValue(42, -1, "m", STAMP_MS, topic_id=TOPIC_ID),
        ),
    ],
)
def test_every_version_of_an_offset_is_read(data: str, value: OffsetValue):
    assert read_offset_value(unhex(data)) == value


# Rule B.3/3.
def test_explicit_retention_is_written_as_version_1():
    value = OffsetValue(42, -1, "m", STAMP_MS, STAMP_MS + 1)
    data = offset_record(KEY, value).value
    assert data == unhex(f"0001 000000000000002a 0001 6d {STAMP} 0000018bcfe56801")
    assert read_offset_value(data) == value


# Rule B.3/4.
@pytest.mark.parametrize("key_type", ["0000", "0001"])
def test_both_types_of_offset_keys_are_read(key_type: str):
    assert read_offset_key(unhex(f"{key_type} 0007 67726f75702d31 0001 74 00000000")) == KEY


# Rule B.3/5.
def test_group_metadata_is_written_as_version_3():
    key, value = group_record("g", METADATA)
    assert key == unhex("0002 0001 67")
    assert value == unhex(
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31" + STAMP + "00000001"
        "0003 6d2d31 0001 69 0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000003 617367"
    )


def test_empty_group_has_neither_protocol_nor_leader():
    _, value = group_record("g", GroupMetadata("consumer", 8, None, None, STAMP_MS, ()))
    assert value == unhex(f"0003 0008 636f6e73756d6572 00000008 ffff ffff {STAMP} 00000000")


HEAD = "0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31"
ONE, CLIENT, TIMES = "00000001 0003 6d2d31", "0001 63 0002 2f68", "0000ea60 00002710"
BODY = "00000003 737562 00000003 617367"
FLEXIBLE = "09 636f6e73756d6572 00000007 06 72616e6765 04 6d2d31"
FLEXIBLE_MEMBER = "02 04 6d2d31 02 69 02 63 03 2f68 0000ea60 00002710 04 737562 04 617367 00 00"
DYNAMIC = MEMBER._replace(group_instance_id=None)


# Rule B.3/5.
@pytest.mark.parametrize(
    ("data", "since_ms", "member"),
    [
        (f"0000 {HEAD} {ONE} {CLIENT} 00002710 {BODY}", -1, DYNAMIC._replace(rebalance_timeout_ms=10_000)),
        (f"0001 {HEAD} {ONE} {CLIENT} {TIMES} {BODY}", -1, DYNAMIC),
        (f"0002 {HEAD} {STAMP} {ONE} {CLIENT} {TIMES} {BODY}", STAMP_MS, DYNAMIC),
        (f"0003 {HEAD} {STAMP} {ONE} ffff {CLIENT} {TIMES} {BODY}", STAMP_MS, DYNAMIC),
        (f"0004 {FLEXIBLE} {STAMP} {FLEXIBLE_MEMBER}", STAMP_MS, MEMBER),
    ],
)
def test_every_version_of_group_metadata_is_read(data: str, since_ms: int, member: RecordedMember):
    assert read_group_metadata(unhex(data)) == METADATA._replace(state_since_ms=since_ms, members=(member,))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "00",
        "0005 000000000000002a",
        "ffff 00",
        "0003 000000000000002a",
        f"0003 000000000000002a ffffffff ffff {STAMP}",
        f"0003 000000000000002a ffffffff 0001 ff {STAMP}",
    ],
)
def test_damaged_offset_is_reported(data: str):
    with pytest.raises(DamageError):
        read_offset_value(unhex(data))


@pytest.mark.parametrize("data", ["0005", f"0003 {HEAD} {STAMP} 00000001", f"0003 {HEAD} {STAMP} 7fffffff"])
def test_damaged_group_metadata_is_reported(data: str):
    with pytest.raises(DamageError):
        read_group_metadata(unhex(data))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


@given(
    TEXT,
    TEXT,
    INT32,
    st.builds(OffsetValue, INT64, st.integers(-1, 9), TEXT, INT64, st.just(-1), st.none() | st.uuids()),
)
def test_offsets_round_trip(group_id: str, topic: str, partition: int, value: OffsetValue):
    key = OffsetKey(group_id, TopicPartition(topic, partition))
    record = offset_record(key, value)
    assert read_offset_key(record.key) == key
    assert record.value is not None
    assert read_offset_value(record.value) == value
    older = offset_record(key, value, with_topic_id=False).value
    assert older is not None
    assert read_offset_value(older) == value._replace(topic_id=None)
