"""The sink beside a broker that is cut off from its peers, and answers from what it knew."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker_core import EmbeddedBroker, Error
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.group_offsets import fetch_offsets_from
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import TaskId
from spark_eos.sink.protocol import retry_policy
from spark_eos.sink.protocol.settlement import Fate
from spark_eos.sink.task.identity_pool import IdentityPool
from tests.support.spark_eos.client_world import encoded, unique
from tests.support.spark_eos.driving import fates_of, verify
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

STALE, OTHER = 2, 1
# One broker coordinates each internal topic.
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module", params=[2, 1], ids=["V2", "V1"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3, transaction_version=request.param, config=SETTINGS) as broker:
        yield broker


def open_world(
    kafka: EmbeddedBroker, stack: list[KafkaClient], query: str | None = None, api_timeout_ms: int = 2_000
) -> World:
    options = ClientOptions(tuple(kafka.bootstrap_servers.split(",")))
    patient = replace(options, api_timeout_ms=2_000, delivery_timeout_ms=3_000, retry_backoff_ms=10)
    stack.append(KafkaClient(replace(patient, retry_backoff_max_ms=20)))
    made = World(kafka.bootstrap_servers, stack[-1])
    # The outage begins after the topics exist, because the first requests of a process take longer.
    stack[-1].options = replace(stack[-1].options, api_timeout_ms=api_timeout_ms)
    if query is not None:
        made.query = query
    return made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "_FIRST_PAUSE_MS", 10)
    monkeypatch.setattr(retry_policy, "_LONGEST_PAUSE_MS", 20)


@pytest.fixture
def clients() -> Iterator[list[KafkaClient]]:
    opened: list[KafkaClient] = []
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def world(kafka: EmbeddedBroker, clients: list[KafkaClient]) -> World:
    made = open_world(kafka, clients)
    # Only a coordinator's responses are outdated.
    for topic, count in ((made.topic, 1), (made.decisions, 4)):
        for number in range(count):
            kafka.move_leader((topic, number), OTHER)
    return made


def beside(kafka: EmbeddedBroker, clients: list[KafkaClient], world: World) -> World:
    """Return another process of the same query, with its own client."""
    other = open_world(kafka, clients, world.query)
    other.topic, other.decisions = world.topic, world.decisions
    other.cluster = other.cluster_of(world.decisions)
    return other


def test_pointer_from_an_isolated_broker_duplicates_no_row(
    kafka: EmbeddedBroker, clients: list[KafkaClient], world: World
) -> None:
    """Run 1 decides and completes micro-batch 1 and dies before Spark notes it; run 2 reads the old pointer."""
    group = f"p.{world.query}"
    kafka.move_coordinator(STALE, group=group)
    world.committer("run1").commit([world.prepare("run1")], 0)
    later = beside(kafka, clients, world)
    later.client.find_coordinator(CoordinatorType.GROUP, group)
    with kafka.stale_broker(STALE):
        world.committer("run1").commit([world.prepare("run1", 1)], 1)
        pointers = [each.metadata for each in fetch_offsets_from(later.client, STALE, group).values()]
        assert len(pointers) == 1 and '"batch":0' in pointers[0]
        again = later.prepare("run2", 1)
        later.committer("run2").commit([again], 1)
        assert world.visible() == ["row of 0", "row of 1"]
        wait_until(lambda: later.state_of(again) == "CompleteAbort", "what run 2 wrote is aborted")
        later.committer("run2").commit([later.prepare("run2", 2)], 2)
        assert world.visible() == ["row of 0", "row of 1", "row of 2"]


def test_decision_is_read_from_the_leader_whose_log_contains_it(
    kafka: EmbeddedBroker, clients: list[KafkaClient], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pointer is that of the true coordinator, and metadata names a leader that is cut off."""
    kafka.move_coordinator(OTHER, group=f"p.{world.query}")
    for number in range(4):
        kafka.move_leader((world.decisions, number), STALE)
    world.committer("run1").commit([world.prepare("run1")], 0)
    later = beside(kafka, clients, world)
    later.client.metadata([])
    with kafka.stale_broker(STALE):
        world.committer("run1").commit([world.prepare("run1", 1)], 1)
        anyone, asked = later.client.transport.any_node, []

        def first_the_one_cut_off() -> Any:
            asked.append(STALE if len(asked) < 6 else anyone())
            return asked[-1]

        monkeypatch.setattr(later.client.transport, "any_node", first_the_one_cut_off)
        assert later.log().newest().micro_batch == 1
        assert len(asked) > 6


