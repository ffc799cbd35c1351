"""Share groups (KIP-932) by single requests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, make_topic, send, unique
from tests.support.messages import consumer_join
from tests.support.raw_client import RawClient
from tests.support.share_session import (
    ACCEPT,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    Range,
    ShareMember,
    acquired,
    make_group,
)
from tests.support.waiting import wait_until

E = ErrorCode
Open = Callable[..., ShareMember]
FINAL = -1
_STATE_REQUESTS = (m.InitializeShareGroupStateRequest, m.ReadShareGroupStateRequest, m.WriteShareGroupStateRequest)


@pytest.fixture
def open_member(kafka: Kafka) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(group: str, topic: str) -> ShareMember:
            return ShareMember(stack.enter_context(RawClient(kafka.bootstrap_servers)), group, topic)

        yield opened


def write(kafka: Kafka, topic: str, count: int) -> None:
    send(make_producer(kafka), topic, [b"%03d" % number for number in range(count)], partition=0)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Return a topic with one batch of five records."""
    name = make_topic(kafka)
    write(kafka, name, 5)
    return name


def offsets(kafka: Kafka, group: str, topic: str) -> tuple[int, int]:
    """Return the start offset and the lag of partition 0."""
    form = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    named = form.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])
    request = m.DescribeShareGroupOffsetsRequest(groups=[form(group_id=group, topics=[named])])
    with RawClient(kafka.bootstrap_servers) as client:
        described = client.send(request, 1).groups[0]
    assert described.error_code == E.NONE
    return described.topics[0].partitions[0].start_offset, described.topics[0].partitions[0].lag


# Rules K.1/1 and K.1/3.
def test_member_joins_stays_and_leaves(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka), topic).join()
    first = member.epoch
    assert first > 0
    assert member.heartbeat().error_code == E.NONE
    assert member.heartbeat(first + 7).error_code == E.FENCED_MEMBER_EPOCH
    left = member.heartbeat(FINAL)
    assert (left.error_code, left.member_epoch) == (E.NONE, FINAL)
    assert member.heartbeat(first).error_code == E.UNKNOWN_MEMBER_ID


# Rule K.1/2.
def test_more_members_than_partitions_fetch_the_same(kafka: Kafka, open_member: Open):
    topic, group = make_topic(kafka), make_group(kafka)
    members = [open_member(group, topic).join() for _ in range(3)]
    for member in members:
        member.fetch(wait_ms=300)
    found = []
    for member in members:
        write(kafka, topic, 2)
        found += member.acquire()
    assert found == [Range(0, 1), Range(2, 3), Range(4, 5)]


# Rule K.1/4.
def test_group_has_one_type(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka), topic).join()
    assert member.client.send(consumer_join(member.group, topic), 1).error_code == E.GROUP_ID_NOT_FOUND


# Rule K.1/5.
@pytest.mark.parametrize("key", ["group", "group:x:0", "group:AAAAAAAAAAAAAAAAAAAAAA", ":AAAAAAAAAAAAAAAAAAAAAA:0"])
def test_key_of_the_share_coordinator(client: RawClient, key: str):
    request = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    assert client.send(request, 6).coordinators[0].error_code == E.INVALID_REQUEST


# Rules K.2/1, K.2/2, K.2/3 and K.2/5.
def test_session_has_epochs(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka), topic).join()
    assert member.fetch(session_epoch=1).error_code == E.SHARE_SESSION_NOT_FOUND
    assert member.fetch((0, 0, [ACCEPT])).error_code == E.INVALID_REQUEST
    assert member.acquire() == [Range(0, 4)]
    assert member.fetch(session_epoch=member.session_epoch + 1).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(0, 0, ACCEPT) == E.NONE
    assert member.acknowledge(1, 1, ACCEPT, session_epoch=FINAL) == E.NONE
    assert member.acknowledge(2, 2, ACCEPT) == E.SHARE_SESSION_NOT_FOUND
    heir = open_member(member.group, topic).join()
    assert heir.acquire() == [Range(2, 4, 2)]


# Rules K.2/4 and K.3/2.
def test_end_of_the_connection_releases(kafka: Kafka, open_member: Open):
    topic = make_topic(kafka)
    member = open_member(make_group(kafka), topic).join()
    heir = open_member(member.group, topic).join()
    heir.fetch(wait_ms=0)
    write(kafka, topic, 5)
    assert member.acquire() == [Range(0, 4)]
    member.client.close()
    assert heir.acquire() == [Range(0, 4, 2)]


# Rule K.3/1.
def test_latest_is_the_default(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(unique("share"), topic).join()
    assert acquired(member.fetch()) == []
    write(kafka, topic, 1)
    assert member.acquire() == [Range(5, 5)]


# Rules K.3/3 and K.4/2.
def test_lock_ends_unless_it_is_renewed(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka, share_record_lock_duration_ms="2000"), topic).join()
    heir = open_member(member.group, topic).join()
    assert member.acquire() == [Range(0, 4)]
    assert acquired(heir.fetch(wait_ms=1_000)) == []
    assert member.acknowledge(0, 4, RENEW, is_renewal=True) == E.NONE
    assert acquired(heir.fetch(wait_ms=1_000)) == [], "the lock began again"
    assert heir.acquire() == [Range(0, 4, 2)]
    assert member.acknowledge(0, 4, ACCEPT) == E.INVALID_RECORD_STATE


