"""Read the broker's settings under Kafka's own names.

Owns: each setting's name, type, default and bounds, for brokers and topics.
Asks: `errors`.
Never: reads a file; the caller hands over text or a mapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from broker_core.errors import ConfigError

_LONG_MAX = 2**63 - 1


def _key(
    name: str, default: Any, *, low: float | None = None, high: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"key": name, "low": low, "high": high, "choices": choices})


def _parse(spec: Any, text: str) -> Any:
    """Turn a property's text into the type of its default, checking the bounds."""
    key, default = spec.metadata["key"], spec.default
    text = text.strip()
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r}: expected true or false")
        return text.lower() == "true"
    if isinstance(default, int | float):
        try:
            value = type(default)(text)
        except ValueError:
            raise ConfigError(f"{key}={text!r}: expected a number such as {default}") from None
        low = spec.metadata["low"]
        if low is not None and value < low:
            raise ConfigError(f"{key}={text}: must be at least {low}")
        high = spec.metadata["high"]
        if high is not None and value > high:
            raise ConfigError(f"{key}={text}: must be at most {high}")
        return value
    choices = spec.metadata["choices"]
    if choices and any(part.strip() not in choices for part in text.split(",")):
        raise ConfigError(f"{key}={text!r}: expected one of {', '.join(choices)}")
    return text


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text of a `.properties` file: `key=value` lines, `#` and `!` start comments."""
    settings: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise ConfigError(f"line {number}: {raw!r} is not of the form key=value")
        settings[name.strip()] = value.strip()
    return settings


_CLEANUP = ("delete", "compact")
_COMPRESSION = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_TIMESTAMP = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class _Settings:
    """Know settings by Kafka's keys; each field of a subclass is one."""

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """Return each Kafka key with its dataclass field."""
        return {spec.metadata["key"]: spec for spec in fields(cls)}

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one."""
        known = self.keys()
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; known are: {', '.join(sorted(known))}")
        return replace(self, **{known[key].name: _parse(known[key], text) for key, text in settings.items()})

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it."""
        texts = {}
        for key, spec in self.keys().items():
            value = getattr(self, spec.name)
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return texts


