"""Requests that no well-behaved client sends: each gets its error code and affects no other."""

import struct
from uuid import UUID

import pytest

from broker_core.errors import ErrorCode, KafkaError
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.requests import (
    TOPIC,
    described_state,
    fetch,
    fetched,
    first_join,
    init_producer,
    of,
    produce,
    produced,
    records,
    transactional,
    waiting_produce,
)
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import creation, filled


@pytest.fixture
def client():
    cluster = direct_cluster()
    cluster.controller.create_topic(TOPIC, 1)
    return DirectClient(cluster)


OF_ASSIGNMENTS = {"num_partitions": -1, "replication_factor": -1}


@pytest.mark.parametrize(
    ("name", "fields", "code"),
    [
        (CLUSTER_METADATA_TOPIC, {}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (CONSUMER_OFFSETS_TOPIC, {"num_partitions": 3}, ErrorCode.INVALID_REQUEST),
        ("a_b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x", {"num_partitions": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ("x", {**OF_ASSIGNMENTS, "assignments": [(0, [1]), (0, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("x", {"config": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ("x", {"config": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_refused(client, name, fields, code):
    client.cluster.controller.create_topic("a.b", 1)
    before = set(client.cluster.metadata.topics)
    (answer,) = client.ask(creation(name, **fields), 7).topics
    assert answer.error_code == code
    assert set(client.cluster.metadata.topics) == before


def test_an_unknown_broker_that_is_named_twice_is_refused_as_unknown(client):
    (refused,) = client.ask(creation("x", **OF_ASSIGNMENTS, assignments=[(0, [99, 99])]), 7).topics
    assert refused.error_message.endswith("includes broker 99, but no such broker is registered.")


def test_manual_assignment_determines_the_leaders():
    client = DirectClient(direct_cluster(brokers=2))
    (answer,) = client.ask(creation("x", **OF_ASSIGNMENTS, assignments=[(0, [2, 1]), (1, [2, 1])]), 7).topics
    assert answer.error_code == 0
    assert [p.leader for p in client.cluster.metadata.topic("x").partitions] == [2, 2]


def test_coordinator_hash_uses_the_existing_partition_count(storage: MemoryStorage):
    first = direct_cluster(storage, settings={"transaction.state.log.num.partitions": "5"})
    first.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    assert [init_producer(DirectClient(first), f"id-{n}").error_code for n in range(20)] == [0] * 20
    first.close(first.now_ms)
    again = direct_cluster(storage, settings={"transaction.state.log.num.partitions": "7"})
    assert [init_producer(DirectClient(again), f"id-{n}").error_code for n in range(20)] == [0] * 20


# Rule C.1/8.
def test_partition_named_twice_is_verified_twice(client):
    client.cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    request, version = produce(transactional(init_producer(client)), transactional_id="id", version=11)
    request.topic_data[0].partition_data *= 2
    codes = [p.error_code for p in client.ask(request, version).responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTION_ABORTABLE] * 2
    assert fetched(client, 0, isolation=1).high_watermark == 0


def test_produce_waiting_for_the_coordinator_times_out(client, monkeypatch):
    waiting = waiting_produce(client, monkeypatch)
    for _ in range(10):
        client.cluster.advance(client.cluster.now_ms + 20)
    code = waiting.take().responses[0].partition_responses[0].error_code
    assert code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_delayed_produce_does_not_write_to_a_deleted_topic(client, monkeypatch):
    waiting = waiting_produce(client, monkeypatch)
    client.cluster.controller.delete_topic(TOPIC)
    client.cluster.controller.create_topic("other", 1)
    client.cluster.advance(client.cluster.now_ms + 20)
    code = waiting.take().responses[0].partition_responses[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delayed_produce_does_not_write_to_a_recreated_topic(client, monkeypatch):
    """From version 13 on a request names the topic by its id, so it does not apply to a new topic of the same name."""
    client.cluster.controller.create_topic("other", 1)
    client.cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    first = init_producer(client)
    ids = [client.cluster.metadata.topic(name).topic_id for name in (TOPIC, "other")]
    written = [
        {"topic_id": each, "partition_data": [{"index": 0, "records": batch}]}
        for each, batch in zip(ids, (transactional(first), records(1)), strict=True)
    ]
    request = filled(m.ProduceRequest, transactional_id="id", acks=-1, timeout_ms=1000, topic_data=written)
    waiting = DirectClient(client.cluster)
    with monkeypatch.context() as held:
        # The coordinator has accepted the partition; the leader appends only once that is durable.
        held.setattr(client.cluster, "settle", lambda now_ms: None)
        waiting.post(request, 13)
        client.cluster.controller.delete_topic("other")
        client.cluster.controller.create_topic("other", 1)
    client.cluster.settle(client.cluster.now_ms)
    answer = {each.topic_id: each.partition_responses[0].error_code for each in waiting.take().responses}
    assert answer == {ids[0]: 0, ids[1]: ErrorCode.UNKNOWN_TOPIC_ID}
    log = client.cluster.logs.get(TopicPartition("other", 0), client.cluster.now_ms)
    assert log.log_end_offset == 0


def test_remains_of_a_deleted_topic_do_not_reappear(client, monkeypatch):
    client.cluster.controller.create_topic("u", 2)
    produced(client, records(3), topic="u", partition=1)
    with monkeypatch.context() as crash:
        crash.setattr(client.cluster.logs._storage, "delete", lambda _path: None)
        client.cluster.controller.delete_topic("u")
    client.cluster.controller.create_topic("u", 1)
    client.cluster.controller.add_partitions("u", 2)
    assert client.cluster.logs.get(TopicPartition("u", 1), client.cluster.now_ms).log_end_offset == 0


def test_deleted_topic_completes_delayed_requests(client):
    client.post(*fetch(0, max_wait_ms=60_000))
    client.cluster.controller.delete_topic(TOPIC)
    client.cluster.settle(client.cluster.now_ms)
    assert client.take().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_with_max_bytes_below_min_bytes_returns_data(client):
    produced(client, records(100))
    request, version = fetch(0, max_wait_ms=60_000, min_bytes=2**30)
    request.max_bytes = 100
    client.post(request, version)
    assert client.take() is not None


def test_closed_connection_leaves_no_delayed_requests(client):
    for _ in range(10):
        gone = DirectClient(client.cluster)
        gone.post(*fetch(0, max_wait_ms=2**31 - 1))
        gone._connection.lost()
    assert client.cluster.purgatory.next_deadline_ms() is None


def test_unknown_partitions_are_not_added_to_a_transaction(client):
    client.cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    added = {"transactional_id": "id", "verify_only": False, "topics": [{"name": "nope", "partitions": [7]}]}
    transactions = [added | of(init_producer(client))]
    answer = client.ask(filled(m.AddPartitionsToTxnRequest, transactions=transactions), 4)
    [result] = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert result.partition_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described_state(client) == "Empty"


@pytest.mark.parametrize("data", [b"", b"nonsense", None])
def test_unknown_topic_is_reported_before_invalid_records(client, data):
    assert produced(client, data, topic="nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(client, data).error_code == ErrorCode.INVALID_RECORD


# Rule D.1 more/4.
def test_unknown_isolation_level_is_refused(client):
    request, version = fetch(0, isolation=7)
    assert client.ask(request, version).error_code == ErrorCode.INVALID_REQUEST


def test_null_in_a_nonnullable_field_closes_the_connection(client, caplog):
    body = struct.pack(">hhi", 12, 0, 1) + b"\xff\xff" + b"\xff\xff" + struct.pack(">i", 1) + b"\x00\x01m"
    client._connection.receive(struct.pack(">i", len(body)) + body, client.cluster.now_ms)
    assert client.closed
    assert [r for r in caplog.records if r.exc_info] == []
    assert any("group_id is null" in r.message for r in caplog.records)


@pytest.mark.parametrize("ids", [[None], ["id", None]])
def test_null_array_element_closes_the_connection(client, caplog, ids):
    request = m.DescribeTransactionsRequest(transactional_ids=["xx" if each is None else each for each in ids])
    request.API_VERSION = 0
    request.with_header(1, "x")
    data = bytearray(request.encode(header=True, framed=True))
    at = data.index(b"\3xx")
    data[at : at + 3] = b"\0"
    data[:4] = struct.pack(">i", len(data) - 4)
    client._connection.receive(bytes(data), client.cluster.now_ms)
    assert client.closed
    assert any("transactional_ids is null" in r.message for r in caplog.records)


def test_client_with_the_longest_client_id_can_join_a_group(client):
    client.cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    client.client_id = "é" * (32_767 // 2)
    answer = client.ask(first_join(), 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("éé")
    assert len(answer.member_id.encode()) <= 32_767


def test_the_longest_name_is_refused_with_a_short_message(client):
    answer = client.ask(creation("\0" * 32_767), 4)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "characters)" in answer.topics[0].error_message


def test_cluster_metadata_topic_cannot_be_created(client):
    with pytest.raises(KafkaError):
        client.cluster.controller.ensure_topic(CLUSTER_METADATA_TOPIC)


def test_fetch_of_the_zero_topic_id_is_answered(client):
    form = m.FetchRequest.FetchTopic
    topic = form(topic_id=UUID(int=0), partitions=[form.FetchPartition(partition=0, fetch_offset=0)])
    for wait_ms in (0, 10):
        answer = client.ask(m.FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[topic]), 17)
        [found] = answer.responses
        assert [each.error_code for each in found.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
