"""The migration of groups with members between the classic and the consumer protocol, request by request (KIP-848)."""

import pytest

from broker_core.coordinator.groups.classic.records import GROUP_KEY_TYPE, read_group_key, read_group_metadata
from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType
from broker_core.errors import ErrorCode as E
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from broker_core.wire import messages as m
from tests.support.clients import READ_UNCOMMITTED, Kafka, read_to_end, unique
from tests.support.group_session import GroupSession, assignable_topic
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.restartable import Restartable
from tests.support.waiting import wait_until

CLASSIC, CONSUMER = 0, 1
LEAVE = -1
ALL = {0, 1, 2, 3}


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    return assignable_topic(kafka, 4)


@pytest.fixture
def group(client: RawClient, topic: str) -> GroupSession:
    """Return a new group that reads `topic`."""
    return GroupSession(client, unique("group"), topic)


def settled_classic(group: GroupSession, **fields) -> tuple[str, int]:
    """Enter a classic group as its only member with all partitions, and return member id and generation."""
    member, generation = group.enter_classic(**fields)
    instance = {key: value for key, value in fields.items() if key == "group_instance_id"}
    assert group.sync_classic(member, generation, assignments={member: ALL}, **instance) == (E.NONE, ALL)
    return member, generation


def members_of(group: GroupSession) -> dict[str, tuple[int, int]]:
    """Return type and epoch of each member."""
    return {member.member_id: (member.member_type, member.member_epoch) for member in group.describe().members}


def group_type(group: GroupSession) -> str | None:
    """Return the type of the group, None if it is not listed."""
    listed = group.listing()
    return listed and listed[0]


# Rules E.8 upgrade/4, E.8 heartbeat/1, E.8 heartbeat/5, E.8 sync/1, E.8 sync/4 and E.8 sync/5.
def test_first_consumer_heartbeat_upgrades_the_group_and_classic_members_stay(group: GroupSession, topic: str):
    member, generation = settled_classic(group)
    assert group.commit(member, generation, version=8) == {E.NONE}
    joined = group.join("new")
    assert (joined.error, joined.member_epoch, joined.assigned) == (E.NONE, generation + 1, {})
    assert group.listing() == ("consumer", "Reconciling", "consumer")
    assert group.describe_classic().error_code == E.GROUP_ID_NOT_FOUND
    assert members_of(group) == {member: (CLASSIC, generation), "new": (CONSUMER, generation + 1)}
    assert group.fetch(None, -1) == (E.NONE, 5)
    assert group.heartbeat_classic(member, generation) == E.REBALANCE_IN_PROGRESS
    assert group.sync_classic(member, generation)[0] == E.REBALANCE_IN_PROGRESS
    again = group.join_classic(member)
    assert (again.error_code, again.generation_id, again.leader, again.members) == (E.NONE, generation + 1, "", [])
    assert (again.protocol_type, again.protocol_name, again.member_id) == ("consumer", "range", member)
    error, kept = group.sync_classic(member, generation + 1)
    assert (error, len(kept)) == (E.NONE, 2)
    assert group.heartbeat_classic(member, generation + 1) == E.NONE
    assert group.heartbeat("new", generation + 1).assigned == {topic: ALL - kept}
    assert group.listing() == ("consumer", "Stable", "consumer")


# Rules E.8 upgrade/2 and E.8 upgrade/5.
@pytest.mark.parametrize(
    ("fields", "assignment", "code"),
    [
        ({"protocol_type": "connect"}, b"", E.GROUP_ID_NOT_FOUND),
        ({"subscription": b"\0\0\0\0\0\1\0\5x"}, b"", E.GROUP_ID_NOT_FOUND),
        ({}, b"\0\0\0\0\0\1", E.GROUP_ID_NOT_FOUND),
        ({}, b"\0\0\0\0\0\0\0\0\0\1x", E.GROUP_ID_NOT_FOUND),
        ({}, b"\0\0\0\0\0\0\0\0\0\0", E.NONE),
        ({}, b"", E.NONE),
        ({"protocols": ("range", "cooperative-sticky")}, b"", E.NONE),
    ],
)
def test_only_a_group_of_consumers_is_upgraded(group: GroupSession, fields: dict, assignment: bytes, code: int):
    member, generation = group.enter_classic(**fields)
    form = m.SyncGroupRequest
    synced = group.client.send(
        form(
            group_id=group.group,
            member_id=member,
            generation_id=generation,
            protocol_type=fields.get("protocol_type", "consumer"),
            protocol_name="range",
            assignments=[form.SyncGroupRequestAssignment(member_id=member, assignment=assignment)],
        ),
        5,
    )
    assert synced.error_code == E.NONE
    assert group.join("new").error == code
    assert group_type(group) == ("classic" if code else "consumer")
    assert group.heartbeat_classic(member, generation) == (E.NONE if code else E.REBALANCE_IN_PROGRESS)


