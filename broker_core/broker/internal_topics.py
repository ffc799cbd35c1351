"""The topics in which the coordinators keep their state: those of the core, and those of features."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from broker_core.broker.partitions import Topic
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.installed import parts
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

_PARTITION_COUNTS: Final = {
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.num.partitions",
}
_COORDINATED: Final = {
    TRANSACTION_STATE_TOPIC: (
        "transactional ids",
        "the ids are then unknown, and open transactions have to be found and aborted by hand"
        " (kafka-transactions.sh or eos-kafka transactions, find-hanging)",
    ),
    CONSUMER_OFFSETS_TOPIC: ("groups", "the groups then begin without committed offsets"),
}


@cache
def _partition_counts() -> Mapping[str, str]:
    """Return the setting with the number of partitions of each topic."""
    return _PARTITION_COUNTS | {each.TOPIC: each.PARTITION_COUNT for each in parts("internal_topics")}


def coordinated_in(name: str) -> tuple[str, str]:
    """Return which ids the partitions of a topic serve, and the effect on them when a partition cannot be read."""
    found: dict[str, tuple[str, str]] = {each.TOPIC: each.COORDINATED for each in parts("internal_topics")}
    return (_COORDINATED | found)[name]


def internal_partition_count(config: BrokerConfig, name: str) -> int:
    """Return the number of partitions of a new internal topic; raise INVALID_REQUEST without its feature."""
    key = _partition_counts().get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is internal to a feature that this broker does not have")
    return int(config.as_text()[key])


def internal_topic_config(config: BrokerConfig, name: str) -> dict[str, str]:
    """Return the settings Kafka creates its internal topics with (rules B.1)."""
    for each in parts("internal_topics"):
        if name == each.TOPIC:
            settings: dict[str, str] = each.topic_config(config)
            return settings
    if name == TRANSACTION_STATE_TOPIC:
        segment_bytes = config.transaction_state_log_segment_bytes
        own = {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
    else:
        segment_bytes, own = config.offsets_topic_segment_bytes, {"compression.type": "producer"}
    return {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), **own}


def with_actual_counts(config: BrokerConfig, topics: Mapping[str, Topic]) -> BrokerConfig:
    """Return the settings with the partition counts of the existing internal topics, which ids are hashed by."""
    actual = {key: str(len(topics[name].partitions)) for name, key in _partition_counts().items() if name in topics}
    return config.override(actual)