@dataclass(frozen=True, slots=True)
class TopicConfig(_Settings):
    """Hold one topic's effective settings; names and defaults are Kafka's topic-level ones."""

    cleanup_policy: str = _key("cleanup.policy", "delete", choices=_CLEANUP)
    compression_type: str = _key("compression.type", "producer", choices=_COMPRESSION)
    delete_retention_ms: int = _key("delete.retention.ms", 86_400_000, low=0)
    index_interval_bytes: int = _key("index.interval.bytes", 4096, low=0)
    max_compaction_lag_ms: int = _key("max.compaction.lag.ms", _LONG_MAX, low=1)
    max_message_bytes: int = _key("max.message.bytes", 1_048_588, low=0)
    message_timestamp_after_max_ms: int = _key("message.timestamp.after.max.ms", 3_600_000, low=0)
    message_timestamp_before_max_ms: int = _key("message.timestamp.before.max.ms", _LONG_MAX, low=0)
    message_timestamp_type: str = _key("message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    min_cleanable_dirty_ratio: float = _key("min.cleanable.dirty.ratio", 0.5, low=0)
    min_compaction_lag_ms: int = _key("min.compaction.lag.ms", 0, low=0)
    min_insync_replicas: int = _key("min.insync.replicas", 1, low=1)
    retention_bytes: int = _key("retention.bytes", -1, low=-1)
    retention_ms: int = _key("retention.ms", 604_800_000, low=-1)
    segment_bytes: int = _key("segment.bytes", 1_073_741_824, low=14)
    segment_index_bytes: int = _key("segment.index.bytes", 10_485_760, low=4)
    segment_ms: int = _key("segment.ms", 604_800_000, low=1)
    unclean_leader_election_enable: bool = _key("unclean.leader.election.enable", False)


@dataclass(frozen=True, slots=True)
class BrokerConfig(_Settings):
    """Hold one broker's settings; names and defaults are Kafka's broker-level ones."""

    broker_id: int = _key("node.id", 1, low=0)
    cluster_id: str = _key("cluster.id", "")
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", True)
    num_partitions: int = _key("num.partitions", 1, low=1)
    delete_topic_enable: bool = _key("delete.topic.enable", True)
    transaction_version: int = _key("transaction.version", 2, low=0, high=2)
    # Ours: whether an acknowledged write is also forced to the disk. No replica stands behind us, so yes.
    flush_before_ack: bool = _key("log.flush.before.ack", True)

    message_max_bytes: int = _key("message.max.bytes", 1_048_588, low=0)
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 104_857_600, low=1)
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000)
    fetch_max_bytes: int = _key("fetch.max.bytes", 57_671_680, low=1024)
    max_incremental_fetch_session_cache_slots: int = _key(
        "max.incremental.fetch.session.cache.slots", 1000, low=0)
    log_cleanup_policy: str = _key("log.cleanup.policy", "delete", choices=_CLEANUP)
    log_index_interval_bytes: int = _key("log.index.interval.bytes", 4096, low=0)
    log_message_timestamp_type: str = _key("log.message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    log_cleaner_enable: bool = _key("log.cleaner.enable", True)
    log_cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms", 15_000, low=1)
    log_retention_bytes: int = _key("log.retention.bytes", -1, low=-1)
    log_retention_ms: int = _key("log.retention.ms", 604_800_000, low=-1)
    log_retention_check_interval_ms: int = _key("log.retention.check.interval.ms", 300_000, low=1)
    log_segment_bytes: int = _key("log.segment.bytes", 1_073_741_824, low=14)
    log_roll_ms: int = _key("log.roll.ms", 604_800_000, low=1)

    transaction_max_timeout_ms: int = _key("transaction.max.timeout.ms", 900_000, low=1)
    transactional_id_expiration_ms: int = _key("transactional.id.expiration.ms", 604_800_000, low=1)
    transaction_state_log_num_partitions: int = _key("transaction.state.log.num.partitions", 50, low=1)
    transaction_state_log_segment_bytes: int = _key("transaction.state.log.segment.bytes", 104_857_600, low=1)
    transaction_abort_interval_ms: int = _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, low=1)
    transaction_expire_interval_ms: int = _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, low=1)
    transaction_two_phase_commit_enable: bool = _key("transaction.two.phase.commit.enable", False)
    transaction_partition_verification_enable: bool = _key("transaction.partition.verification.enable", True)
    producer_id_expiration_ms: int = _key("producer.id.expiration.ms", 86_400_000, low=1)
    producer_id_expiration_check_interval_ms: int = _key(
        "producer.id.expiration.check.interval.ms", 600_000, low=1)
    add_partitions_retry_backoff_ms: int = _key("add.partitions.to.txn.retry.backoff.ms", 20, low=1)
    add_partitions_retry_backoff_max_ms: int = _key("add.partitions.to.txn.retry.backoff.max.ms", 100, low=1)

    offsets_topic_num_partitions: int = _key("offsets.topic.num.partitions", 50, low=1)
    offsets_topic_segment_bytes: int = _key("offsets.topic.segment.bytes", 104_857_600, low=1)
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", 4096, low=0)
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080, low=1)
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000, low=1)
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 0, low=0)
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6_000, low=0)
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000, low=1)
    group_max_size: int = _key("group.max.size", 2**31 - 1, low=1)
    group_version: int = _key("group.version", 1, low=0, high=1)
    group_consumer_session_timeout_ms: int = _key("group.consumer.session.timeout.ms", 45_000, low=1)
    group_consumer_heartbeat_interval_ms: int = _key("group.consumer.heartbeat.interval.ms", 5_000, low=1)
    group_consumer_max_size: int = _key("group.consumer.max.size", 2**31 - 1, low=1)
    group_consumer_assignment_interval_ms: int = _key("group.consumer.assignment.interval.ms", 0, low=0)

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of a topic that overrides nothing."""
        return TopicConfig(
            cleanup_policy=self.log_cleanup_policy,
            index_interval_bytes=self.log_index_interval_bytes,
            max_message_bytes=self.message_max_bytes,
            message_timestamp_type=self.log_message_timestamp_type,
            retention_bytes=self.log_retention_bytes,
            retention_ms=self.log_retention_ms,
            segment_bytes=self.log_segment_bytes,
            segment_ms=self.log_roll_ms,
        )