# Rules E.8 downgrade/1, E.8 downgrade/2 and E.8 downgrade/5.
@pytest.mark.parametrize("leave", ["heartbeat", "leave_group"])
def test_group_is_classic_again_when_its_last_consumer_member_leaves(group: GroupSession, leave: str):
    member, generation = settled_classic(group)
    group.commit(member, generation)
    for name in ("one", "other"):
        assert group.join(name).error == E.NONE
    classic = group.join_classic(member).generation_id
    assert group.heartbeat("other", LEAVE).error == E.NONE
    assert group_type(group) == "consumer"
    generation = max(classic, group.join_classic(member).generation_id)
    if leave == "heartbeat":
        assert group.heartbeat("one", LEAVE).error == E.NONE
    else:
        assert group.leave_classic("one") == E.NONE
    assert group.listing() == ("classic", "PreparingRebalance", "consumer")
    assert group.describe().error_code == E.GROUP_ID_NOT_FOUND
    described = group.describe_classic()
    assert (described.error_code, [each.member_id for each in described.members]) == (E.NONE, [member])
    assert group.heartbeat_classic(member, generation) in (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)
    again = group.join_classic(member)
    assert (again.error_code, again.leader, len(again.members)) == (E.NONE, member, 1)
    assert again.generation_id > generation
    assert group.sync_classic(member, again.generation_id, assignments={member: ALL}) == (E.NONE, ALL)
    assert group.heartbeat_classic(member, again.generation_id) == E.NONE
    assert group.fetch(None, -1) == (E.NONE, 5)
    assert group.listing() == ("classic", "Stable", "consumer")
    assert group.join("back").error == E.NONE
    assert group_type(group) == "consumer"


def test_group_without_members_stays_a_consumer_group(group: GroupSession):
    member, _ = settled_classic(group)
    group.join("new")
    assert group.leave_classic(member) == E.NONE
    assert group.heartbeat("new", LEAVE).error == E.NONE
    assert group.listing() == ("consumer", "Empty", "consumer")


# Rules E.8 join/1, E.8 join/2 and E.8 join/3.
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 10}, E.INVALID_SESSION_TIMEOUT),
        ({"group_instance_id": "i", "member_id": "x"}, E.UNKNOWN_MEMBER_ID),
        ({"subscription": b""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"subscription": b"\0\0\0\0\0\1\0\5x"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({}, E.NONE),
        ({"protocols": ("anything", "range")}, E.NONE),
        ({"member_id": "of its own"}, E.NONE),
    ],
)
def test_classic_join_of_a_consumer_group_is_validated(group: GroupSession, fields: dict, code: int):
    group.join("first")
    fields = {"member_id": "stranger", **fields}
    member_id = fields.pop("member_id")
    joined = group.join_classic(member_id, **fields)
    assert joined.error_code == code
    if code == E.NONE:
        assert (joined.member_id, joined.protocol_name) == (member_id, next(iter(fields.get("protocols", ["range"]))))
    else:
        assert joined.member_id == (member_id if code == E.INVALID_SESSION_TIMEOUT else "")


def test_nameless_member_is_given_an_id_first(group: GroupSession):
    epoch = group.join("first").member_epoch
    partial = group.join_classic()
    assert (partial.error_code, bool(partial.member_id)) == (E.MEMBER_ID_REQUIRED, True)
    assert list(members_of(group)) == ["first"]
    joined = group.join_classic(partial.member_id)
    assert (joined.error_code, joined.generation_id) == (E.NONE, epoch + 1)


