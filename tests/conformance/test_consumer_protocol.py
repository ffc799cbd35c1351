"""The consumer group protocol (KIP-848) request by request: joins, assignments, fencing."""

import uuid
from typing import Any

import pytest

from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType
from broker_core.coordinator.groups.modern_records import RecordKey
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from broker_core.wire import messages as m
from tests.support.clients import READ_UNCOMMITTED, Kafka, read_to_end, unique
from tests.support.group_session import GroupSession, assignable_topic
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

NONE, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID = 0, 22, 24, 25
UNSUPPORTED_VERSION, INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 35, 42, 68, 69
MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, SUBSCRIBED, UNSTABLE = 79, 82, 86, 88
FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, STALE_MEMBER_EPOCH = 110, 111, 112, 113
INVALID_REGULAR_EXPRESSION = 128
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
ALL = {0, 1, 2, 3}


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    return assignable_topic(kafka, 4)


@pytest.fixture(scope="module")
def smaller_topic(kafka: Kafka) -> str:
    return assignable_topic(kafka, 3)


@pytest.fixture
def group(client: RawClient, topic: str) -> GroupSession:
    """Return a new group that reads `topic`."""
    return GroupSession(client, unique("group"), topic)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, INVALID_REQUEST),
        ({"instance_id": ""}, INVALID_REQUEST),
        ({"rack_id": ""}, INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, INVALID_REQUEST),
        ({"owned": None}, INVALID_REQUEST),
        ({"owned": {"topic": {0}}}, INVALID_REQUEST),
        ({"subscribed_topic_names": None}, INVALID_REQUEST),
        ({"server_assignor": "best"}, UNSUPPORTED_ASSIGNOR),
        ({"server_assignor": ""}, UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "(ab"}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_names": []}, NONE),
        ({"subscribed_topic_names": ["no-such-topic"]}, NONE),
        ({"rebalance_timeout_ms": 0}, NONE),
    ],
)
def test_first_heartbeat_is_validated(group: GroupSession, topic: str, fields: dict, code: int):
    if fields.get("owned"):
        fields = {"owned": {topic: {0}}}
    fields = {"member_id": "a", **fields}
    assert group.join(**fields).error == code


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("", 1, {}, INVALID_REQUEST),
        ("", LEAVE, {}, INVALID_REQUEST),
        ("a", -3, {}, INVALID_REQUEST),
        ("a", LEAVE_FOR_A_WHILE, {}, INVALID_REQUEST),
        ("a", 1, {"server_assignor": "best"}, UNSUPPORTED_ASSIGNOR),
        ("a", 5, {}, GROUP_ID_NOT_FOUND),
        ("a", LEAVE, {}, GROUP_ID_NOT_FOUND),
        ("a", LEAVE_FOR_A_WHILE, {"instance_id": "i"}, GROUP_ID_NOT_FOUND),
    ],
)
def test_later_heartbeat_is_validated(group: GroupSession, member_id: str, epoch: int, fields: dict, code: int):
    assert group.heartbeat(member_id, epoch, **fields).error == code


def test_group_id_is_required(client: RawClient, topic: str):
    group = GroupSession(client, "", topic)
    assert group.join("a").error == INVALID_REQUEST
    assert group.describe().error_code == INVALID_GROUP_ID


def test_single_member_gets_all_partitions_and_a_heartbeat_interval(group: GroupSession, topic: str):
    joined = group.join("a")
    assert (joined.error, joined.member_id, joined.assigned) == (NONE, "a", {topic: ALL})
    assert joined.heartbeat_interval_ms == 200
    assert group.heartbeat("a", joined.member_epoch).assigned is None
    full = group.heartbeat(
        "a", joined.member_epoch, owned={topic: ALL}, rebalance_timeout_ms=60_000, subscribed_topic_names=[topic]
    )
    assert full.assigned == {topic: ALL}


def test_version_0_client_receives_a_member_id(group: GroupSession, topic: str):
    joined = group.join("", version=0)
    assert joined.member_id
    assert group.heartbeat(joined.member_id, joined.member_epoch, version=0).error == NONE


