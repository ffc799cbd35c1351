"""The topics in which coordinators keep their state; a feature may have one, too."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple

from broker_core.broker.partitions import Topic
from broker_core.config import BrokerConfig
from broker_core.errors import invalid_request
from broker_core.installed import parts
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


class InternalTopic(NamedTuple):
    """One of the topics.

    `partition_count` is the setting with the number of its partitions; `config` returns the settings Kafka creates it
    with (rules B.1). `coordinated` says which ids its partitions serve, and what becomes of the ids when a partition
    cannot be read.
    """

    name: str
    partition_count: str
    config: Callable[[BrokerConfig], dict[str, str]]
    coordinated: tuple[str, str]


_OF_THE_CORE: Final = (
    InternalTopic(
        TRANSACTION_STATE_TOPIC,
        "transaction.state.log.num.partitions",
        lambda config: {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        (
            "transactional ids",
            "the ids are then unknown, and open transactions have to be found and aborted by hand"
            " (kafka-transactions.sh or eos-kafka transactions, find-hanging)",
        ),
    ),
    InternalTopic(
        CONSUMER_OFFSETS_TOPIC,
        "offsets.topic.num.partitions",
        lambda config: {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
        ("groups", "the groups then begin without committed offsets"),
    ),
)


@cache
def _topics() -> Mapping[str, InternalTopic]:
    of_features: tuple[InternalTopic, ...] = tuple(each.INTERNAL_TOPIC for each in parts("internal_topics"))
    return {each.name: each for each in (*_OF_THE_CORE, *of_features)}


def coordinated_in(name: str) -> tuple[str, str]:
    """Return which ids a topic serves, and what becomes of them when a partition cannot be read."""
    return _topics()[name].coordinated


def internal_partition_count(config: BrokerConfig, name: str) -> int:
    """Return the number of partitions of a new internal topic; raise INVALID_REQUEST without its feature."""
    found = _topics().get(name)
    if found is None:
        raise invalid_request(f"{name} is internal to a feature that this broker does not have")
    return int(config.as_text()[found.partition_count])


def internal_topic_config(config: BrokerConfig, name: str) -> dict[str, str]:
    return _topics()[name].config(config)


def with_actual_counts(config: BrokerConfig, topics: Mapping[str, Topic]) -> BrokerConfig:
    """Return the settings with the partition counts of the existing internal topics, which ids are hashed by."""
    found = [each for each in _topics().values() if each.name in topics]
    return config.override({each.partition_count: str(len(topics[each.name].partitions)) for each in found})