def test_brokers_naming_different_coordinators_are_in_disagreement(
    kafka: EmbeddedBroker, clients: list[KafkaClient], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"p.{world.query}"
    kafka.move_coordinator(STALE, group=group)
    world.client.agree_on_coordinator(CoordinatorType.GROUP, group)
    assert world.client.find_coordinator(CoordinatorType.GROUP, group) == STALE
    later = open_world(kafka, clients, api_timeout_ms=500)
    later.client.metadata([])
    # What the isolated broker reports of its peers.
    monkeypatch.setattr(later.client, "metadata", lambda *_, **__: {})
    with kafka.stale_broker(STALE):
        with pytest.raises(UnansweredError, match="disagree on the coordinator"):
            later.client.agree_on_coordinator(CoordinatorType.GROUP, group)
        world.client.agree_on_coordinator(CoordinatorType.GROUP, group)
        assert world.client.find_coordinator(CoordinatorType.GROUP, group) != STALE


def test_committed_group_offset_comes_only_from_the_requested_broker(kafka: EmbeddedBroker, world: World) -> None:
    """The broker treats a pending offset as missing and returns the previous one."""
    group = f"p.{world.query}"
    world.committer("run1").commit([world.prepare("run1")], 0)
    kafka.move_coordinator(OTHER, group=group)
    found = fetch_offsets_from(world.client, OTHER, group)
    assert [place.topic for place in found] == [world.decisions]
    with pytest.raises(Exception, match=f"Broker {STALE} did not return"):
        fetch_offsets_from(world.client, STALE, group)


def task_name(world: World) -> str:
    return str(TaskId("p", world.query, "run1", "w", 0))


def test_stale_transaction_coordinator_is_not_trusted(
    kafka: EmbeddedBroker, clients: list[KafkaClient], world: World
) -> None:
    later = beside(kafka, clients, world)
    kafka.move_coordinator(STALE, transactional_id=task_name(world))
    later.cluster.describe_transactions([task_name(world)])
    with kafka.stale_broker(STALE):
        transaction = world.prepare("run1").transaction
        assert task_name(world) not in later.cluster.describe_transactions([task_name(world)])
        assert verify(later.cluster, world.query, 0, [transaction]).ends_at_ms
        later.client._coordinators._nodes[CoordinatorType.TRANSACTION, task_name(world)] = STALE
        assert fates_of(later.cluster, [transaction]) == {transaction: Fate.OPEN}
        later.client._coordinators._nodes[CoordinatorType.TRANSACTION, task_name(world)] = STALE
        later.committer("run1").commit([Prepared(Place(world.query, "run1", 0, 0), transaction)], 0)
    assert world.visible() == ["row of 0"]


@pytest.mark.parametrize("code", ["CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_isolated_broker_with_retriable_errors_is_not_retried_forever(
    kafka: EmbeddedBroker, clients: list[KafkaClient], code: str
) -> None:
    """The transaction it began for the id waits for the broker's peers, and every request for the id waits with it."""
    name = unique("p.preflight")
    client = open_world(kafka, clients).client
    kafka.move_coordinator(STALE, transactional_id=name)
    assert client.find_coordinator(CoordinatorType.TRANSACTION, name) == STALE
    with (
        kafka.stale_broker(STALE),
        kafka.fault(api="InitProducerId", broker=STALE, transactional_id=name, action=Error(code)) as refused,
    ):
        init_producer_id(client, name, transaction_timeout_ms=60_000, timeout_ms=10_000)
        assert refused.hits > 1
        assert client.find_coordinator(CoordinatorType.TRANSACTION, name) != STALE


def test_pool_leaves_an_id_with_a_stale_coordinator_alone(
    kafka: EmbeddedBroker, clients: list[KafkaClient], world: World
) -> None:
    pool = IdentityPool(world.cluster, "p", world.query, "run1", unique("w"))
    taken = pool.take(60_000, 0)
    kafka.move_coordinator(STALE, transactional_id=taken.transactional_id)
    # This waits until the coordinator has loaded its state.
    world.cluster.describe_transactions([taken.transactional_id])
    world.client._coordinators._nodes[CoordinatorType.TRANSACTION, taken.transactional_id] = STALE
    # This creates topics, which the isolated broker would refuse.
    other = beside(kafka, clients, world)
    with kafka.stale_broker(STALE):
        prepare_as(other, taken.transactional_id, taken.producer, taken.transaction_version)
        assert pool.take(60_000, 0).transactional_id != taken.transactional_id
        assert kafka.transaction(taken.transactional_id).state == "Ongoing"


def prepare_as(world: World, name: str, identity: ProducerIdentity, version: int) -> None:
    producer = TransactionalProducer(world.client)
    producer.begin(OpenTransaction(name, identity, version))
    producer.send(TopicPartition(world.topic, 0), encoded(["open"]))
    producer.flush()