def test_partitions_move_only_after_revocation(group: GroupSession, topic: str):
    first = group.join("a").member_epoch
    joined = group.join("b")
    assert (joined.member_epoch, joined.assigned) == (first + 1, {})
    partial = group.heartbeat("a", first, owned={topic: ALL})
    assert (partial.member_epoch, partial.assigned) == (first, {topic: {0, 1}})
    assert group.heartbeat("a", first, owned={topic: ALL}).member_epoch == first
    assert group.heartbeat("b", first + 1).assigned is None
    [unfinished] = [member for member in group.describe().members if member.member_id == "a"]
    assert unfinished.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert unfinished.target_assignment.topic_partitions[0].partitions == [0, 1]
    given_back = group.heartbeat("a", first, owned={topic: {0, 1}})
    assert (given_back.member_epoch, given_back.assigned) == (first + 1, None)
    assert group.describe().group_state == "Reconciling"
    assert group.heartbeat("b", first + 1).assigned == {topic: {2, 3}}
    assert group.describe().group_state == "Stable"


def test_lost_response_is_repeated_and_an_older_epoch_fenced(group: GroupSession, topic: str):
    old = group.join("a").member_epoch
    group.join("b")
    new = group.settle(a=old, b=old + 1) and old + 1
    # The member treats a response as lost if it had the new epoch only.
    assert group.heartbeat("a", old, owned={topic: {0}}).member_epoch == new
    assert group.heartbeat("a", old).error == FENCED_MEMBER_EPOCH
    assert group.heartbeat("a", old, owned={topic: {0, 2}}).error == FENCED_MEMBER_EPOCH
    assert group.heartbeat("a", old - 1, owned={topic: {0}}).error == FENCED_MEMBER_EPOCH
    assert group.heartbeat("a", new + 1).error == FENCED_MEMBER_EPOCH
    assert group.heartbeat("stranger", new).error == UNKNOWN_MEMBER_ID
    again = group.join("a")
    assert (again.member_epoch, again.assigned) == (new, {topic: {0, 1}})


def test_partitions_of_a_leaving_member_move_to_the_others(group: GroupSession, topic: str):
    epoch = group.join("a").member_epoch
    group.join("b")
    group.settle(a=epoch, b=epoch + 1)
    left = group.heartbeat("b", LEAVE)
    assert (left.error, left.member_id, left.member_epoch) == (NONE, "b", LEAVE)
    assert group.describe().group_state == "Assigning"
    assert group.heartbeat("a", epoch + 1).assigned == {topic: ALL}
    assert group.heartbeat("b", LEAVE).error == UNKNOWN_MEMBER_ID
    group.heartbeat("a", LEAVE)
    empty = group.describe()
    assert (empty.group_state, empty.group_epoch, empty.assignment_epoch) == ("Empty", epoch + 3, epoch + 3)
    assert group.heartbeat("a", epoch + 2).error == UNKNOWN_MEMBER_ID


def test_member_without_heartbeats_is_removed(group: GroupSession, topic: str):
    epoch = group.join("a").member_epoch
    group.join("silent")

    def has_all() -> bool:
        answer = group.heartbeat("a", 0, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_names=[topic])
        return answer.assigned == {topic: ALL} and answer.member_epoch > epoch + 1

    wait_until(has_all, "the silent member's partitions are shared out")
    assert [member.member_id for member in group.describe().members] == ["a"]


def test_member_that_does_not_revoke_is_removed(group: GroupSession, topic: str):
    epoch = group.join("greedy", rebalance_timeout_ms=200).member_epoch
    waiting = group.join("b").member_epoch
    assert group.heartbeat("greedy", epoch, owned={topic: ALL}).assigned == {topic: {0, 1}}

    def is_out() -> bool:
        group.heartbeat("b", waiting)
        return group.heartbeat("greedy", epoch, owned={topic: ALL}).error == UNKNOWN_MEMBER_ID

    wait_until(is_out, "the greedy member is taken out")


def test_narrower_subscription_takes_effect_immediately(client: RawClient, topic: str, smaller_topic: str):
    group = GroupSession(client, unique("group"), topic, smaller_topic)
    joined = group.join("a", subscribed_topic_names=[topic])
    changed = group.heartbeat("a", joined.member_epoch, subscribed_topic_names=[smaller_topic])
    assert (changed.member_epoch, changed.assigned) == (joined.member_epoch, {})
    assert group.settle(a=joined.member_epoch)["a"] == {smaller_topic: {0, 1, 2}}


