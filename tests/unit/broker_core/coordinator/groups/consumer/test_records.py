"""The records of consumer groups, byte for byte, and what older and newer versions of Kafka add to them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.consumer.records import (
    CONSUMER_RECORDS,
    ClassicMetadata,
    Current,
    GroupEpoch,
    RecordType,
    ResolvedRegex,
    Subscription,
    TopicIdPartition,
)
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.groups.modern_records import RecordKey, TargetEpoch
from broker_core.coordinator.groups.shard import KafkaRecords, formats_of, in_older_form
from broker_core.errors import DamageError
from tests.support.examples import examples

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
texts = st.text(max_size=20)
numbers = st.integers(-2, 2**31 - 1)
partitions = st.builds(TopicIdPartition, st.uuids(), st.integers(0, 100))
held = st.dictionaries(partitions, numbers, max_size=5)
VALUES = {
    RecordType.GROUP_EPOCH: st.builds(GroupEpoch, numbers, st.integers(-(2**63), 2**63 - 1)),
    RecordType.MEMBER: st.builds(
        Subscription,
        st.none() | texts,
        st.none() | texts,
        texts,
        texts,
        st.lists(texts, max_size=3).map(tuple),
        texts,
        numbers,
        st.none() | texts,
        st.none()
        | st.builds(
            ClassicMetadata, st.integers(0, 2**31 - 1), st.lists(st.tuples(texts, st.binary()), max_size=3).map(tuple)
        ),
    ),
    RecordType.TARGET_EPOCH: st.builds(TargetEpoch, numbers, st.integers(0, 2**63 - 1)),
    RecordType.TARGET: st.frozensets(partitions, max_size=5),
    RecordType.CURRENT: st.builds(Current, numbers, numbers, st.sampled_from(MemberState), held, held),
    RecordType.REGULAR_EXPRESSION: st.builds(
        ResolvedRegex, st.lists(texts, max_size=3).map(tuple), numbers, st.integers(0, 2**63 - 1)
    ),
}


@pytest.mark.parametrize("kind", sorted(VALUES))
@examples(40)
@given(data=st.data(), group_id=texts, part=texts)
def test_written_records_are_read_back(kind, data, group_id, part):
    value = data.draw(VALUES[kind])
    has_part = kind in (RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT, RecordType.REGULAR_EXPRESSION)
    key = RecordKey(kind, group_id, part if has_part else "")
    record = CONSUMER_RECORDS.record(key, value)
    assert record.value is not None
    assert (CONSUMER_RECORDS.read_key(record.key), CONSUMER_RECORDS.read_value(kind, record.value)) == (key, value)
    assert CONSUMER_RECORDS.record(key, None) == (record.key, None)


GROUP, TARGET_OF_GROUP = RecordKey(RecordType.GROUP_EPOCH, "g"), RecordKey(RecordType.TARGET_EPOCH, "g")
MEMBER, TARGET, CURRENT = (
    RecordKey(kind, "g", "m") for kind in (RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT)
)
PATTERN = RecordKey(RecordType.REGULAR_EXPRESSION, "g", "t.*")
KEY_BYTES = {
    GROUP: "0003 0001 67",
    MEMBER: "0005 0001 67 0001 6d",
    TARGET_OF_GROUP: "0006 0001 67",
    TARGET: "0007 0001 67 0001 6d",
    CURRENT: "0008 0001 67 0001 6d",
    PATTERN: "0010 0001 67 0003 742e2a",
}
BY_RANGE = ClassicMetadata(9, (("range", b"\0\1"),))
ONE, BOTH = TopicIdPartition(ID, 1), frozenset({TopicIdPartition(ID, 1), TopicIdPartition(ID, 0)})
OF_MEMBER = "0000 0269 00 0263 032f68 02 0274 01 00000005 00 01 00 01 00"
OF_CLASSIC = "0000 00 00 0263 032f68 01 01 00000005 00 01 00 11 01 00000009 02 06 72616e6765 03 0001 00 00"
OF_CURRENT = f"0000 00000004 00000003 01 02 {ID.hex} 02 00000001 01 00 05 02 00000002 01 00"


@pytest.mark.parametrize(
    ("key", "value", "value_bytes"),
    [
        (GROUP, GroupEpoch(7), "0000 00000007 00"),
        (GROUP, GroupEpoch(7, 258), "0000 00000007 01 00 08 0000000000000102"),
        (MEMBER, Subscription("i", None, "c", "/h", ("t",), "", 5, None), OF_MEMBER),
        (MEMBER, Subscription(None, None, "c", "/h", (), "", 5, None, BY_RANGE), OF_CLASSIC),
        (TARGET_OF_GROUP, TargetEpoch(7), "0000 00000007 00"),
        (TARGET_OF_GROUP, TargetEpoch(7, 9), "0000 00000007 01 00 08 0000000000000009"),
        (TARGET, BOTH, f"0000 02 {ID.hex} 03 00000000 00000001 00 00"),
        (CURRENT, Current(4, 3, MemberState.UNREVOKED, {ONE: 2}, {}), OF_CURRENT),
        (PATTERN, ResolvedRegex(("t",), 1, 2), "0000 02 0274 0000000000000001 0000000000000002 00"),
    ],
    ids=str,
)
def test_record_bytes_match_kafka(key, value, value_bytes):
    assert CONSUMER_RECORDS.record(key, value) == (bytes.fromhex(KEY_BYTES[key]), bytes.fromhex(value_bytes))
    assert CONSUMER_RECORDS.read_value(key.kind, bytes.fromhex(value_bytes)) == value


def test_partitions_without_epochs_have_epoch_zero():
    """Kafka before 4.3 wrote none."""
    value = bytes.fromhex(f"0000 00000004 00000003 00 02 {ID.hex} 02 00000001 00 01 00")
    assert CONSUMER_RECORDS.read_value(RecordType.CURRENT, value).assigned == {ONE: 0}


def test_member_state_of_a_newer_version_is_unknown():
    value = bytes.fromhex("0000 00000004 00000003 63 01 01 00")
    assert CONSUMER_RECORDS.read_value(RecordType.CURRENT, value).state is MemberState.UNKNOWN


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_newer_version_and_truncated_value_are_damage(kind):
    for data in (b"\0\1" + b"\0" * 40, b"\0\0", b"\0"):
        with pytest.raises(DamageError):
            CONSUMER_RECORDS.read_value(kind, data)


@pytest.mark.parametrize(
    ("key", "value", "before_4_3", "before_4_1"),
    [
        (GROUP, GroupEpoch(4, 7), None, "0000 00000004 00"),
        (TARGET_OF_GROUP, TargetEpoch(4, 9), "0000 00000004 00", "0000 00000004 00"),
        (
            CURRENT,
            Current(4, 3, MemberState.STABLE, {ONE: 2}, {TopicIdPartition(ID, 2): 3}),
            *[f"0000 00000004 00000003 00 02 {ID.hex} 02 00000001 00 02 {ID.hex} 02 00000002 00 00"] * 2,
        ),
        (MEMBER, Subscription(client_id="c"), None, None),
    ],
    ids=str,
)
def test_older_versions_leave_out_what_came_later(key, value, before_4_3, before_4_1):
    newest = CONSUMER_RECORDS.record(key, value)
    assert formats_of(KafkaRecords()) == ()
    for records, form in ((KafkaRecords(True, False), before_4_3), (KafkaRecords(False, False), before_4_1)):
        written = in_older_form(formats_of(records), newest)
        assert written == (newest if form is None else newest._replace(value=bytes.fromhex(form)))
        assert CONSUMER_RECORDS.read_value(key.kind, written.value) is not None
        tombstone = newest._replace(value=None)
        assert in_older_form(formats_of(records), tombstone) == tombstone


def test_key_types_match_kafka():
    assert sorted(CONSUMER_RECORDS.key_types) == [3, 4, 5, 6, 7, 8, 16]
