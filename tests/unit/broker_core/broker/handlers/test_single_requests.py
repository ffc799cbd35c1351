"""Special cases of single requests in the rules, on a cluster without sockets."""

from typing import Any

import pytest

from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core import requests
from tests.support.broker_core.requests import (
    TOPIC,
    fetch_request,
    first_join,
    init_producer,
    offset_commit,
    plain_commit,
    produce,
    records,
    write_marker,
)
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import filled, offsets_request

E = ErrorCode
GROUP = "group"
P0 = TopicPartition(TOPIC, 0)
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
ONE_EACH = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
READ_COMMITTED = 1


def connected(**settings: str) -> DirectClient:
    """Return a client of a cluster with one topic and its internal topics."""
    cluster = direct_cluster(settings=ONE_EACH | {key.replace("_", "."): value for key, value in settings.items()})
    cluster.controller.create_topic(TOPIC, 1)
    for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        cluster.controller.ensure_topic(name)
    return DirectClient(cluster)


@pytest.fixture
def client() -> DirectClient:
    return connected()


def identity_of(client: DirectClient, transactional_id: str | None = "id") -> ProducerIdentity:
    answer = init_producer(client, transactional_id)
    assert answer.error_code == E.NONE
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def produced(client: DirectClient, batch: bytes, **fields: Any) -> ErrorCode:
    fields = {"transactional_id": "id", "version": 12} | fields
    return ErrorCode(requests.produced(client, batch, **fields).error_code)


def batch_of(identity: ProducerIdentity, *, is_transactional: bool = True) -> bytes:
    fields = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    return records(**fields, base_sequence=0, is_transactional=is_transactional)


def committed_in_transaction(
    client: DirectClient, identity: ProducerIdentity, version: int, partitions: tuple[int, ...] = (0,)
) -> list[ErrorCode]:
    answer = client.ask(offset_commit(identity, 5, group=GROUP, partitions=partitions), version)
    return [ErrorCode(part.error_code) for part in answer.topics[0].partitions]


def marked(client: DirectClient, topic_partition: TopicPartition, identity: ProducerIdentity) -> ErrorCode:
    return ErrorCode(write_marker(client, topic_partition, *identity))


def listed(client: DirectClient, timestamp: int, version: int, **fields: Any) -> list[tuple[int, int]]:
    answer = client.ask(offsets_request(TOPIC, timestamp=timestamp, **fields), version)
    return [(found.error_code, found.offset) for found in answer.topics[0].partitions]


def fetched(
    client: DirectClient, *, leader_epoch: int = -1, max_bytes: int = 2**20, partition_bytes: int = 2**20
) -> Any:
    wanted = {"current_leader_epoch": leader_epoch, "partition_max_bytes": partition_bytes}
    fields = {"min_bytes": 0, "max_bytes": max_bytes, "isolation_level": READ_COMMITTED}
    return client.ask(fetch_request(TOPIC, wanted, **fields), 11).responses[0].partitions[0]


# Coordinators


# Rule A.4/3.
@pytest.mark.parametrize(("key_type", "topic"), [(0, CONSUMER_OFFSETS_TOPIC), (1, TRANSACTION_STATE_TOPIC)])
def test_find_coordinator_creates_the_state_topic(key_type: int, topic: str) -> None:
    cluster = direct_cluster()
    assert topic not in cluster.metadata.topics
    answer = DirectClient(cluster).ask(m.FindCoordinatorRequest(key="any", key_type=key_type), 3)
    assert (answer.error_code, answer.node_id) == (E.NONE, 1)
    assert topic in cluster.metadata.topics


# Rule A.6 request/7.
@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_batch_without_transactions_returns_an_empty_response(
    client: DirectClient, version: int
) -> None:
    answer = client.ask(m.AddPartitionsToTxnRequest(transactions=[]), version)
    assert (answer.error_code, answer.results_by_transaction) == (E.NONE, [])


def test_a_member_leaves_by_its_own_id_before_version_3(client: DirectClient) -> None:
    leave = m.LeaveGroupRequest(group_id="g", member_id=client.ask(first_join(), 3).member_id)
    assert [client.ask(leave, 2).error_code for _ in range(2)] == [E.NONE, E.UNKNOWN_MEMBER_ID]


# Produce


# Rule C.1 more/2.
@pytest.mark.parametrize("acks", [1, -1])
def test_transactional_produce_accepts_fewer_than_all_acks(client: DirectClient, acks: int) -> None:
    assert produced(client, batch_of(identity_of(client)), acks=acks) is E.NONE
    assert fetched(client).last_stable_offset == 0


# Rule C.1 more/3.
def test_nontransactional_batch_with_a_transactional_id_opens_no_transaction(client: DirectClient) -> None:
    assert produced(client, batch_of(identity_of(client), is_transactional=False)) is E.NONE
    assert fetched(client).last_stable_offset == 1
    [described] = client.ask(m.DescribeTransactionsRequest(transactional_ids=["id"]), 0).transaction_states
    assert described.transaction_state == "Empty"