def test_range_assigns_ranges_of_each_topic(client: RawClient, topic: str, smaller_topic: str):
    group = GroupSession(client, unique("group"), topic, smaller_topic)
    epoch = group.join("a", server_assignor="range").member_epoch
    group.join("b", server_assignor="range")
    assert group.settle(a=epoch, b=epoch + 1) == {
        "a": {topic: {0, 1}, smaller_topic: {0, 1}},
        "b": {topic: {2, 3}, smaller_topic: {2}},
    }
    assert group.describe().assignor_name == "range"


def test_added_partitions_and_created_topics_are_assigned(client: RawClient, kafka: Kafka):
    grown = assignable_topic(kafka, 1)
    group = GroupSession(client, unique("group"), grown)
    epoch = group.join("a").member_epoch
    form = m.CreatePartitionsRequest
    client.send(
        form(
            timeout_ms=30_000,
            topics=[form.CreatePartitionsTopic(name=grown, count=3, assignments=None)],
        ),
        3,
    )

    def is_seen() -> bool:
        return group.heartbeat("a", epoch).assigned == {grown: {0, 1, 2}}

    wait_until(is_seen, "the new partitions are assigned")


def test_regular_expression_subscribes_to_matching_topic_names(client: RawClient, kafka: Kafka):
    existing = assignable_topic(kafka, 2)
    group = GroupSession(client, unique("group"), existing)
    joined = group.join("a", subscribed_topic_regex=f"{existing[:-1]}.")
    epoch, has = joined.member_epoch, joined.assigned

    def has_read() -> bool:
        nonlocal epoch, has
        answer = group.heartbeat("a", epoch, owned=has)
        epoch, has = answer.member_epoch, has if answer.assigned is None else answer.assigned
        return has == {existing: {0, 1}}

    wait_until(has_read, "the topic that matches is assigned")
    assert group.join("b", subscribed_topic_regex=existing[:-1]).assigned == {}
    member = next(member for member in group.describe().members if member.member_id == "a")
    assert member.subscribed_topic_regex == f"{existing[:-1]}."
    gone = group.heartbeat("a", epoch, owned=has, subscribed_topic_regex="")
    assert gone.assigned == {}


def test_static_member_returns_to_its_partitions(group: GroupSession, topic: str):
    joined = group.join("a", instance_id="one")
    epoch = joined.member_epoch
    assert group.join("b", instance_id="one").error == UNRELEASED_INSTANCE_ID
    assert group.heartbeat("b", epoch, instance_id="one").error == FENCED_INSTANCE_ID
    assert group.heartbeat("a", epoch, instance_id="two").error == UNKNOWN_MEMBER_ID
    assert group.heartbeat("b", LEAVE_FOR_A_WHILE, instance_id="one").error == FENCED_INSTANCE_ID
    away = group.heartbeat("a", LEAVE_FOR_A_WHILE, instance_id="one")
    assert (away.error, away.member_epoch) == (NONE, LEAVE_FOR_A_WHILE)
    assert group.heartbeat("a", epoch, instance_id="one").error == FENCED_MEMBER_EPOCH
    back = group.join("b", instance_id="one")
    assert (back.member_epoch, back.assigned) == (epoch, {topic: ALL})
    assert group.heartbeat("a", epoch, instance_id="one").error == FENCED_INSTANCE_ID
    [member] = group.describe().members
    assert (member.member_id, member.instance_id, member.member_type) == ("b", "one", 1)
    # An administrator removes it by its instance id, with the classic protocol's request.
    assert group.leave_classic("", "one") == NONE
    assert group.heartbeat("b", LEAVE, instance_id="one").error == UNKNOWN_MEMBER_ID


