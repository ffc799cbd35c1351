"""The reader of decisions, on a broker."""

from dataclasses import replace

import pytest

from broker_core import EmbeddedBroker
from spark_eos.admin.console.decision_tail import DecisionTail
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.sink.decision import Decision, write_decision
from spark_eos.transactions.standstills import ends, partition_places
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until


def test_topic_that_was_created_again_has_only_its_own_decisions() -> None:
    with EmbeddedBroker() as broker, KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
        world = World(broker.bootstrap_servers, client)
        tail = DecisionTail(world.decisions)

        def read() -> set[str]:
            places = partition_places(client)[0]
            tail.read(client, places, ends(client, places, places)[0])
            return {query for _, query in tail.queries}

        world.log().decide(world.decision(world.prepare("run1")), world.log().take_over())
        wait_until(lambda: read() == {world.query}, "the decision is read")
        broker.delete_topic(world.decisions)
        broker.create_topic(world.decisions)
        # A look between two states of the topic has no offsets of it, and leaves what there is to the next one.
        wait_until(lambda: read() == set(), "the decision of the deleted topic is gone")
        world.log().decide(world.decision(world.prepare("run2")), world.log().take_over())
        wait_until(lambda: read() == {world.query}, "the decision in the new topic is read")


@pytest.mark.parametrize("prefix", ["p", "eu#1", "eu/a#"])
def test_large_decision_is_joined_under_any_prefix(prefix: str) -> None:
    with EmbeddedBroker() as broker, KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
        world = World(broker.bootstrap_servers, client)
        transaction = world.prepare("r").transaction
        transactions = tuple(replace(transaction, split=split) for split in range(3_000))
        decision = Decision(prefix, world.query, "r", 0, 1, len(transactions), 0, transactions)
        assert len(write_decision(decision)) > 1
        log = LogOn(world.cluster, prefix, world.query, world.decisions)
        log.decide(decision, log.take_over())
        tail = DecisionTail(world.decisions)
        places = partition_places(client)[0]
        tail.read(client, places, ends(client, places, places)[0])
        assert tail.queries.keys() == {(prefix, world.query)}
        assert tail.queries[prefix, world.query].newest == decision
