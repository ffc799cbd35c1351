"""One answer that leaves out what was requested, which says nothing about it: the request is sent again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.options.client import ClientOptions
from tests.crash.wire import Loss, Wire

PLACE = TopicPartition("named", 0)
REQUESTS: dict[str, tuple[int, Callable[[KafkaClient], Any]]] = {
    "Metadata": (3, lambda client: client.require_topics(["named"])["named"].partition_count),
    "OffsetFetch": (9, lambda client: fetch_offsets(client, "named", [PLACE])),
    "FindCoordinator": (10, lambda client: client.find_coordinator(CoordinatorType.TRANSACTION, "named")),
    "DescribeTransactions": (65, lambda client: describe_transactions(client, ["named"])),
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"named": 3}) as broker:
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            init_producer_id(client, "named", transaction_timeout_ms=60_000)
            commit_offsets(client, "named", {PLACE: OffsetAndMetadata(7)})
        yield broker


@pytest.mark.parametrize("api", REQUESTS)
def test_request_is_sent_again_after_an_answer_without_its_items(kafka: EmbeddedBroker, api: str) -> None:
    api_key, send = REQUESTS[api]
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        expected = send(client)
    wire = Wire(kafka.bootstrap_servers)
    try:
        loss = Loss(api_key, (b"named",), keeps_frame=True)
        with KafkaClient(ClientOptions((wire.address,))) as client:
            client.connect()
            wire.losses.append(loss)
            assert send(client) == expected
        assert loss.lost == 1
    finally:
        wire.close()