def test_commits_and_fetches_are_fenced_by_member_epoch(group: GroupSession, topic: str):
    assert group.commit("a", 5) == {GROUP_ID_NOT_FOUND}
    assert group.commit("a", 5, version=8) == {ILLEGAL_GENERATION}
    assert group.fetch("a", 5) == (NONE, -1)
    old = group.join("a").member_epoch
    assert group.commit("a", old) == group.commit("a", old, version=10) == {NONE}
    assert group.commit("a", old, version=8) == {UNSUPPORTED_VERSION}
    assert group.commit("a", old + 1) == group.commit("a", old - 1) == group.commit("a", -1) == {STALE_MEMBER_EPOCH}
    assert group.commit("stranger", old) == group.commit("", -1) == {UNKNOWN_MEMBER_ID}
    assert group.fetch("a", old) == group.fetch(None, -1) == (NONE, 5)
    assert group.fetch("a", old + 1) == group.fetch("a", old - 1) == (STALE_MEMBER_EPOCH, None)
    assert group.fetch("stranger", old) == group.fetch("", -1) == (UNKNOWN_MEMBER_ID, None)
    group.join("b")
    group.settle(a=old, b=old + 1)
    # An older epoch is sufficient for partitions that the member has had since then (KIP-1251).
    assert group.commit("a", old, 0, 1) == {NONE}
    assert group.commit("a", old, 0, 2) == {STALE_MEMBER_EPOCH}
    assert group.fetch("a", old) == (STALE_MEMBER_EPOCH, None)
    group.heartbeat("a", LEAVE)
    group.heartbeat("b", LEAVE)
    assert group.commit("", -1) == {NONE}
    assert group.commit("a", old) == {UNKNOWN_MEMBER_ID}


# Rules E.1/16, E.1/17 and E.1/22.
def test_offsets_of_a_transaction_are_fenced_by_member_epoch(group: GroupSession, session: RawSession):
    producer = session.init_until_done()

    def commit(member_id: str, epoch: int, partition: int = 0, **fields: Any) -> int:
        return group.commit_in_transaction(
            session.transactional_id, producer, member_id, epoch, partition=partition, **fields
        )

    old = group.join("a").member_epoch
    assert commit("stranger", old) == UNKNOWN_MEMBER_ID
    assert commit("a", old + 1) == commit("a", old - 1) == commit("a", -1) == ILLEGAL_GENERATION
    assert commit("a", old + 1, version=6) == STALE_MEMBER_EPOCH
    assert commit("", -1) == NONE
    assert commit("", -1, instance_id="one") == commit("", -2) == UNKNOWN_MEMBER_ID
    group.join("b")
    group.settle(a=old, b=old + 1)
    assert (commit("a", old, 0), commit("a", old, 2)) == (NONE, ILLEGAL_GENERATION)
    assert commit("a", old + 1, version=3) == NONE
    assert group.fetch("a", old + 1, require_stable=True)[0] == UNSTABLE
    assert session.end_until_done(producer, commit=True, version=5)[0] == NONE
    wait_until(lambda: group.fetch("a", old + 1, require_stable=True) == (NONE, 7), "the offset is committed")


def test_group_is_described_under_its_own_protocol(client: RawClient, group: GroupSession, topic: str):
    group.join("a", instance_id="one", rack_id="r")

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        answer = client.send(m.ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters}), 5)
        return [
            (entry.protocol_type, entry.group_state, entry.group_type)
            for entry in answer.groups
            if entry.group_id == group.group
        ]

    assert (
        listed()
        == listed(types_filter=["Consumer"])
        == listed(states_filter=["stable"])
        == [("consumer", "Stable", "consumer")]
    )
    assert listed(types_filter=["classic"]) == listed(states_filter=["Empty"]) == []
    described = group.describe()
    assert (described.error_code, described.assignor_name, described.authorized_operations) == (NONE, "uniform", 3400)
    [member] = described.members
    assert (member.member_id, member.instance_id, member.rack_id, member.client_id) == ("a", "one", "r", "raw-client")
    assert (member.client_host, member.subscribed_topic_names, member.subscribed_topic_regex) == (
        "/127.0.0.1",
        [topic],
        "",
    )
    assert member.assignment.topic_partitions[0].topic_name == topic
    classic = [client.send(m.DescribeGroupsRequest(groups=[group.group]), version).groups[0] for version in (5, 6)]
    assert [(found.error_code, found.group_state) for found in classic] == [
        (NONE, "Dead"),
        (GROUP_ID_NOT_FOUND, "Dead"),
    ]
    assert "not a classic group" in classic[1].error_message
    unknown = GroupSession(client, unique("unknown"))
    assert unknown.describe().error_code == GROUP_ID_NOT_FOUND


