"""Produce requests that a client sends without waiting: they share a sync, and nothing else overtakes them."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.log.partition_log import PartitionLog
from broker_core.types import TopicPartition
from tests.support.broker_core import requests
from tests.support.broker_core.requests import produce, records
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import offsets_request

TOPIC = TopicPartition(requests.TOPIC, 0)
IN_FLIGHT = 5


@pytest.fixture
def client() -> DirectClient:
    cluster = direct_cluster()
    cluster.controller.create_topic(TOPIC.topic, 1)
    return DirectClient(cluster)


def note_syncs(client: DirectClient, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that gets, for each sync, the log end offset and the number of responses sent before it."""
    noted: list[tuple[int, int]] = []
    sync = PartitionLog.sync

    def noting_sync(log: PartitionLog) -> None:
        noted.append((log.log_end_offset, len(client.sent)))
        sync(log)

    monkeypatch.setattr(PartitionLog, "sync", noting_sync)
    return noted


def offset_in(answer: Any) -> int:
    [topic] = answer.responses
    [partition] = topic.partition_responses
    assert partition.error_code == ErrorCode.NONE
    return int(partition.base_offset)


def test_produce_requests_in_flight_share_one_sync(client: DirectClient, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = note_syncs(client, monkeypatch)
    client.post_bytes(b"".join(client.encoded(*produce(records())) for _ in range(IN_FLIGHT)))
    assert syncs == [(IN_FLIGHT, 0)]
    assert [offset_in(client.take()) for _ in range(IN_FLIGHT)] == [*range(IN_FLIGHT)]


def test_another_request_waits_until_the_produce_requests_before_it_are_answered(
    client: DirectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = note_syncs(client, monkeypatch)
    sent = (produce(records()), produce(records()), (offsets_request(TOPIC.topic), 5), produce(records()))
    client.post_bytes(b"".join(client.encoded(*each) for each in sent))
    # The second sync comes after the responses to the first two and to ListOffsets.
    assert syncs == [(2, 0), (3, 3)]
    assert [offset_in(client.take()) for _ in range(2)] == [0, 1]
    assert client.take().topics[0].partitions[0].offset == 2
    assert offset_in(client.take()) == 2


def test_requests_before_malformed_bytes_are_answered_before_the_connection_is_closed(client: DirectClient) -> None:
    client.post_bytes(client.encoded(*produce(records())) + b"\xff" * 4)
    assert offset_in(client.take()) == 0
    assert client.closed


def test_requests_before_a_failed_one_without_answer_are_answered_before_the_connection_is_closed(
    client: DirectClient,
) -> None:
    sent = (produce(records()), produce(b"no batch", acks=0), produce(records()))
    client.post_bytes(b"".join(client.encoded(*each) for each in sent))
    assert offset_in(client.take()) == 0
    assert client.take() is None
    assert client.closed
    assert client.cluster.logs.get(TOPIC, client.cluster.now_ms).log_end_offset == 1