# Rules K.3/4 and K.4/1.
def test_record_that_is_delivered_too_often_is_archived(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka, share_delivery_count_limit="2"), topic).join()
    assert member.acquire() == [Range(0, 4)]
    assert member.acknowledge(0, 4, ACCEPT, RELEASE, REJECT, RELEASE, ACCEPT) == E.NONE
    assert member.acquire() == [Range(1, 1, 2), Range(3, 3, 2)]
    assert member.acknowledge(1, 1, RELEASE) == E.NONE
    assert member.acknowledge(3, 3, RELEASE) == E.NONE
    write(kafka, topic, 1)
    assert member.acquire() == [Range(5, 5)]


# Rule K.3/5.
def test_strict_limit_is_exact(kafka: Kafka, open_member: Open, topic: str):
    group = make_group(kafka)
    member, other = open_member(group, topic).join(), open_member(group, topic).join()
    assert member.acquire(most=2, mode=RECORD_LIMIT) == [Range(0, 1)]
    assert other.acquire(most=1, mode=RECORD_LIMIT) == [Range(2, 2)]
    assert other.acquire(most=1) == [Range(3, 4)]


# Rule K.4/3.
def test_only_what_is_acquired_can_be_acknowledged(kafka: Kafka, open_member: Open):
    topic, group = make_topic(kafka), make_group(kafka)
    member, other = open_member(group, topic).join(), open_member(group, topic).join()
    other.fetch(wait_ms=0)
    write(kafka, topic, 5)
    assert member.acquire() == [Range(0, 4)]
    assert other.acknowledge(0, 0, ACCEPT) in (E.INVALID_RECORD_STATE, E.INVALID_REQUEST)
    assert member.acknowledge(1, 1, ACCEPT) == E.NONE
    assert member.acknowledge(1, 1, ACCEPT) == E.INVALID_RECORD_STATE


# Rules K.4/4, K.5/1, K.5/2, K.5/3 and K.5/4.
def test_administration_of_offsets(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka), topic).join()
    group = member.group
    assert member.acquire() == [Range(0, 4)]
    assert member.acknowledge(0, 1, ACCEPT) == E.NONE
    assert member.acknowledge(3, 3, ACCEPT) == E.NONE
    assert offsets(kafka, group, topic) == (2, 2)
    form = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    altering = m.AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            form(
                topic_name=topic,
                partitions=[form.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)],
            )
        ],
    )
    deleting = m.DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)],
    )
    client = member.client
    assert client.send(altering, 0).error_code == E.NON_EMPTY_GROUP
    assert client.send(deleting, 0).error_code == E.NON_EMPTY_GROUP
    assert client.send(m.DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == E.NON_EMPTY_GROUP
    member.acknowledge(2, 2, ACCEPT, session_epoch=FINAL)
    member.heartbeat(FINAL)
    client.close()
    with RawClient(kafka.bootstrap_servers) as admins:
        wait_until(lambda: admins.send(altering, 0).error_code == E.NONE, "the group is empty")
        assert offsets(kafka, group, topic)[0] == 1
        heir = open_member(group, topic).join()
        assert heir.acquire() == [Range(1, 4)]
        heir.heartbeat(FINAL)
        heir.client.close()
        wait_until(lambda: admins.send(deleting, 0).error_code == E.NONE, "the group is empty")
        last = open_member(group, topic).join()
        assert last.acquire() == [Range(0, 4)]
        last.heartbeat(FINAL)
        last.client.close()
        deleting_group = m.DeleteGroupsRequest(groups_names=[group])
        wait_until(lambda: admins.send(deleting_group, 2).results[0].error_code == E.NONE, "the group is empty")
        assert admins.send(deleting_group, 2).results[0].error_code == E.GROUP_ID_NOT_FOUND


# Rule K.4/7.
def test_writers_of_former_epochs_are_fenced(kafka: Kafka, open_member: Open, topic: str):
    member = open_member(make_group(kafka), topic)
    group, topic_id, client = member.group, member.topic_id, member.client
    key = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{group}:AAAAAAAAAAAAAAAAAAAAAA:0"])
    wait_until(lambda: client.send(key, 6).coordinators[0].error_code == E.NONE, "the share coordinator is there")

    def result(form: Any, version: int, **values: Any) -> int:
        topics = [form(topic_id=topic_id, partitions=[form.PartitionData(partition=0, **values)])]
        request = next(each for each in _STATE_REQUESTS if getattr(each, form.__name__, None) is form)
        return int(client.send(request(group_id=group, topics=topics), version).results[0].partitions[0].error_code)

    def write_state(state_epoch: int, leader_epoch: int) -> int:
        values = {"start_offset": 0, "delivery_complete_count": 0, "state_batches": []}
        form = m.WriteShareGroupStateRequest.WriteStateData
        return result(form, 1, state_epoch=state_epoch, leader_epoch=leader_epoch, **values)

    initializing = m.InitializeShareGroupStateRequest.InitializeStateData
    wait_until(lambda: result(initializing, 0, state_epoch=1, start_offset=0) == E.NONE, "the state is initialized")
    assert result(initializing, 0, state_epoch=0, start_offset=0) == E.FENCED_STATE_EPOCH
    assert write_state(0, 0) == E.FENCED_STATE_EPOCH
    assert result(m.ReadShareGroupStateRequest.ReadStateData, 0, leader_epoch=3) == E.NONE
    assert write_state(1, 2) == E.FENCED_LEADER_EPOCH
    assert write_state(1, 3) == E.NONE
