"""The client finds a cluster, its topics and coordinators, reports what is missing, and survives a fork."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from kafka.protocol.admin import ListTransactionsRequest

from broker_core import EmbeddedBroker, Hold
from spark_eos.client import broker_client, coordinator_cache
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.errors import OptionError, TopicError, UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.options.key_stores import KeyStores
from tests.support.spark_eos import forked_client
from tests.support.spark_eos.client_world import make_topic, unique
from tests.support.spark_eos.scraping import refusing_port


@contextmanager
def listener(*, answer: bytes | None = None) -> Iterator[str]:
    """Accept connections and send nothing on them, or the given bytes."""
    server = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            accepted.append(connection)
            if answer is not None:
                connection.sendall(answer)
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in accepted:
            connection.close()
        thread.join(10)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_unreachable_brokers_are_reported_in_time_with_every_address() -> None:
    first, second = (f"127.0.0.1:{refusing_port()}" for _ in range(2))
    started = time.monotonic()
    with KafkaClient(ClientOptions((first, second))) as client, pytest.raises(UnreachableError) as caught:
        client.connect(1_000)
    assert time.monotonic() - started < 10
    for part in (first, second, "ECONNREFUSED", "security protocol PLAINTEXT", "kafka.bootstrap.servers"):
        assert part in str(caught.value)


def test_what_a_broker_answered_first_is_reported_beside_the_last_attempt() -> None:
    """The last attempt ends with the time limit, whatever the broker does."""
    address = closed_port()

    class StartToListen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            silent.enter_context(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))

    first_failure = StartToListen()
    with ExitStack() as silent, KafkaClient(ClientOptions((address,))) as client:
        broker_client.logger.addHandler(first_failure)
        silent.callback(broker_client.logger.removeHandler, first_failure)
        with pytest.raises(UnreachableError, match=r"ECONNREFUSED, then Initial metadata request timed out"):
            client.connect(2_000)


@pytest.mark.parametrize(
    ("address", "cause"), [(None, "111 ECONNREFUSED"), ("misspelled.invalid:9092", "DNS Resolution failure")]
)
def test_the_first_failed_round_is_logged_once_with_address_and_cause(
    address: str | None, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = address or closed_port()
    with (
        caplog.at_level(logging.WARNING, logger=broker_client.__name__),
        KafkaClient(ClientOptions((address,))) as client,
    ):
        with pytest.raises(UnreachableError):
            client.connect(2_000)
    [record] = [each for each in caplog.records if each.name == broker_client.__name__]
    assert f"Tried {address} (KafkaConnectionError: {cause}). Trying again for up to 2 s" in record.getMessage()
    assert record.levelno == logging.WARNING


def test_unresponsive_listener_does_not_block_the_client() -> None:
    with listener() as address:
        started = time.monotonic()
        with KafkaClient(ClientOptions((address,))) as client, pytest.raises(UnreachableError, match=address):
            client.connect(1_000)
        assert 0.5 < time.monotonic() - started < 10


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_server_that_is_not_kafka_is_reported_in_time(answer: bytes) -> None:
    with listener(answer=answer) as address, KafkaClient(ClientOptions((address,))) as client:
        with pytest.raises(UnreachableError, match=address):
            client.connect(1_000)


def test_tls_to_an_unresponsive_listener_times_out() -> None:
    with listener() as address:
        options = ClientOptions((address,), security_protocol="SSL")
        with KafkaClient(options) as client, pytest.raises(UnreachableError, match="security protocol SSL"):
            client.connect(1_000)


def test_missing_certificate_file_is_reported() -> None:
    options = ClientOptions(("127.0.0.1:1",), security_protocol="SSL", ssl_stores=KeyStores("/nowhere/ca.pem"))
    with KafkaClient(options) as client, pytest.raises(OptionError, match="/nowhere/ca.pem"):
        client.connect(1_000)


@pytest.fixture
def client(kafka_address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((kafka_address,))) as opened:
        yield opened


def test_one_live_bootstrap_address_is_enough(kafka_address: str) -> None:
    with KafkaClient(ClientOptions((closed_port(), kafka_address, closed_port()))) as client:
        client.connect(30_000)
        assert client.brokers()


def test_topics_are_described(client: KafkaClient) -> None:
    name = make_topic(client, 3, retention_ms="123456789")
    topic = client.require_topics([name])[name]
    assert topic.partition_count == 3
    assert topic.topic_id is not None
    assert {each.leader for each in topic.partitions.values()} <= {each.node_id for each in client.brokers()}
    assert describe_topic_config(client, name)["retention.ms"] == "123456789"
    assert name in client.metadata(None)


def test_topic_is_created_once(client: KafkaClient) -> None:
    name = unique("once")
    assert create_topic(client, name, partition_count=1, replication_factor=1)
    assert not create_topic(client, name, partition_count=1, replication_factor=1)


def test_invalid_topic_configuration_is_refused(client: KafkaClient) -> None:
    with pytest.raises(Exception, match="INVALID_CONFIG"):
        create_topic(client, unique("bad"), replication_factor=1, config={"retention.ms": "soon"})


def test_missing_topic_is_refused_promptly_and_not_created(client: KafkaClient) -> None:
    name = unique("missing")
    started = time.monotonic()
    with pytest.raises(TopicError, match=f"Topic '{name}' does not exist"):
        client.require_topics([name])
    assert time.monotonic() - started < 15
    assert name not in client.metadata(None)


def test_invalidated_coordinators_are_looked_up_again() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        keys = [unique("id") for _ in range(3)]
        client.find_coordinators(CoordinatorType.TRANSACTION, keys)
        client.forget_coordinators(CoordinatorType.TRANSACTION, *keys[1:])
        client.find_coordinators(CoordinatorType.TRANSACTION, keys)
        asked = [sorted(each.transactional_ids) for each in kafka.requests(api="FindCoordinator")]
        assert asked == [sorted(keys), sorted(keys[1:])]


def test_least_recently_used_coordinators_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_cache, "MAX_REMEMBERED", 4)
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        client.find_coordinators(CoordinatorType.TRANSACTION, ["a", "b", "c", "d"])
        client.find_coordinator(CoordinatorType.TRANSACTION, "a")
        client.find_coordinators(CoordinatorType.TRANSACTION, ["e", "f"])
        assert len(client._coordinators) == 4
        assert list(client._coordinators.known(CoordinatorType.TRANSACTION, ["a", "d", "e", "f"])) == list("adef")
        many = [f"many-{number}" for number in range(6)]
        assert list(client.find_coordinators(CoordinatorType.TRANSACTION, many)) == many


def test_all_brokers_are_queried_for_a_coordinator_concurrently() -> None:
    go_on = threading.Event()
    with EmbeddedBroker(brokers=3) as kafka, kafka.fault(api="FindCoordinator", action=Hold(go_on)):
        with KafkaClient(ClientOptions(tuple(kafka.bootstrap_servers.split(",")))) as client:
            client.connect()

            def answer_when_all_are_asked() -> None:
                with suppress(AssertionError):
                    kafka.wait_for(lambda: len(kafka.requests(api="FindCoordinator")) == 3, timeout=10)
                    go_on.set()

            thread = threading.Thread(target=answer_when_all_are_asked)
            thread.start()
            client.agree_on_coordinator(CoordinatorType.GROUP, "group", timeout_ms=20_000)
            thread.join()
            named = client.find_coordinator(CoordinatorType.GROUP, "group")
        assert named in kafka.broker_ids
        assert len(kafka.requests(api="FindCoordinator")) == 3, "the common version is cached"


def test_unknown_node_fails_only_its_own_request(client: KafkaClient) -> None:
    request = [ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1) for _ in range(3)]
    live = client.brokers()[0].node_id
    results = client.send_all([(live, request[0]), (4711, request[1]), (live, request[2])], timeout_ms=10_000)
    assert isinstance(results[1], UnansweredError)
    assert [results[0].error_code, results[2].error_code] == [0, 0]


def test_closed_client_reconnects(client: KafkaClient) -> None:
    client.connect()
    client.close()
    client.close()
    assert client.brokers()


def test_forked_child_cannot_use_the_parent_client_or_disturb_it(kafka_address: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", forked_client.__name__, kafka_address],
        cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.stdout.splitlines() == forked_client.EXPECTED, result.stderr
    assert result.returncode == 0, result.stderr
