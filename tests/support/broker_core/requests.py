"""Requests that many tests send to a cluster without sockets."""

from collections.abc import Sequence
from typing import Any

from broker_core.broker.marker_writer import MarkerWriter
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TRANSACTION_STATE_TOPIC
from broker_core.wire import messages as m
from tests.support.direct import DirectClient
from tests.support.messages import filled

TOPIC = "t"


def records(count=1, **producer):
    return build_batch([NewRecord(b"k", f"v{n}".encode(), (), 1000) for n in range(count)], **producer)


def produce(*batches, acks=-1, transactional_id=None, version=9, topic=TOPIC, partition=0):
    """Return a Produce of these batches to consecutive partitions of a topic, and its version."""
    form = m.ProduceRequest.TopicProduceData
    data = [form.PartitionProduceData(index=at, records=batch) for at, batch in enumerate(batches, partition)]
    return filled(
        m.ProduceRequest,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": data}],
    ), version


def produced(client, data, **options):
    return client.ask(*produce(data, **options)).responses[0].partition_responses[0]


def fetch_request(topic, *partitions, **fields):
    """Return a Fetch without a session, of 1 MiB at most and without waiting; dicts have the fields that differ."""
    form = m.FetchRequest.FetchTopic
    default = {
        "partition_max_bytes": 2**20,
    }
    common: dict[str, Any] = {
        "replica_id": -1,
        "min_bytes": 1,
        "max_bytes": 2**20,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    wanted = [form.FetchPartition(**(default | each)) for each in partitions]
    return filled(m.FetchRequest, topics=[{"topic": topic, "partitions": wanted}], **common | fields)


def fetch(offset, *, isolation=0, max_wait_ms=0, min_bytes=1, version=11):
    fields = {"isolation_level": isolation, "max_wait_ms": max_wait_ms, "min_bytes": min_bytes}
    return fetch_request(TOPIC, {"fetch_offset": offset}, **fields), version


def fetched(client, offset, **options):
    request, version = fetch(offset, **options)
    return client.ask(request, version).responses[0].partitions[0]


def init_producer(client, transactional_id="id", timeout_ms=60_000):
    fields = {"transaction_timeout_ms": timeout_ms, "producer_id": -1, "producer_epoch": -1}
    return client.ask(m.InitProducerIdRequest(transactional_id=transactional_id, **fields), 4)


def of(identity):
    """Return the fields of an identity in a request."""
    return {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}


def end_request(identity, *, commit=True, transactional_id="id"):
    return m.EndTxnRequest(transactional_id=transactional_id, committed=commit, **of(identity))


def end_transaction(client, identity, *, commit, version=5):
    return client.ask(end_request(identity, commit=commit), version)


def write_marker(client, topic_partition, producer_id, epoch, *, commit=False, coordinator_epoch=0):
    """Send one marker and return the error code of its partition."""
    form = m.WriteTxnMarkersRequest.WritableTxnMarker
    marker = form(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[form.WritableTxnMarkerTopic(name=topic_partition.topic, partition_indexes=[topic_partition.partition])],
    )
    answer = client.ask(m.WriteTxnMarkersRequest(markers=[marker]), 1)
    return answer.markers[0].topics[0].partitions[0].error_code


def described_state(client):
    answer = client.ask(m.DescribeTransactionsRequest(transactional_ids=["id"]), 0)
    return answer.transaction_states[0].transaction_state


def transactional(identity, count=1, *, sequence=0):
    return records(count, base_sequence=sequence, is_transactional=True, **of(identity))


def offset_commit(
    identity: Any, offset: int, *, group: str = "group", transactional_id: str = "id", partitions: Sequence[int] = (0,)
) -> Any:
    """Return a TxnOffsetCommit of one offset for each partition of the topic."""
    form = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    committed: dict[str, Any] = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    each = [form.TxnOffsetCommitRequestPartition(partition_index=index, **committed) for index in partitions]
    return filled(
        m.TxnOffsetCommitRequest,
        transactional_id=transactional_id,
        group_id=group,
        **of(identity),
        member_id="",
        topics=[{"name": TOPIC, "partitions": each}],
    )


def plain_commit(offset: int, *, group: str = "group", topics: Sequence[str] = (TOPIC,), partition: int = 0) -> Any:
    """Return an OffsetCommit without a member of one offset for one partition of each topic."""
    part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
    return filled(
        m.OffsetCommitRequest,
        group_id=group,
        member_id="",
        topics=[{"name": topic, "partitions": [part | {"committed_metadata": ""}]} for topic in topics],
    )


def first_join(group_instance_id: str | None = None) -> Any:
    """Return a JoinGroup of a client that has no member id yet."""
    return filled(
        m.JoinGroupRequest,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=group_instance_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )


def waiting_produce(client, monkeypatch):
    """Send a produce request of the next transaction that waits for the end of the previous one; return its client."""
    client.cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    first = init_producer(client)
    assert produced(client, transactional(first), transactional_id="id", version=12).error_code == 0
    with monkeypatch.context() as held:
        held.setattr(MarkerWriter, "deliver", lambda *_: None)
        second = end_transaction(client, first, commit=True)
        waiting = DirectClient(client.cluster)
        waiting.post(*produce(transactional(second), transactional_id="id", version=12))
        assert waiting.take() is None
    return waiting
