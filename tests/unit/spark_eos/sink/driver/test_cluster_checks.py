"""What the checks of a cluster say of settings, without a cluster."""

import pytest

from spark_eos.client.needed_apis import BrokerFacts
from spark_eos.sink.driver.broker_capabilities import BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, topic_doubts, topic_problem

VERIFICATION = "transaction.partition.verification.enable"
# The last version that Apache Kafka 3.5 serves, and the last of 3.6.
OLD, NEW = 3, 4


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, None),
        ({"cleanup.policy": "compact", "min.insync.replicas": "2"}, None),
        ({"cleanup.policy": None, "min.insync.replicas": None}, None),
        ({"cleanup.policy": "compact,delete"}, "decisions can be deleted"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, "decisions can be deleted"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1"}, "allowDecisionRetention=true"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, None),
        # Since Kafka 3.7 no more replicas are asked for than the topic has.
        ({"min.insync.replicas": "3"}, None),
        ({"max.message.bytes": "1024"}, None),
        ({"max.message.bytes": "1"}, "Set max.message.bytes to 1048588"),
    ],
)
def test_settings_that_lose_or_refuse_decisions_are_reported(config: dict[str, str | None], text: str | None) -> None:
    problem = topic_problem("d", config)
    assert (problem is None) if text is None else text in str(problem)


@pytest.mark.parametrize(
    ("config", "replicas", "data", "texts"),
    [
        ({}, 3, Durability(3, 1), []),
        ({"unclean.leader.election.enable": "false"}, 3, Durability(1, 0), []),
        ({}, 1, Durability(3, 0), ["has 1 replica, the data has 3"]),
        ({"unclean.leader.election.enable": "true"}, 3, Durability(3, 1), ["decisions can be lost"]),
        ({"min.insync.replicas": "1"}, 3, Durability(3, 2), ["min.insync.replicas=1, the data has 2", "Set it to 2"]),
        ({}, 3, Durability(5, 3), ["has 3 replicas, the data has 5", "has min.insync.replicas=1, the data has 3"]),
        ({"min.insync.replicas": "2"}, 3, Durability(3, 2), []),
        ({"min.insync.replicas": "2"}, 1, Durability(1, 2), ["1 replica and min.insync.replicas=2", "Kafka 3.6"]),
        # With 2 replicas, a higher min.insync.replicas would stop all writes while one broker is offline.
        ({"min.insync.replicas": "1"}, 2, Durability(2, 2), []),
    ],
)
def test_decision_topic_less_durable_than_the_data_is_reported(
    config: dict[str, str | None], replicas: int, data: Durability, texts: list[str]
) -> None:
    doubts = "; ".join(topic_doubts("d", config, replicas, data))
    assert all(text in doubts for text in texts)
    assert bool(doubts) == bool(texts)


@pytest.mark.parametrize(
    ("said", "level", "reason"),
    [
        (BrokerFacts(OLD, {}), 0, "supports AddPartitionsToTxn only up to version 3 (brokers before"),
        (BrokerFacts(-1, {}), 0, "supports AddPartitionsToTxn only up to version -1"),
        (BrokerFacts(NEW, {VERIFICATION: "false"}), 1, f"has {VERIFICATION}=false"),
        (BrokerFacts(NEW, {VERIFICATION: "true"}), 0, None),
        (BrokerFacts(NEW, {}), 0, None),
        # From transactions V2 on, a leader adds unknown partitions itself, whatever the setting is.
        (BrokerFacts(5, {VERIFICATION: "false"}), 2, None),
    ],
)
def test_brokers_that_do_not_verify_transactions_are_identified(
    said: BrokerFacts, level: int, reason: str | None
) -> None:
    good = BrokerFacts(5, {VERIFICATION: "true"})
    found = BrokerCapabilities(facts={1: good, 2: said, 3: good}).unverifying(level)
    assert ([2] if reason else []) == list(found)
    assert reason is None or reason in found[2]
