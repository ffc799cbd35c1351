"""Brokers that do not answer, and answers that say nothing: lists without the brokers, the APIs or the topic."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorRequest, MetadataResponse

from broker_core.errors import ErrorCode
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition
from spark_eos.client.broker_client import _check_metadata
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.inspection import describe_transactions, list_by_broker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import topics_of
from spark_eos.client.needed_apis import _newest
from spark_eos.client.offset_lookup import places_of
from spark_eos.client.response_decoders import FilteredMetadata, FilteredMetadataRequest
from spark_eos.client.transaction_admin import sees_every_topic
from spark_eos.errors import UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL
from spark_eos.transactions.judge import offline_coordinators
from spark_eos.transactions.standstills import ends
from tests.support.clocks import StandingClock, runtime_by


@pytest.mark.parametrize(("read", "silent", "words"), [
    (_newest, ApiVersionsResponse(version=3), "An answer to ApiVersions names no API"),
    (_check_metadata, MetadataResponse(version=13), "metadata response lists no brokers; the broker is starting"),
])  # fmt: skip
def test_list_without_items_is_no_answer(read: Any, silent: Any, words: str) -> None:
    with pytest.raises(UnansweredError, match=words):
        read(silent)


def test_metadata_without_a_cluster_id_takes_the_known_one_from_no_client() -> None:
    """A broker of another cluster would be believed from then on."""
    with KafkaClient(ClientOptions(("fake:1",)), REAL) as client:
        for said in ("A", None):
            answer: Any = SimpleNamespace(
                API_VERSION=13, brokers=[(1, "h", 1, None)], cluster_id=said, controller_id=1, topics=[]
            )
            client.transport.cluster.update_metadata(answer)
            assert client.cluster_id == "A"


class OfSilentBrokers(KafkaClient):
    """Has answers without topics, until its time is over at once."""

    def metadata(self, *_: Any, **__: Any) -> Any:
        return {}

    def back_off(self, *_: Any, **__: Any) -> bool:
        return False


def test_topic_that_all_answers_leave_out_is_not_said_to_be_missing() -> None:
    with pytest.raises(UnansweredError, match="Whether topic 't' exists is unknown") as caught:
        OfSilentBrokers(ClientOptions(("fake:1",)), REAL).require_topics(["t"])
    assert "Metadata response from fake:1, which leaves it out" in caught.value.checked


def test_topic_that_all_answers_leave_out_does_not_show_that_all_may_be_seen() -> None:
    assert not sees_every_topic(OfSilentBrokers(ClientOptions(("fake:1",)), REAL))


AWAY, UNKNOWN_ID = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class SomeSilent:
    """The connections to brokers of which some accept requests and never respond."""

    broker_version_data = SimpleNamespace(api_version=lambda *_, **__: 4)

    def __init__(self, clock: StandingClock, silent: Collection[int | str]) -> None:
        self.clock, self.silent = clock, silent
        self.asked: list[int | str] = []
        self.failed: set[int | str] = set()
        self.servers = [SimpleNamespace(node_id=f"b-{n}", host="b", port=n) for n in (1, 2, 3)]
        self.known = [SimpleNamespace(node_id=n, host="b", port=n) for n in (1, 2, 3)]
        self.cluster = SimpleNamespace(
            bootstrap_brokers=lambda: self.servers,
            brokers=lambda: self.known,
            broker_metadata=lambda node_id: self.known[node_id - 1],
            update_metadata=lambda _: None,
            cluster_id="c",
        )

    def check_usable(self) -> None: ...

    def close_connection(self, node_id: int | str) -> None: ...

    def close(self) -> None: ...

    def note_address(self, *_: Any) -> bool:
        return False

    def any_node(self) -> int:
        return next(each.node_id for each in self.known if each.node_id not in self.failed)

    def pause(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def start(self, node_id: int | str, request: Any, deadline: float) -> Any:
        self.asked.append(node_id)
        self.failed |= {node_id} & set(self.silent)
        has_time = deadline > self.clock.monotonic()
        return request if has_time and node_id not in self.silent else None

    def wait(self, pending: Sequence[Any], deadline: float) -> None:
        if any(each is None for each in pending):
            self.clock.sleep(max(0.0, deadline - self.clock.monotonic()))

    def outcome(self, pending: Any, described: str) -> Any:
        if pending is None:
            raise UnansweredError(f"{described} timed out")
        if isinstance(pending, FindCoordinatorRequest):
            found = [
                SimpleNamespace(key=each, node_id=2, host="b", port=2, error_code=AWAY if each == "away" else 0)
                for each in pending.coordinator_keys
            ]
            return SimpleNamespace(coordinators=found)
        if isinstance(pending, DescribeTransactionsRequest):
            form = DescribeTransactionsResponse.TransactionState
            states = [form(transactional_id=each, error_code=UNKNOWN_ID) for each in pending.transactional_ids]
            return SimpleNamespace(transaction_states=states)
        if isinstance(pending, ListTransactionsRequest):
            return SimpleNamespace(error_code=0, unknown_state_filters=[], transaction_states=[])
        if isinstance(pending, ListOffsetsRequest):
            return SimpleNamespace(topics=[_ends(topic) for topic in pending.topics])
        topics = [_led_by(self.known, topic.name) for topic in getattr(pending, "topics", None) or ()]
        if isinstance(pending, FilteredMetadataRequest):
            return FilteredMetadata(pending, topics_of(SimpleNamespace(topics=topics)))  # type: ignore[arg-type]
        return SimpleNamespace(brokers=self.known, error_code=0, topics=topics, results=[])


def _led_by(brokers: Sequence[Any], name: str) -> Any:
    """Describe a topic that has a partition for each broker, which leads it."""
    form = MetadataResponse.MetadataResponseTopic
    found = [
        form.MetadataResponsePartition(
            error_code=0, partition_index=each.node_id, leader_id=each.node_id, leader_epoch=0,
            replica_nodes=[], isr_nodes=[], offline_replicas=[],
        )
        for each in brokers
    ]  # fmt: skip
    if name == TRANSACTION_STATE_TOPIC:
        return form(error_code=UNKNOWN_TOPIC, name=name, topic_id=UUID(int=0), is_internal=True, partitions=[])
    return form(error_code=0, name=name, topic_id=UUID(int=1), is_internal=False, partitions=found)


def _ends(topic: Any) -> Any:
    found = [
        SimpleNamespace(partition_index=each.partition_index, error_code=0, offset=7, leader_epoch=0)
        for each in topic.partitions
    ]
    return SimpleNamespace(name=topic.name, partitions=found)


def client_of_some_silent(*silent: int | str) -> tuple[KafkaClient, SomeSilent]:
    clock = StandingClock()
    transport = SomeSilent(clock, silent)
    runtime = replace(runtime_by(clock), open_transport=lambda *_: transport, random=Random(1))
    return KafkaClient(ClientOptions(("b:1", "b:2", "b:3")), runtime), transport


ASKS: dict[str, Callable[[KafkaClient], object]] = {
    "metadata": lambda client: client.metadata([], timeout_ms=2_000),
    "coordinator": lambda client: client.find_coordinator(CoordinatorType.TRANSACTION, "id", timeout_ms=2_000),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("silent", [(1,), ("b-1",), ("b-2",), ("b-3",), ("b-1", "b-3", 1)])
def test_silent_broker_leaves_time_for_the_others(
    silent: tuple[int | str, ...], ask: Callable[[KafkaClient], object]
) -> None:
    client, transport = client_of_some_silent(*silent)
    client.connect(2_000)
    ask(client)
    assert not set(transport.asked) <= set(silent)


def test_all_silent_brokers_are_tried_until_the_time_is_over() -> None:
    client, transport = client_of_some_silent("b-1", "b-2", "b-3")
    with pytest.raises(UnreachableError, match=r"within [12]\.\d s"):
        client.connect(2_000)
    assert {"b-1", "b-2", "b-3"} <= set(transport.asked)


def test_silent_broker_does_not_take_the_whole_time_of_a_list() -> None:
    client, transport = client_of_some_silent(3)
    silent: set[int] = set()
    assert list_by_broker(client, silent=silent) == []
    assert silent == {3} and transport.clock.monotonic() <= 10
    assert list_by_broker(client, silent=silent) == []
    assert transport.clock.monotonic() <= 11


def test_silent_leader_hides_the_ends_of_its_own_partitions_alone() -> None:
    client, transport = client_of_some_silent(3)
    places = places_of(client.metadata(["t"]).values())
    assert ends(client, places, places) == ({TopicPartition("t", 1): 7, TopicPartition("t", 2): 7},) * 2
    assert transport.clock.monotonic() <= 21


def test_id_without_a_coordinator_delays_no_other_and_is_named() -> None:
    client, transport = client_of_some_silent()
    unanswered: dict[str, str] = {}
    assert describe_transactions(client, ["away", "id"], unanswered=unanswered).keys() == {"id"}
    assert unanswered.keys() == {"away"} and transport.clock.monotonic() <= 10
    with pytest.raises(UnansweredError, match="'away' could not be described in time.*COORDINATOR_NOT_AVAILABLE"):
        describe_transactions(client, ["id", "away"], timeout_ms=2_000)


def test_topic_of_coordinators_that_no_broker_has_is_not_waited_for() -> None:
    client, transport = client_of_some_silent()
    assert offline_coordinators(client) == set()
    assert transport.clock.monotonic() == 0