# Rule E.8 join/2.
def test_classic_members_must_have_a_protocol_in_common(group: GroupSession):
    settled_classic(group, protocols=("range", "roundrobin"))
    group.join("first")
    for protocols, code in (
        (("sticky",), E.INCONSISTENT_GROUP_PROTOCOL),
        (("roundrobin",), E.NONE),
        (("range",), E.INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert group.join_classic(unique("member"), protocols=protocols).error_code == code


# Rules E.8 sync/1, E.8 sync/2, E.8 sync/3 and E.8 heartbeat/6.
def test_sync_and_heartbeat_of_others_are_refused(group: GroupSession):
    epoch = group.join("first").member_epoch
    member, generation = group.enter_classic()
    assert generation == epoch + 1
    assert group.sync_classic("stranger", generation)[0] == E.UNKNOWN_MEMBER_ID
    assert group.heartbeat_classic("stranger", generation) == E.UNKNOWN_MEMBER_ID
    assert group.sync_classic("first", epoch)[0] == E.UNKNOWN_MEMBER_ID
    assert group.heartbeat_classic("first", epoch) == E.UNKNOWN_MEMBER_ID
    for wrong in (generation - 1, generation + 1):
        assert group.sync_classic(member, wrong)[0] == E.ILLEGAL_GENERATION
        assert group.heartbeat_classic(member, wrong) == E.ILLEGAL_GENERATION
    assert group.sync_classic(member, generation, protocol_type="connect")[0] == E.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync_classic(member, generation, protocol_name="sticky")[0] == E.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync_classic(member, generation, group_instance_id="i")[0] == E.UNKNOWN_MEMBER_ID
    assert group.heartbeat_classic(member, generation, "i") == E.UNKNOWN_MEMBER_ID
    assert group.sync_classic(member, generation) == (E.NONE, set())


# Rules E.8 heartbeat/2, E.8 heartbeat/3 and E.8 heartbeat/4.
def test_cooperative_member_revokes_and_collects_partitions(group: GroupSession, topic: str):
    epoch = group.join("first").member_epoch
    member, generation = group.enter_classic(owned=())
    assert group.sync_classic(member, generation) == (E.NONE, set())
    assert group.heartbeat_classic(member, generation) == E.NONE
    kept = group.heartbeat("first", epoch, owned={topic: ALL}).assigned
    assert kept is not None
    assert group.heartbeat_classic(member, generation) == E.NONE
    assert group.heartbeat("first", epoch, owned=kept).member_epoch == generation
    assert group.heartbeat_classic(member, generation) == E.REBALANCE_IN_PROGRESS
    assert group.join_classic(member, owned=()).generation_id == generation
    error, has = group.sync_classic(member, generation)
    assert (error, has) == (E.NONE, ALL - kept[topic])
    # A third member: the cooperative one keeps its partitions in its JoinGroup and revokes one.
    third = group.join("third").member_epoch
    assert group.heartbeat_classic(member, generation) == E.REBALANCE_IN_PROGRESS
    joined = group.join_classic(member, owned=has)
    error, left = group.sync_classic(member, joined.generation_id)
    assert (error, left < has or left == has) == (E.NONE, True)
    if left != has:
        assert joined.generation_id == generation
        assert group.heartbeat_classic(member, generation) == E.REBALANCE_IN_PROGRESS
        assert group.join_classic(member, owned=left).generation_id == third
        assert group.sync_classic(member, third) == (E.NONE, left)
    assert group.heartbeat_classic(member, third) == E.NONE


# Rules E.8 commit/1, E.8 commit/2, E.8 commit/3 and E.8 commit/4.
def test_classic_member_commits_with_its_generation(group: GroupSession, topic: str, session: RawSession):
    member, generation = settled_classic(group)
    group.join("new")
    for version in (8, 9):
        assert group.commit(member, generation, version=version) == {E.NONE}
        assert group.commit(member, generation + 1, version=version) == {E.ILLEGAL_GENERATION}
        assert group.commit(member, generation - 1, version=version) == {E.ILLEGAL_GENERATION}
        assert group.commit("stranger", generation, version=version) == {E.UNKNOWN_MEMBER_ID}
    later = group.join_classic(member).generation_id
    _, kept = group.sync_classic(member, later)
    assert group.commit(member, generation, *kept, version=8) == {E.NONE}
    assert group.commit(member, generation, *ALL, version=8) == {E.ILLEGAL_GENERATION}
    assert group.commit("new", later, version=8) == {E.UNSUPPORTED_VERSION}
    assert group.fetch(member, later) == (E.NONE, 5)
    assert group.fetch(member, generation)[0] == E.ILLEGAL_GENERATION
    producer = session.init()[1]
    lost = min(ALL - kept)
    in_transaction = group.commit_in_transaction
    stale = in_transaction(session.transactional_id, producer, member, generation, partition=lost)
    assert stale == E.ILLEGAL_GENERATION
    assert in_transaction(session.transactional_id, producer, member, later) == E.NONE
    session.end(producer, commit=True, version=5)


# Rules E.8 leave/1 and E.8 leave/2.
def test_members_leave_in_batches_whatever_their_protocol(group: GroupSession):
    member, _ = settled_classic(group)
    group.join("a")
    group.join("b", instance_id="i")
    group.join("c")
    form = m.LeaveGroupRequest
    left = group.client.send(
        form(
            group_id=group.group,
            members=[
                form.MemberIdentity(member_id=each, group_instance_id=instance, reason="")
                for each, instance in ((member, None), ("a", None), ("a", None), ("", "i"), ("x", None), ("", "j"))
            ],
        ),
        5,
    )
    assert left.error_code == E.NONE
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in left.members] == [
        (member, None, E.NONE),
        ("a", None, E.NONE),
        ("a", None, E.NONE),
        ("", "i", E.NONE),
        ("x", None, E.UNKNOWN_MEMBER_ID),
        ("", "j", E.UNKNOWN_MEMBER_ID),
    ]
    assert list(members_of(group)) == ["c"]
    assert group_type(group) == "consumer"


# Rules E.8/1, E.8/2, E.8 upgrade/1 and E.8 downgrade/3.
@pytest.mark.parametrize("policy", ["disabled", "UPGRADE"])
def test_policy_restricts_the_migration(durable_kafka: Restartable, policy: str):
    durable_kafka.restart(group_consumer_migration_policy=policy)
    with RawClient(durable_kafka.bootstrap_servers) as client:
        topic = assignable_topic(durable_kafka, 4)
        classic, consumer = (GroupSession(client, unique("group"), topic) for _ in range(2))
        settled_classic(classic)
        refused = classic.join("new", version=1)
        assert refused.error == (E.NONE if policy == "UPGRADE" else E.GROUP_ID_NOT_FOUND)
        consumer.join("new")
        joined = consumer.join_classic("member")
        assert joined.error_code == (E.INCONSISTENT_GROUP_PROTOCOL if policy == "disabled" else E.NONE)
        assert consumer.heartbeat("new", LEAVE).error == E.NONE
        assert group_type(consumer) == "consumer"


# Rules E.8/3 and E.8 leave/3.
def test_group_goes_on_after_a_restart_in_each_phase(durable_kafka: Restartable):
    durable_kafka.restart(group_consumer_migration_policy="bidirectional")
    topic = assignable_topic(durable_kafka, 4)
    name = unique("group")
    with RawClient(durable_kafka.bootstrap_servers) as client:
        group = GroupSession(client, name, topic)
        member, generation = settled_classic(group)
        group.commit(member, generation)
    durable_kafka.restart()
    with RawClient(durable_kafka.bootstrap_servers) as client:
        group = GroupSession(client, name, topic)
        epoch = group.join("new").member_epoch
        assert epoch == generation + 1
    durable_kafka.restart()
    with RawClient(durable_kafka.bootstrap_servers) as client:
        group = GroupSession(client, name, topic)
        expected = {member: (CLASSIC, generation), "new": (CONSUMER, epoch)}
        wait_until(lambda: members_of(group) == expected, "the coordinator has loaded the mixed group")
        assert group.heartbeat_classic(member, generation) == E.REBALANCE_IN_PROGRESS
        assert group.join_classic(member).generation_id == epoch
        assert len(group.sync_classic(member, epoch)[1] or ()) == 2
        assert group.heartbeat("new", LEAVE).error == E.NONE
    durable_kafka.restart()
    with RawClient(durable_kafka.bootstrap_servers) as client:
        group = GroupSession(client, name, topic)
        wait_until(lambda: group.heartbeat_classic(member, epoch) == E.NONE, "the coordinator has loaded the group")
        wait_until(lambda: group.listing() == ("classic", "Stable", "consumer"), "the group is listed")
        assert group.describe().error_code == E.GROUP_ID_NOT_FOUND
        assert group.sync_classic(member, epoch)[0] == E.NONE
        assert group.fetch(None, -1) == (E.NONE, 5)


# Rule E.8/3.
def test_conversions_leave_the_records_of_one_protocol(kafka: Kafka, group: GroupSession):
    def latest() -> dict[int, set[str]]:
        """Return the parts of the group's live keys by key type."""
        values: dict[bytes, bytes | None] = {}
        for message in read_to_end(kafka, CONSUMER_OFFSETS_TOPIC, isolation=READ_UNCOMMITTED, partitions=5):
            values[message.key()] = message.value()
        live: dict[int, set[str]] = {}
        for key, value in values.items():
            kind = int.from_bytes(key[:2], "big")
            if kind == GROUP_KEY_TYPE and value is not None and read_group_key(key) == group.group:
                live.setdefault(kind, set()).update(each.member_id for each in read_group_metadata(value).members)
            elif kind in CONSUMER_RECORDS.key_types and value is not None:
                found = CONSUMER_RECORDS.read_key(key)
                if found.group_id != group.group:
                    continue
                assert CONSUMER_RECORDS.record(found, CONSUMER_RECORDS.read_value(found.kind, value)).value == value
                live.setdefault(kind, set()).add(found.part)
        return live

    member, _ = settled_classic(group)
    wait_until(lambda: latest() == {GROUP_KEY_TYPE: {member}}, "the record of a classic group")
    group.join("new")
    both = {member, "new"}
    kinds = RecordType
    expected = {
        kinds.GROUP_EPOCH: {""},
        kinds.MEMBER: both,
        kinds.TARGET_EPOCH: {""},
        kinds.TARGET: both,
        kinds.CURRENT: both,
    }
    wait_until(lambda: latest() == expected, "the records of a consumer group")
    group.heartbeat("new", LEAVE)
    wait_until(lambda: latest() == {GROUP_KEY_TYPE: {member}}, "the record of a classic group again")