# Rule C.1 more/8.
def test_partition_named_twice_gets_both_batches(client: DirectClient) -> None:
    request, _ = produce(batch_of(ProducerIdentity(-1, -1), is_transactional=False))
    request.topic_data[0].partition_data *= 2
    answer = client.ask(request, 12)
    parts = answer.responses[0].partition_responses
    assert [(part.error_code, part.base_offset) for part in parts] == [(E.NONE, 0), (E.NONE, 1)]


# Rule C.3 answer/5.
def test_added_partition_is_durable_before_its_batch_is_appended(
    client: DirectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _ = produce(batch_of(identity_of(client)), transactional_id="id")
    log = client.cluster.logs.get(P0, client.cluster.now_ms)
    state = client.cluster.logs.get(TopicPartition(TRANSACTION_STATE_TOPIC, 0), client.cluster.now_ms)
    with monkeypatch.context() as unsettled:
        unsettled.setattr(client.cluster, "settle", lambda now_ms: None)
        client.post(request, 12)
        assert (state.unsynced_bytes > 0, log.log_end_offset) == (True, 0)
    client.cluster.settle(client.cluster.now_ms)
    assert client.take().responses[0].partition_responses[0].error_code == E.NONE
    assert (state.unsynced_bytes, log.log_end_offset) == (0, 1)


# Rules C.1/29 and C.4/2.
def test_duplicate_of_an_unacknowledged_batch_is_durable_when_acknowledged(storage: MemoryStorage) -> None:
    cluster = direct_cluster(storage)
    cluster.controller.create_topic(TOPIC, 1)
    client = DirectClient(cluster)
    batch = batch_of(ProducerIdentity(7, 0), is_transactional=False)
    # Like a request that was neither synced nor answered.
    cluster.logs.get(P0, cluster.now_ms).append_as_leader(batch, now_ms=cluster.now_ms, leader_epoch=0)
    assert produced(client, batch, transactional_id=None) is E.NONE
    storage.crash()
    assert fetched(DirectClient(direct_cluster(storage))).high_watermark == 1


# Rule C.3 mode/4.
def test_partitions_are_added_when_verification_is_disabled() -> None:
    client = connected(transaction_partition_verification_enable="false")
    assert produced(client, batch_of(identity_of(client))) is E.NONE
    [described] = client.ask(m.DescribeTransactionsRequest(transactional_ids=["id"]), 0).transaction_states
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [(TOPIC, [0])]


# Offsets


# Rules B.3/7 and E.1/19.
def test_transactional_offsets_are_records_of_the_producer_ended_by_a_marker(client: DirectClient) -> None:
    identity = identity_of(client)
    assert committed_in_transaction(client, identity, 5) == [E.NONE]
    assert marked(client, OFFSETS, identity) is E.NONE
    log = client.cluster.logs.get(OFFSETS, client.cluster.now_ms)
    headers = [header for _, header, _ in log.read_journal()]
    assert [(header.is_transactional, header.is_control) for header in headers] == [(True, False), (True, True)]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {identity}


# Rule E.1/4.
def test_offsets_of_a_missing_partition_fail_alone(client: DirectClient) -> None:
    codes = committed_in_transaction(client, identity_of(client), 5, partitions=(0, 7))
    assert codes == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


# Rules C.5 codes/1 and E.1/21.
def test_offsets_of_an_ended_producer_epoch_are_refused() -> None:
    client = connected(transaction_partition_verification_enable="false")
    identity = identity_of(client)
    assert marked(client, OFFSETS, ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)) is E.NONE
    assert committed_in_transaction(client, identity, 3) == [E.INVALID_PRODUCER_EPOCH]


# Rule C.5 codes/4.
@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_a_zombie_are_refused_by_its_transaction_coordinator(client: DirectClient, version: int) -> None:
    zombie = identity_of(client)
    assert identity_of(client) == (zombie.producer_id, zombie.producer_epoch + 1)
    assert committed_in_transaction(client, zombie, version) == [E.INVALID_PRODUCER_EPOCH]


