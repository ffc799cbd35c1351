"""The expiration of offsets after their retention (KIP-211).

Offsets that an open transaction may still change do not expire, and neither does their group.
"""

from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.states import EXPIRY_BASIS, ExpiryBasis
from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.offsets.records import OffsetKey, OffsetValue
from broker_core.coordinator.groups.offsets.store import OffsetStore
from broker_core.types import NO_TIMESTAMP, TopicPartition


def expiry_basis(group: ClassicGroup) -> ExpiryBasis:
    if group.protocol_type is None:
        return EXPIRY_BASIS[group.state, "simple"]
    can_tell = group.is_consumer_group and group.topics_known
    return EXPIRY_BASIS[group.state, "consumer" if can_tell else "other"]


def expired_partitions(
    offsets: OffsetStore, group: ClassicGroup, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    basis = expiry_basis(group)
    if basis is ExpiryBasis.NEVER:
        return []
    since_ms = group.state_since_ms if basis is ExpiryBasis.SINCE_EMPTY else NO_TIMESTAMP
    return [
        topic_partition
        for topic_partition, stored in offsets.committed(group.group_id).items()
        if _is_expired(stored.value, since_ms, now_ms, retention_ms)
        and not group.subscribes_to(topic_partition.topic)
        and not offsets.is_pending(OffsetKey(group.group_id, topic_partition))
    ]


def expired_in_consumer_group(
    offsets: OffsetStore,
    group: ConsumerGroup,
    now_ms: int,
    retention_ms: int,
) -> list[TopicPartition]:
    """Return the partitions, of topics that no member reads, whose committed offset has expired."""
    subscribed = group.subscribed_topics()
    return [
        topic_partition
        for topic_partition, stored in offsets.committed(group.group_id).items()
        if _is_expired(stored.value, NO_TIMESTAMP, now_ms, retention_ms)
        and topic_partition.topic not in subscribed
        and not offsets.is_pending(OffsetKey(group.group_id, topic_partition))
    ]


def _is_expired(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return whether one offset has expired; the retention of its commit overrides the broker's."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    basis_ms = value.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
    return now_ms - basis_ms >= retention_ms
