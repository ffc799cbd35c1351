"""Brokers that come back at another address under their ids, as pods do, and clients that know the old one."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.producer import InitProducerIdRequest

from broker_core import EmbeddedBroker
from broker_core.broker.endpoints import Address
from broker_core.server.socket_server import SocketServer
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.broker_client import ReplacedClusterError
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import metadata_request
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.response_decoders import FilteredMetadataRequest
from spark_eos.client.transactions import end_txn, init_producer_id
from spark_eos.errors import UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.options.positions import LATEST
from tests.support.spark_eos.brokers import finalize
from tests.support.spark_eos.client_world import encoded, unique


def move_broker(kafka: EmbeddedBroker, broker_id: int) -> None:
    """Restart a broker at a free port; nothing listens at the old one."""
    kafka.broker(broker_id).stop()
    kafka._thread.act(lambda server: _readdress(server, {broker_id: 0}))
    kafka.broker(broker_id).start()


def swap_brokers(kafka: EmbeddedBroker, first: int, second: int) -> None:
    """Restart two brokers, each at the port of the other."""
    before = ports(kafka)
    for broker_id in (first, second):
        kafka.broker(broker_id).stop()
    kafka._thread.act(lambda server: _readdress(server, {first: before[second], second: before[first]}))
    for broker_id in (first, second):
        kafka.broker(broker_id).start()


@contextmanager
def another_cluster_at(kafka: EmbeddedBroker, broker_id: int) -> Iterator[EmbeddedBroker]:
    """Stop a broker, and run one of another cluster with the same topics at its address."""
    kafka.broker(broker_id).stop()
    kafka._thread.act(lambda server: server._ports.take((next(iter(server.addresses)), broker_id)).close())
    with EmbeddedBroker(port=ports(kafka)[broker_id], topics={"t": len(PLACES)}) as other:
        yield other


def ports(kafka: EmbeddedBroker) -> dict[int, int]:
    """Return where the brokers are."""
    [addresses] = kafka._thread.act(lambda server: list(server.addresses.values()))
    return {broker_id: address.port for broker_id, address in addresses.items()}


def _readdress(server: SocketServer, ports: dict[int, int]) -> None:
    [(name, addresses)] = server.addresses.items()
    for broker_id in ports:
        server._ports.take((name, broker_id)).close()
    for broker_id, port in ports.items():
        host = addresses[broker_id].host
        addresses[broker_id] = Address(host, server._ports.reserve((name, broker_id), host, port))


PLACES = [TopicPartition("t", number) for number in range(6)]
# Before, a request to a moved broker failed after a minute, again and again.
PATIENCE_S = 10.0


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3, topics={"t": len(PLACES)}) as broker:
        yield broker


@pytest.fixture(params=["connected", "idle"])
def client(request: pytest.FixtureRequest, kafka: EmbeddedBroker) -> Iterator[KafkaClient]:
    """A client that knows all brokers and has, or has not, a connection to each of them."""
    with KafkaClient(ClientOptions(tuple(kafka.bootstrap_servers.split(",")))) as client:
        for node_id in kafka.broker_ids:
            client.send(node_id, metadata_request([]))
            if request.param == "idle":
                client.transport.close_connection(node_id)
        yield client


def write(client: KafkaClient) -> None:
    """Write a row to all partitions in a transaction, by way of each broker."""
    identity = init_producer_id(client, unique("id"), transaction_timeout_ms=60_000)
    producer = TransactionalProducer(client)
    producer.begin(identity)
    for place in PLACES:
        producer.send(place, encoded(["row"]))
    producer.flush()
    assert end_txn(client, identity, commit=True).code == 0


def coordinate(client: KafkaClient) -> None:
    """Send requests to the coordinators of enough names that each broker is one."""
    names = [f"name-{number}" for number in range(20)]
    assert describe_transactions(client, names).keys() == set(names)
    for name in names[:10]:
        assert fetch_offsets(client, name, PLACES) == {}


def look_up(client: KafkaClient) -> None:
    """Ask each leader for the ends of its partitions, with the leaders that are known from before."""
    topic = client.require_topics(["t"], need_leaders=False, max_age_ms=60_000)["t"]
    known = {place: PartitionPlace(topic.topic_id, topic.partitions[place.partition].leader) for place in PLACES}
    found = OffsetLookup(client, known).offsets(dict.fromkeys(PLACES, LATEST), IsolationLevel.READ_COMMITTED)
    assert found.keys() == set(PLACES)


REQUESTS: dict[str, Callable[[KafkaClient], Any]] = {
    "transaction": write,
    "coordinators": coordinate,
    "offsets": look_up,
    "all brokers": list_transactions,
}


def in_time(request: Callable[[KafkaClient], Any], client: KafkaClient) -> None:
    started = time.monotonic()
    request(client)
    assert time.monotonic() - started < PATIENCE_S


@pytest.mark.parametrize("request_name", REQUESTS)
def test_moved_broker_is_found(kafka: EmbeddedBroker, client: KafkaClient, request_name: str) -> None:
    """Each broker in turn; in the end the bootstrap addresses lead nowhere."""
    REQUESTS[request_name](client)
    for node_id in kafka.broker_ids:
        move_broker(kafka, node_id)
        in_time(REQUESTS[request_name], client)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_brokers_that_swap_their_addresses_are_told_apart(
    kafka: EmbeddedBroker, client: KafkaClient, request_name: str
) -> None:
    """A connection to the old address is a connection to another broker, which answers for itself."""
    REQUESTS[request_name](client)
    swap_brokers(kafka, 1, 3)
    in_time(REQUESTS[request_name], client)
    assert {each.node_id: each.port for each in client.brokers()} == ports(kafka)


def test_moved_brokers_are_found_through_the_bootstrap_servers(kafka: EmbeddedBroker) -> None:
    """An idle client knows the old addresses only, and no broker has a connection."""
    with KafkaClient(ClientOptions((kafka.bootstrap_servers.split(",")[1],))) as client:
        client.connect()
        move_broker(kafka, 1)
        move_broker(kafka, 3)
        kafka.broker(2).stop()
        kafka.broker(2).start()
        in_time(write, client)


def test_coordinator_is_reached_at_the_address_that_its_look_up_names(kafka: EmbeddedBroker) -> None:
    """No failed attempt, and no Metadata request."""
    with KafkaClient(ClientOptions((kafka.bootstrap_servers.split(",")[0],))) as client:
        client.connect()
        node_id = kafka.coordinator(transactional_id="id")
        move_broker(kafka, node_id)
        kafka.move_coordinator(node_id, transactional_id="id")
        before = len(kafka.requests())
        init_producer_id(client, "id", transaction_timeout_ms=60_000)
        asked = [each.api for each in kafka.requests()[before:]]
        assert asked.count("FindCoordinator") == 1 and "Metadata" not in asked


def init_request() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)


def test_broker_of_another_cluster_at_a_known_address_is_not_believed(
    kafka: EmbeddedBroker, client: KafkaClient
) -> None:
    """As in Kubernetes, where a pod gets the address of one that is gone (KIP-1242)."""
    with another_cluster_at(kafka, 2) as other:
        for _ in range(10):
            # A connection of its own for each round: it may be chosen where any broker will do.
            client.transport.close_connection(2)
            for request in (write, coordinate, look_up):
                in_time(request, client)
            with pytest.raises(UnansweredError):
                client.send(2, init_request())
        assert {each.port for each in client.brokers()} <= set(ports(kafka).values())
        assert {each.api for each in other.requests()} <= {"ApiVersions", "Metadata"}


def test_features_of_another_cluster_are_not_kept(kafka: EmbeddedBroker) -> None:
    with KafkaClient(ClientOptions(tuple(kafka.bootstrap_servers.split(",")))) as client:
        client.send(2, metadata_request([]))
        with another_cluster_at(kafka, 2) as other:
            # Its epoch is the larger one.
            for level in (1, 2, 1, 2, 1):
                finalize(other.bootstrap_servers, level)
            client.transport.close_connection(2)
            with pytest.raises(UnansweredError, match="another cluster"):
                client.send(2, init_request())
            assert client.transaction_version() == 2


@pytest.mark.parametrize(
    "make",
    [lambda: metadata_request([]), lambda: FilteredMetadataRequest.of(["t"], "t".__eq__)],
    ids=["plain", "filtered"],
)
def test_client_of_a_cluster_that_is_gone_begins_again_with_the_bootstrap_servers(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """At once, not when its time is up; and where not all addresses are another's, it waits for the others."""
    with EmbeddedBroker(brokers=2) as first:
        client = KafkaClient(ClientOptions(tuple(first.bootstrap_servers.split(",")), api_timeout_ms=20_000))
        client.connect()
        before = client.cluster_id
        with client, another_cluster_at(first, 1):
            first.broker(2).stop()
            with pytest.raises(UnreachableError) as waiting:
                client.ask_metadata(make, timeout_ms=500)
            assert type(waiting.value) is UnreachableError and client.cluster_id == before
            with another_cluster_at(first, 2), pytest.raises(ReplacedClusterError, match="start the query or the job"):
                client.ask_metadata(make)
            assert len(client.metadata(["t"])["t"].partitions) == len(PLACES)
            assert client.cluster_id not in (None, before)
        assert "Error processing callback" not in caplog.messages
