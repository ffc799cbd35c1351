"""What a right prevents beside the answer, and ACLs after a restart; the answers are in `tests/conformance`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.metadata import ClusterMetadata
from broker_core.security.acls import Operation, ResourceType, new_acl
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.acl_world import AclWorld
from tests.support.broker_core.answers import error_codes
from tests.support.broker_core.requests import TOPIC, fetch_request, init_producer, plain_commit, records, transactional
from tests.support.messages import EVERY_ACL, consumer_join, filled, offsets_request

ID, GROUP = "id", "g"
READ, WRITE, DESCRIBE, CREATE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE
ON_TOPIC, ON_GROUP, ON_CLUSTER, ON_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


@pytest.fixture
def world():
    world = AclWorld()
    world.cluster.controller.create_topic(TOPIC, 1)
    world.cluster.controller.create_topic("u", 1)
    world.cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    world.cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    return world


def produced(client, topics, *, transactional_id=None, version=11):
    """Produce to partition 0 of each topic and return the error codes."""
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name, batch in topics.items()]
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1000}
    answer = client.ask(filled(m.ProduceRequest, topic_data=data, **fields), version)
    return {topic.name: part.error_code for topic in answer.responses for part in topic.partition_responses}


def end_offset(world, topic=TOPIC):
    return world.cluster.logs.get(TopicPartition(topic, 0), world.cluster.now_ms).log_end_offset


# Rights of producers


def test_transactional_produce_without_the_id_right_is_refused_before_appending(world):
    for name in (TOPIC, "u"):
        world.grant(WRITE, ON_TOPIC, name)
    identity = init_producer(world.root)
    mixed = {"u": records(), TOPIC: transactional(identity)}
    for version in (3, 11, 12):
        assert produced(world.alice, mixed, transactional_id=ID, version=version) == {"u": 53, TOPIC: 53}
        assert produced(world.alice, mixed, version=version) == {"u": 53, TOPIC: 53}
    assert (end_offset(world, "u"), end_offset(world)) == (0, 0)
    assert world.cluster.brokers[1].transactions.images()[ID].partitions == frozenset()
    world.grant(WRITE, ON_ID, ID)
    assert produced(world.alice, mixed, transactional_id=ID, version=12) == {"u": 0, TOPIC: 0}
    assert (end_offset(world, "u"), end_offset(world)) == (1, 1)


def test_topic_without_the_right_is_refused_and_others_are_written(world):
    world.grant(WRITE, ON_TOPIC, TOPIC)
    assert produced(world.alice, {TOPIC: records(), "u": records(), "unheard-of": records()}) == {
        TOPIC: 0,
        "u": 29,
        "unheard-of": 29,
    }
    assert (end_offset(world), end_offset(world, "u")) == (1, 0)


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
def test_internal_topics_refuse_clients_with_any_rights(world, name):
    assert produced(world.root, {name: records()}) == {name: 17}
    world.root.client_id = "__admin_client"
    assert produced(world.root, {name: records()}) == {name: 0}
    world.alice.client_id = "__admin_client"
    assert produced(world.alice, {name: records()}) == {name: 29}


def test_add_partitions_is_all_or_none(world):
    world.grant(WRITE, ON_ID, ID)
    identity = init_producer(world.alice)
    world.grant(WRITE, ON_TOPIC, TOPIC)
    form = m.AddPartitionsToTxnRequest
    answer = world.alice.ask(
        filled(
            form,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                {"name": name, "partitions": [0]} for name in (TOPIC, "u", "unheard-of", CONSUMER_OFFSETS_TOPIC)
            ],
        ),
        3,
    )
    assert {
        topic.name: topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below
    } == {TOPIC: 55, "u": 29, "unheard-of": 29, CONSUMER_OFFSETS_TOPIC: 29}
    assert world.cluster.brokers[1].transactions.images()[ID].partitions == frozenset()


def test_error_messages_name_no_topic_requested_by_id(world):
    topic_id = world.cluster.controller.create_topic("secret", 1).topic_id
    deleted = world.alice.ask(
        filled(m.DeleteTopicsRequest, timeout_ms=1000, topics=[{"name": None, "topic_id": topic_id}]), 6
    )
    produced_by_id = world.alice.ask(
        filled(
            m.ProduceRequest,
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"topic_id": topic_id, "partition_data": [{"index": 0, "records": records()}]}],
        ),
        13,
    )
    for answer in (deleted, produced_by_id):
        assert {*error_codes(answer)} == {29}
        assert "secret" not in str(answer)


# Groups


def join(client, *, names=None, regex=None, member="x", group="c"):
    fields = {"subscribed_topic_names": names, "subscribed_topic_regex": regex}
    return client.ask(consumer_join(group, member_id=member, **fields), 1)


def test_regular_expression_matches_topics_the_consumer_may_describe(world):
    def assigned(client, member):
        return {
            topic.topic_id
            for topic in join(client, regex=".*", member=member, group=member).assignment.topic_partitions
        }

    world.grant(READ, ON_GROUP, "x")
    world.grant(DESCRIBE, ON_TOPIC, TOPIC)
    topics = world.cluster.metadata.topics
    assert assigned(world.alice, "x") == {topics[TOPIC].topic_id}
    assert assigned(world.root, "y") == {topic.topic_id for topic in topics.values()}


def committed(client, names, version=8):
    """Fetch a group's offsets of these topics (None for all) and return the error and the offset by topic."""
    form = m.OffsetFetchRequest.OffsetFetchRequestGroup
    topics = (
        None if names is None else [form.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    )
    [group] = client.ask(filled(m.OffsetFetchRequest, groups=[{"group_id": GROUP, "topics": topics}]), version).groups
    return group.error_code, {
        topic.name: (part.error_code, part.committed_offset) for topic in group.topics for part in topic.partitions
    }


def commit(client, names):
    answer = client.ask(plain_commit(7, group=GROUP, topics=names), 8)
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def test_offsets_are_authorized_per_topic(world):
    assert commit(world.alice, [TOPIC, "u"]) == {TOPIC: 30, "u": 30}
    assert committed(world.alice, [TOPIC]) == (30, {})
    world.grant(READ, ON_GROUP, GROUP)
    world.grant(READ, ON_TOPIC, TOPIC)
    assert commit(world.alice, [TOPIC, "u", "unheard-of"]) == {TOPIC: 0, "u": 29, "unheard-of": 29}
    assert commit(world.root, ["u"]) == {"u": 0}
    assert committed(world.alice, [TOPIC, "u"]) == (0, {TOPIC: (0, 7), "u": (29, -1)})
    assert committed(world.alice, None) == (0, {TOPIC: (0, 7)})
    assert committed(world.root, None) == (0, {TOPIC: (0, 7), "u": (0, 7)})


# Fetch: rights may be removed during a session or a wait


def test_fetch_session_ends_with_the_read_right(world):
    world.grant(READ, ON_TOPIC, TOPIC)
    first = world.alice.ask(fetch_request(TOPIC, {}, session_epoch=0), 11)
    assert first.responses[0].partitions[0].error_code == 0
    world.revoke_all()
    request = fetch_request(TOPIC, session_id=first.session_id, session_epoch=1)
    request.topics = []
    later = world.alice.ask(request, 11)
    assert later.responses[0].partitions[0].error_code == 29


def test_records_written_after_the_right_is_removed_are_not_read(world):
    world.grant(READ, ON_TOPIC, TOPIC)
    world.alice.post(fetch_request(TOPIC, {}, max_wait_ms=10_000), 11)
    assert world.alice.take() is None
    world.revoke_all()
    assert produced(world.root, {TOPIC: records()}) == {TOPIC: 0}
    part = world.alice.take().responses[0].partitions[0]
    assert (part.error_code, part.records) == (29, b"")


# ACLs


def listed(client, **chosen):
    answer = client.ask(m.DescribeAclsRequest(**EVERY_ACL | chosen), 3)
    assert answer.error_code == 0, answer
    return {
        (found.resource_name, found.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for found in answer.resources
        for acl in found.acls
    }


GOOD = {
    "resource_type": 2,
    "resource_name": "a",
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def test_each_of_several_acls_succeeds_or_fails_alone(world):
    answer = world.root.ask(
        filled(m.CreateAclsRequest, creations=[GOOD, GOOD | {"principal": "alice"}, GOOD | {"resource_type": 4}]), 3
    )
    assert [result.error_code for result in answer.results] == [0, 42, 42]
    assert answer.results[0].error_message == "", "Apache Kafka answers an empty text, not null"
    assert len(listed(world.root)) == 1


def test_acls_survive_a_crash(storage: MemoryStorage):
    before = AclWorld(storage)
    before.cluster.controller.create_topic(TOPIC, 1)
    before.grant(WRITE, ON_TOPIC, TOPIC)
    before.grant(READ, ON_TOPIC, "gone")
    before.root.ask(filled(m.DeleteAclsRequest, filters=[EVERY_ACL | {"operation": 3}]), 3)
    before.root.ask(filled(m.DeleteAclsRequest, filters=[EVERY_ACL | {"operation": 4}]), 3)
    before.grant(WRITE, ON_TOPIC, TOPIC)
    storage.crash()
    after = AclWorld(storage)
    assert listed(after.root) == {(TOPIC, 3, "User:alice", 4, 3)}
    assert produced(after.alice, {TOPIC: records()}) == {TOPIC: 0}


SOME_ACLS = [
    new_acl(2, pattern, name, "User:a", host, 3, 3)
    for pattern in (3, 4)
    for name in ("t", "*")
    for host in ("*", "10.0.0.0/8")
]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(SOME_ACLS)), max_size=20))
def test_replay_restores_the_live_acls(steps):
    journal = []

    def append(_key, value):
        journal.append(value)
        return len(journal) - 1

    metadata, expected = ClusterMetadata(append, (1,)), set()
    for creates, acl in steps:
        if creates:
            recorded = len(journal)
            metadata.create_acl(acl)
            assert len(journal) == recorded + (acl not in expected)
            expected.add(acl)
        elif acl in expected:
            metadata.delete_acl(acl)
            expected.remove(acl)
    replayed = ClusterMetadata(append, (1,))
    replayed.load(list(enumerate(journal)))
    assert set(metadata.acls) == set(replayed.acls) == expected


def test_acl_host_is_checked(world):
    world.grant(WRITE, ON_TOPIC, TOPIC, host="10.0.0.1")
    assert produced(world.alice, {TOPIC: records()}) == {TOPIC: 0}
    assert produced(world.client("alice", host="10.0.0.2"), {TOPIC: records()}) == {TOPIC: 29}


def test_refusal_is_logged_once_per_request_and_resource(world, caplog):
    request = offsets_request(TOPIC, "u", partitions=range(100))
    with caplog.at_level("INFO", logger="broker_core.broker.authorization"):
        for _ in range(2):
            answer = world.alice.ask(request, 6)
            assert {part.error_code for topic in answer.topics for part in topic.partitions} == {29}
    assert [record.getMessage().partition("right to ")[2] for record in caplog.records] == [
        "DESCRIBE TOPIC 't', which ListOffsets needs",
        "DESCRIBE TOPIC 'u', which ListOffsets needs",
    ] * 2


def test_refusal_log_names_principal_operation_and_resource(world, caplog):
    with caplog.at_level("INFO", logger="broker_core.broker.authorization"):
        produced(world.alice, {TOPIC: records()})
    assert "'User:alice' from 10.0.0.1 has no right to WRITE TOPIC 't', which Produce needs" in caplog.text
