"""The settings of share groups (KIP-932) and of the coordinator that keeps their state.

The names and defaults are Kafka's broker-level ones. `BrokerConfig` has them too.
"""

from dataclasses import dataclass

from broker_core.setting_fields import Settings, setting


# Without slots, so that the settings of a broker can have these fields besides those of its listeners.
@dataclass(frozen=True)
class ShareSettings(Settings):
    """The settings of share groups and of their persisted state."""

    share_version: int = setting("share.version", 2, low=0, high=2)
    group_share_session_timeout_ms: int = setting("group.share.session.timeout.ms", 45_000, low=1)
    group_share_heartbeat_interval_ms: int = setting("group.share.heartbeat.interval.ms", 5_000, low=1)
    group_share_assignment_interval_ms: int = setting("group.share.assignment.interval.ms", 1_000, low=0)
    group_share_max_size: int = setting("group.share.max.size", 200, low=1, high=1_000)
    group_share_max_share_sessions: int = setting("group.share.max.share.sessions", 2_000, low=1)
    group_share_delivery_count_limit: int = setting("group.share.delivery.count.limit", 5, low=2, high=10)
    group_share_partition_max_record_locks: int = setting(
        "group.share.partition.max.record.locks", 2_000, low=100, high=10_000
    )
    group_share_record_lock_duration_ms: int = setting(
        "group.share.record.lock.duration.ms", 30_000, low=1_000, high=3_600_000
    )
    # The bounds of the settings of single groups.
    group_share_min_session_timeout_ms: int = setting("group.share.min.session.timeout.ms", 45_000, low=1)
    group_share_max_session_timeout_ms: int = setting("group.share.max.session.timeout.ms", 60_000, low=1)
    group_share_min_heartbeat_interval_ms: int = setting("group.share.min.heartbeat.interval.ms", 5_000, low=1)
    group_share_max_heartbeat_interval_ms: int = setting("group.share.max.heartbeat.interval.ms", 15_000, low=1)
    group_share_min_assignment_interval_ms: int = setting("group.share.min.assignment.interval.ms", 0, low=0)
    group_share_max_assignment_interval_ms: int = setting("group.share.max.assignment.interval.ms", 15_000, low=0)
    group_share_min_delivery_count_limit: int = setting("group.share.min.delivery.count.limit", 2, low=2, high=5)
    group_share_max_delivery_count_limit: int = setting("group.share.max.delivery.count.limit", 10, low=5, high=25)
    group_share_min_partition_max_record_locks: int = setting(
        "group.share.min.partition.max.record.locks", 100, low=100, high=2_000
    )
    group_share_max_partition_max_record_locks: int = setting(
        "group.share.max.partition.max.record.locks", 4_000, low=2_000, high=10_000
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "group.share.min.record.lock.duration.ms", 15_000, low=1_000, high=30_000
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "group.share.max.record.lock.duration.ms", 60_000, low=30_000, high=3_600_000
    )
    share_state_topic_num_partitions: int = setting("share.coordinator.state.topic.num.partitions", 50, low=1)
    share_state_topic_segment_bytes: int = setting("share.coordinator.state.topic.segment.bytes", 104_857_600, low=1)
    share_updates_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot", 500, low=0, high=500
    )
    share_prune_interval_ms: int = setting("share.coordinator.state.topic.prune.interval.ms", 300_000, low=1)
    share_cold_snapshot_interval_ms: int = setting(
        "share.coordinator.cold.partition.snapshot.interval.ms", 300_000, low=1
    )
