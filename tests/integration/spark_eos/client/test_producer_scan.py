"""The scan of many partitions: how many requests, how many of them at the same time, and what it does on failures."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import EmbeddedBroker, Error
from broker_core.types import TopicPartition
from spark_eos.admin.command import ExitCode, main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.errors import AuthorizationError, BrokerError, TopicError, UnansweredError
from spark_eos.options.client import ClientOptions
from tests.support.clients import unique
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession

BROKERS, PARTITIONS = 3, 6_000
DESCRIBE = "DescribeProducers"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=BROKERS, config=HANGING_SETTINGS, topics={"wide": PARTITIONS}) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedBroker) -> Iterator[KafkaClient]:
    options = ClientOptions(
        tuple(cluster.bootstrap_servers.split(",")), client_id=unique("scan"), api_timeout_ms=20_000
    )
    with KafkaClient(options) as client:
        client.connect()
        yield client


def places(count: int = PARTITIONS, topic: str = "wide") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def asked(cluster: EmbeddedBroker, client: KafkaClient) -> Counter[str]:
    return Counter(each.api for each in cluster.requests(client_id=client.options.client_id))


class InFlight:
    """The largest number of requests in flight to each broker, those of one API or of all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, api: str = "") -> None:
        self.most: Counter[int] = Counter()
        self._pending: dict[int, list[Any]] = {}
        start = KafkaClient.start

        def counting(client: KafkaClient, node_id: int, request: Any, *rest: Any, **more: Any) -> Any:
            pending = start(client, node_id, request, *rest, **more)
            if type(request).__name__.startswith(api):
                mine = self._pending.setdefault(node_id, [])
                mine.append(pending)
                self.most[node_id] = max(self.most[node_id], sum(not each.is_done for each in mine))
            return pending

        monkeypatch.setattr(KafkaClient, "start", counting)


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_scan_sends_few_requests_and_no_more_than_the_bound_at_a_time(
    cluster: EmbeddedBroker, client: KafkaClient, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    seen, steps = InFlight(monkeypatch, DESCRIBE), []
    before = asked(cluster, client)
    scan = ProducerScan(client, max_in_flight=bound, report=lambda done, total: steps.append((done, total)))
    assert scan.run(places()) == {each: [] for each in places()}
    sent = asked(cluster, client) - before
    # 2,000 partitions of each of three brokers, 500 in each request.
    assert (sent[DESCRIBE], sent["Metadata"]) == (12, 1)
    assert dict(seen.most) == dict.fromkeys((1, 2, 3), bound)
    assert steps == sorted(steps) and steps[-1] == (PARTITIONS, PARTITIONS)
    assert len(steps) > 1


@pytest.mark.parametrize("bound", [1, 3])
def test_find_hanging_keeps_the_bound_in_every_request(
    cluster: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    topic, home = unique("topic"), cluster.bootstrap_servers.split(",")[0]
    cluster.create_topic(topic, 2)
    for partition in (0, 1):
        cluster.move_leader((topic, partition), 1)
    with RawClient(home) as raw:
        sessions = [RawSession(raw, unique("id")) for _ in range(2)]
        for session in sessions:
            cluster.move_coordinator(1, transactional_id=session.transactional_id)
        open_up(sessions[0], topic, 0)
        hang(sessions[1], topic, partition=1)
    seen = InFlight(monkeypatch)
    words = ("find-hanging", "--all-topics", "--max-transaction-timeout", "-1", "--max-in-flight", str(bound))
    assert main(["transactions", "--bootstrap-server", cluster.bootstrap_servers, *words]) == ExitCode.HANGING_FOUND
    assert topic in capsys.readouterr().out
    assert {node: most for node, most in seen.most.items() if node in (1, 2, 3)} == dict.fromkeys((1, 2, 3), bound)


def test_scan_of_one_broker_queries_only_that_one(cluster: EmbeddedBroker, client: KafkaClient) -> None:
    ProducerScan(client, broker_id=2).run(places(1_200))
    seen = cluster.requests(client_id=client.options.client_id, api=DESCRIBE)
    assert [each.broker for each in seen] == [2, 2, 2]


def test_leader_that_moves_during_a_scan_is_followed(cluster: EmbeddedBroker, client: KafkaClient) -> None:
    topic = unique("topic")
    cluster.create_topic(topic, 3)
    client.metadata([topic])
    home = client.recent.since([topic], 0)[topic].partitions[0].leader  # type: ignore[index]
    cluster.move_leader((topic, 0), home % BROKERS + 1)
    with cluster.fault(api=DESCRIBE, action=Error("NOT_LEADER_OR_FOLLOWER"), topic=topic, broker=home) as fault:
        assert ProducerScan(client).run([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): []}
        assert fault.hits == 1


def test_broker_without_the_replica_is_not_queried_again(cluster: EmbeddedBroker, client: KafkaClient) -> None:
    with cluster.fault(api=DESCRIBE, action=Error("NOT_LEADER_OR_FOLLOWER")) as fault:
        with pytest.raises(BrokerError, match="wide-0 to broker 2 was refused with NOT_LEADER_OR_FOLLOWER"):
            ProducerScan(client, broker_id=2).run(places(1))
        assert fault.hits == 1
    with pytest.raises(UnansweredError, match="Broker 77"):
        ProducerScan(client, broker_id=77).run(places(1))


def test_missing_topic_is_an_error(cluster: EmbeddedBroker, client: KafkaClient) -> None:
    missing = TopicPartition(unique("none"), 0)
    with pytest.raises(TopicError, match=f"{missing} was refused with UNKNOWN_TOPIC_OR_PARTITION"):
        ProducerScan(client).run([*places(2), missing])


def test_refused_right_is_an_error_or_collected(cluster: EmbeddedBroker, client: KafkaClient) -> None:
    with cluster.fault(api=DESCRIBE, action=Error("TOPIC_AUTHORIZATION_FAILED")) as fault:
        with pytest.raises(AuthorizationError, match="Grant the principal READ on the topic"):
            ProducerScan(client).run(places(1))
        assert fault.hits == 1, "another attempt does not help"
        unreadable: dict[TopicPartition, str] = {}
        assert ProducerScan(client, unreadable=unreadable).run(places(1)) == {}
    assert list(unreadable) == places(1)
