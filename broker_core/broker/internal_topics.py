"""The settings of the topics in which the coordinators keep their state."""

from collections.abc import Mapping

from broker_core.broker.partitions import Topic
from broker_core.config import BrokerConfig
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

_PARTITION_COUNTS = {
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.num.partitions",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic.num.partitions",
}


def internal_partition_count(config: BrokerConfig, name: str) -> int:
    """Return the number of partitions of a new internal topic."""
    return int(config.as_text()[_PARTITION_COUNTS[name]])


def internal_topic_config(config: BrokerConfig, name: str) -> dict[str, str]:
    """Return the settings Kafka creates its internal topics with (rules B.1)."""
    segment_bytes = {
        TRANSACTION_STATE_TOPIC: config.transaction_state_log_segment_bytes,
        CONSUMER_OFFSETS_TOPIC: config.offsets_topic_segment_bytes,
        SHARE_GROUP_STATE_TOPIC: config.share_state_topic_segment_bytes,
    }[name]
    if name == SHARE_GROUP_STATE_TOPIC:
        # Its coordinator deletes what later snapshots replace. There is one replica, whatever Kafka's `min.isr` is.
        return {
            "compression.type": "producer",
            "cleanup.policy": "delete",
            "segment.bytes": str(segment_bytes),
            "retention.ms": "-1",
        }
    common = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
    if name == TRANSACTION_STATE_TOPIC:
        return common | {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
    return common | {"compression.type": "producer"}


def with_actual_counts(config: BrokerConfig, topics: Mapping[str, Topic]) -> BrokerConfig:
    """Return the settings with the partition counts of the existing internal topics, which ids are hashed by."""
    actual = {key: str(len(topics[name].partitions)) for name, key in _PARTITION_COUNTS.items() if name in topics}
    return config.override(actual)