# Rule E.4/6.
@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, E.COORDINATOR_NOT_AVAILABLE),
        (1, E.COORDINATOR_NOT_AVAILABLE),
        (2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (5, E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_loading_group_coordinator_is_not_available_to_old_clients(
    client: DirectClient, version: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = identity_of(client)
    groups = client.cluster.brokers[1].groups
    monkeypatch.setattr(groups, "check_transactional_commit", lambda _: E.COORDINATOR_LOAD_IN_PROGRESS)
    assert committed_in_transaction(client, identity, version) == [code]


# Rule E.3/5.
def test_offset_fetch_with_member_epoch_but_no_member_id_is_refused() -> None:
    group = ConsumerGroup(GROUP)
    assert group.fetch_error(None, 3) is E.UNKNOWN_MEMBER_ID
    assert group.fetch_error(None, -1) is E.NONE


def stable_offset(client: DirectClient, version: int, **topic: Any) -> tuple[ErrorCode, int]:
    group = {"group_id": GROUP, "topics": [topic | {"partition_indexes": [0]}], "member_id": None, "member_epoch": -1}
    request = filled(m.OffsetFetchRequest, groups=[group], require_stable=True)
    [part] = client.ask(request, version).groups[0].topics[0].partitions
    return ErrorCode(part.error_code), part.committed_offset


# Rule E.3/6.
def test_offset_of_a_deleted_topic_is_not_the_one_of_its_successor(client: DirectClient) -> None:
    controller = client.cluster.controller
    assert client.ask(plain_commit(5, group=GROUP), 8).topics[0].partitions[0].error_code == E.NONE
    # The group's coordinator is away, so that nothing records the deletion in its log.
    controller.lose_leader(OFFSETS)
    controller.delete_topic(TOPIC)
    topic_id = controller.create_topic(TOPIC, 1).topic_id
    controller.elect(OFFSETS, 1)
    assert stable_offset(client, 9, name=TOPIC) == (E.NONE, 5)
    assert stable_offset(client, 10, topic_id=topic_id) == (E.NONE, -1)


# Rule E.3/6.
def test_offset_that_is_pending_or_recorded_without_a_topic_id_is_found_by_it(client: DirectClient) -> None:
    request = plain_commit(5, group=GROUP)
    # Kafka records no topic id with a retention.
    request.retention_time_ms = 10**9
    assert client.ask(request, 4).topics[0].partitions[0].error_code == E.NONE
    topic_id = client.cluster.metadata.topic(TOPIC).topic_id
    assert stable_offset(client, 10, topic_id=topic_id) == (E.NONE, 5)
    assert committed_in_transaction(client, init_producer(client), 5) == [E.NONE]
    assert stable_offset(client, 10, topic_id=topic_id) == (E.UNSTABLE_OFFSET_COMMIT, -1)


# Fetch and ListOffsets


# Rules D.1 more/5 and D.3 errors/6.
def test_read_requests_accept_only_the_current_leader_epoch_or_none() -> None:
    client = connected()
    client.cluster.controller.move_leader(P0, 1)
    client.cluster.settle(client.cluster.now_ms)
    now = client.cluster.metadata.leadership(P0).leader_epoch
    assert now > 0
    expected = {-1: E.NONE, now: E.NONE, now - 1: E.FENCED_LEADER_EPOCH, now + 1: E.UNKNOWN_LEADER_EPOCH}
    assert {epoch: fetched(client, leader_epoch=epoch).error_code for epoch in expected} == expected
    assert {epoch: listed(client, -1, 4, leader_epoch=epoch)[0][0] for epoch in expected} == expected


# Rule D.1 more/6.
@pytest.mark.parametrize("limits", [{"max_bytes": -5}, {"partition_bytes": -5}])
def test_negative_limit_means_unlimited(client: DirectClient, limits: dict[str, int]) -> None:
    for _ in range(2):
        assert produced(client, batch_of(identity_of(client, None), is_transactional=False)) is E.NONE
    found, nothing = fetched(client, **limits), fetched(client, **dict.fromkeys(limits, 0))
    assert (found.records, found.high_watermark) == (nothing.records, 2)


# Rules D.3/3, D.3/5, D.3/6 and D.3/7.
def test_special_timestamps_of_a_log_without_tiered_storage(client: DirectClient) -> None:
    for _ in range(3):
        assert produced(client, batch_of(identity_of(client, None), is_transactional=False)) is E.NONE
    client.cluster.logs.get(P0, client.cluster.now_ms).delete_records_before(2)
    assert [listed(client, timestamp, 11) for timestamp in (-2, -4, -5, -6)] == [
        [(E.NONE, 2)],
        [(E.NONE, 2)],
        [(E.NONE, -1)],
        [(E.NONE, -1)],
    ]
    for timestamp, before in ((-5, 8), (-6, 10)):
        assert listed(client, timestamp, before) == [(E.UNSUPPORTED_VERSION, -1)]


# Rule D.3 errors/2.
def test_partition_requested_twice_is_refused(client: DirectClient) -> None:
    assert listed(client, -1, 4, partitions=(0, 0)) == [(E.INVALID_REQUEST, -1)]


def test_topic_without_partitions_is_not_answered(client: DirectClient) -> None:
    for kind in (m.ListOffsetsRequest, m.DeleteRecordsRequest):
        request = filled(kind, topics=[{"name": TOPIC, "partitions": []}])
        assert client.ask(request, kind.max_version).topics == [], "Apache Kafka leaves the topic out"