def test_group_is_deleted_when_empty_and_offsets_when_unsubscribed(
    client: RawClient,
    group: GroupSession,
    topic: str,
    smaller_topic: str,
):
    def delete() -> int:
        return client.send(m.DeleteGroupsRequest(groups_names=[group.group]), 2).results[0].error_code

    def delete_offsets(name: str) -> int:
        form = m.OffsetDeleteRequest.OffsetDeleteRequestTopic
        answer = client.send(
            m.OffsetDeleteRequest(
                group_id=group.group,
                topics=[form(name=name, partitions=[form.OffsetDeleteRequestPartition(partition_index=0)])],
            ),
            0,
        )
        return answer.error_code or answer.topics[0].partitions[0].error_code

    epoch = group.join("a").member_epoch
    group.commit("a", epoch)
    assert delete() == NON_EMPTY_GROUP
    assert (delete_offsets(topic), delete_offsets(smaller_topic)) == (SUBSCRIBED, NONE)
    group.heartbeat("a", LEAVE)
    assert group.fetch(None, -1) == (NONE, 5)
    assert (delete(), delete()) == (NONE, GROUP_ID_NOT_FOUND)
    assert group.fetch(None, -1) == (NONE, -1)


# Rule E.7 protocol/2.
def test_group_changes_its_protocol_while_empty(group: GroupSession):
    epoch = group.join("a").member_epoch
    group.commit("a", epoch)
    assert group.leave_classic("stranger") == UNKNOWN_MEMBER_ID
    assert group.leave_classic("a") == NONE
    partial = group.join_classic()
    assert partial.error_code == MEMBER_ID_REQUIRED
    joined = group.join_classic(partial.member_id)
    assert joined.error_code == NONE
    assert group.fetch(None, -1) == (NONE, 5)
    assert group.heartbeat("a", 1).error == group.heartbeat("a", LEAVE).error == GROUP_ID_NOT_FOUND
    assert group.describe().error_code == GROUP_ID_NOT_FOUND
    assert group.leave_classic(partial.member_id) == NONE
    back = group.join("a")
    assert back.error == NONE
    assert group.fetch("a", back.member_epoch) == (NONE, 5)


def test_group_ids_are_independent(client: RawClient, topic: str):
    one, other = (GroupSession(client, f"{uuid.uuid4()}", topic) for _ in range(2))
    assert one.join("a").assigned == other.join("a").assigned == {topic: ALL}


def test_group_records_match_kafka_byte_for_byte(kafka: Kafka, group: GroupSession, topic: str):
    """Encode the records that were read: on Apache Kafka this compares our codec with the bytes that it writes."""
    epoch = group.join(
        "a",
        rack_id="r",
        instance_id="one",
        subscribed_topic_regex=f"{topic[:-1]}.",
        subscribed_topic_names=[topic],
        server_assignor="range",
    ).member_epoch
    group.join("b")
    group.heartbeat("a", epoch, owned={topic: ALL}, instance_id="one")
    kinds = {
        RecordType.GROUP_EPOCH,
        RecordType.MEMBER,
        RecordType.TARGET_EPOCH,
        RecordType.TARGET,
        RecordType.CURRENT,
        RecordType.REGULAR_EXPRESSION,
    }
    found: dict[RecordKey, bytes] = {}

    def has_all_kinds() -> bool:
        for message in read_to_end(kafka, CONSUMER_OFFSETS_TOPIC, isolation=READ_UNCOMMITTED, partitions=5):
            key_type = int.from_bytes(message.key()[:2], "big")
            if key_type not in CONSUMER_RECORDS.key_types or message.value() is None:
                continue
            key = CONSUMER_RECORDS.read_key(message.key())
            if key.group_id == group.group:
                value = CONSUMER_RECORDS.read_value(key.kind, message.value())
                assert CONSUMER_RECORDS.record(key, value) == (message.key(), message.value())
                found[key] = message.value()
        return {key.kind for key in found} == kinds

    wait_until(has_all_kinds, "records of all kinds")
    assert {key.part for key in found if key.kind is RecordType.MEMBER} == {"a", "b"}
