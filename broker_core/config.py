"""The settings of brokers, listeners and topics under Kafka's own names, with their types, defaults and bounds.

Files are read by the caller. No text and no error contains the value of a secret setting.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from broker_core.errors import ConfigError
from broker_core.listener_keys import LISTENER_PREFIX, listener_key
from broker_core.properties import read_properties
from broker_core.settings.catalog import SETTINGS, TOPIC_DEFAULTS, TYPES
from broker_core.settings.fields import Settings, parse_setting, setting
from broker_core.settings.translation import (
    check_usable,
    effectless,
    in_milliseconds,
    setting_of_kafka,
    without_controllers,
)
from broker_core.settings.values import check_as_kafka, parse_kind, too_small

logger = logging.getLogger(__name__)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text of a `.properties` file.

    An error gives the number of the line and not its content, which may be part of a key or a password. So a name
    without a value is an error, although Java reads it.
    """
    settings: dict[str, str] = {}
    for each in read_properties(text):
        if not each.separator:
            raise ConfigError(f"line {each.line} is not of the form key=value")
        settings[each.name] = each.value
    return settings


_INTERNAL_SEGMENT = "internal.segment.bytes"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_HANDLER = "sasl.server.callback.handler.class"
_OF_MECHANISMS = (_JAAS, _REAUTH, _HANDLER)


@dataclass(frozen=True, slots=True)
class TopicConfig(Settings):
    """The effective settings of a topic; names and defaults are Kafka's topic-level ones."""

    cleanup_policy: str = setting("cleanup.policy")
    compression_gzip_level: int = setting("compression.gzip.level")
    compression_lz4_level: int = setting("compression.lz4.level")
    compression_type: str = setting("compression.type")
    compression_zstd_level: int = setting("compression.zstd.level")
    delete_retention_ms: int = setting("delete.retention.ms")
    dead_letter_queue_enable: bool = setting("errors.deadletterqueue.group.enable")
    file_delete_delay_ms: int = setting("file.delete.delay.ms")
    flush_messages: int = setting("flush.messages")
    flush_ms: int = setting("flush.ms")
    follower_throttled_replicas: str = setting("follower.replication.throttled.replicas")
    index_interval_bytes: int = setting("index.interval.bytes")
    leader_throttled_replicas: str = setting("leader.replication.throttled.replicas")
    local_retention_bytes: int = setting("local.retention.bytes")
    local_retention_ms: int = setting("local.retention.ms")
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms")
    max_decompressed_message_bytes: int = setting("max.decompressed.message.bytes")
    max_message_bytes: int = setting("max.message.bytes")
    message_timestamp_after_max_ms: int = setting("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = setting("message.timestamp.before.max.ms")
    message_timestamp_type: str = setting("message.timestamp.type")
    min_cleanable_dirty_ratio: float = setting("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms")
    min_insync_replicas: int = setting("min.insync.replicas")
    preallocate: bool = setting("preallocate")
    remote_copy_lag_bytes: int = setting("remote.copy.lag.bytes")
    remote_copy_lag_ms: int = setting("remote.copy.lag.ms")
    remote_log_copy_disable: bool = setting("remote.log.copy.disable")
    remote_log_delete_on_disable: bool = setting("remote.log.delete.on.disable")
    remote_storage_enable: bool = setting("remote.storage.enable")
    retention_bytes: int = setting("retention.bytes")
    segment_bytes: int = setting("segment.bytes")
    retention_ms: int = setting("retention.ms")
    segment_index_bytes: int = setting("segment.index.bytes")
    segment_jitter_ms: int = setting("segment.jitter.ms")
    segment_ms: int = setting("segment.ms")
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable")
    # Kafka's tests set it for small segments. It has neither a default nor bounds, and is shown only where it is set.
    internal_segment_bytes: int | None = None

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one, or two that conflict.

        The messages are Kafka's.
        """
        if _INTERNAL_SEGMENT in settings:
            size: int = parse_kind(_INTERNAL_SEGMENT, "INT", settings[_INTERNAL_SEGMENT])
            others = {key: text for key, text in settings.items() if key != _INTERNAL_SEGMENT}
            return replace(self.override(others), internal_segment_bytes=size)
        for key, text in settings.items():
            if key not in self.keys():
                raise ConfigError(f"Unknown topic config name: {key}")
            check_as_kafka(key, text)
        changed = Settings.override(self, settings)
        if changed.remote_storage_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage."
            )
        if changed.min_compaction_lag_ms > changed.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({changed.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({changed.max_compaction_lag_ms})"
            )
        return changed

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it."""
        # Named: a dataclass with slots is another class than the one that `super()` remembers.
        texts, size = Settings.as_text(self), self.internal_segment_bytes
        return texts if size is None else {**texts, _INTERNAL_SEGMENT: str(size)}

    @property
    def largest_segment_bytes(self) -> int:
        """The size that no segment exceeds."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    def override_by_client(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with those of a client changed, to which Kafka's bound of segment.bytes applies."""
        changed = self.override(settings)
        # Kafka refuses smaller segments of clients; the broker and its tests may make them.
        smallest = SETTINGS["segment.bytes"].low_in_kafka
        if "segment.bytes" in settings and smallest is not None and changed.segment_bytes < smallest:
            raise too_small("segment.bytes", changed.segment_bytes, smallest)
        return changed

    def compression_level(self, codec: str) -> int | None:
        """Return the level of batches that the broker compresses with this codec, None for the codec's default."""
        levels = {"lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        if self.compression_gzip_level != -1:
            levels["gzip"] = self.compression_gzip_level
        return levels.get(codec)


@dataclass(frozen=True, slots=True)
class ListenerConfig(Settings):
    """The settings that can be set for a single listener, as `listener.name.<listener>.<key>`.

    Two defaults differ from Kafka's: the content of a store decides its type, and the mechanisms are those that
    passwords are enough for.
    """

    sasl_enabled_mechanisms: str = setting("sasl.enabled.mechanisms")
    sasl_server_max_receive_size: int = setting("sasl.server.max.receive.size")
    sasl_oauthbearer_jwks_endpoint_url: str = setting("sasl.oauthbearer.jwks.endpoint.url")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
    )
    sasl_oauthbearer_expected_audience: str = setting("sasl.oauthbearer.expected.audience")
    sasl_oauthbearer_expected_issuer: str = setting("sasl.oauthbearer.expected.issuer")
    sasl_oauthbearer_allow_unverified_audience: bool = setting("sasl.oauthbearer.allow.unverified.audience")
    sasl_oauthbearer_allow_unverified_issuer: bool = setting("sasl.oauthbearer.allow.unverified.issuer")
    sasl_oauthbearer_clock_skew_seconds: int = setting("sasl.oauthbearer.clock.skew.seconds")
    sasl_oauthbearer_scope_claim_name: str = setting("sasl.oauthbearer.scope.claim.name")
    sasl_oauthbearer_sub_claim_name: str = setting("sasl.oauthbearer.sub.claim.name")
    connections_max_reauth_ms: int = setting("connections.max.reauth.ms")
    max_connections: int = setting("max.connections")
    max_connection_creation_rate: int = setting("max.connection.creation.rate")
    ssl_client_auth: str = setting("ssl.client.auth")
    ssl_enabled_protocols: str = setting("ssl.enabled.protocols")
    ssl_cipher_suites: str = setting("ssl.cipher.suites")
    ssl_allow_dn_changes: bool = setting("ssl.allow.dn.changes")
    ssl_allow_san_changes: bool = setting("ssl.allow.san.changes")
    ssl_principal_mapping_rules: str = setting("ssl.principal.mapping.rules")
    ssl_keystore_type: str = setting("ssl.keystore.type")
    ssl_keystore_location: str = setting("ssl.keystore.location")
    ssl_keystore_password: str = setting("ssl.keystore.password")
    ssl_keystore_certificate_chain: str = setting("ssl.keystore.certificate.chain")
    ssl_keystore_key: str = setting("ssl.keystore.key")
    ssl_key_password: str = setting("ssl.key.password")
    ssl_truststore_type: str = setting("ssl.truststore.type")
    ssl_truststore_location: str = setting("ssl.truststore.location")
    ssl_truststore_password: str = setting("ssl.truststore.password")
    ssl_truststore_certificates: str = setting("ssl.truststore.certificates")


# Without slots: `BrokerConfig` inherits these fields beside the fields of listeners.
@dataclass(frozen=True)
class ShareSettings(Settings):
    """The settings of share groups and of their persisted state."""

    share_version: int = setting("share.version")
    group_share_session_timeout_ms: int = setting("group.share.session.timeout.ms")
    group_share_heartbeat_interval_ms: int = setting("group.share.heartbeat.interval.ms")
    group_share_assignment_interval_ms: int = setting("group.share.assignment.interval.ms")
    group_share_max_size: int = setting("group.share.max.size")
    group_share_max_share_sessions: int = setting("group.share.max.share.sessions")
    group_share_delivery_count_limit: int = setting("group.share.delivery.count.limit")
    group_share_partition_max_record_locks: int = setting("group.share.partition.max.record.locks")
    group_share_record_lock_duration_ms: int = setting("group.share.record.lock.duration.ms")
    # The bounds of the settings of single groups.
    group_share_min_session_timeout_ms: int = setting("group.share.min.session.timeout.ms")
    group_share_max_session_timeout_ms: int = setting("group.share.max.session.timeout.ms")
    group_share_min_heartbeat_interval_ms: int = setting("group.share.min.heartbeat.interval.ms")
    group_share_max_heartbeat_interval_ms: int = setting("group.share.max.heartbeat.interval.ms")
    group_share_min_assignment_interval_ms: int = setting("group.share.min.assignment.interval.ms")
    group_share_max_assignment_interval_ms: int = setting("group.share.max.assignment.interval.ms")
    group_share_min_delivery_count_limit: int = setting("group.share.min.delivery.count.limit")
    group_share_max_delivery_count_limit: int = setting("group.share.max.delivery.count.limit")
    group_share_min_partition_max_record_locks: int = setting("group.share.min.partition.max.record.locks")
    group_share_max_partition_max_record_locks: int = setting("group.share.max.partition.max.record.locks")
    group_share_min_record_lock_duration_ms: int = setting("group.share.min.record.lock.duration.ms")
    group_share_max_record_lock_duration_ms: int = setting("group.share.max.record.lock.duration.ms")
    share_state_topic_num_partitions: int = setting("share.coordinator.state.topic.num.partitions")
    share_state_topic_segment_bytes: int = setting("share.coordinator.state.topic.segment.bytes")
    share_updates_per_snapshot: int = setting("share.coordinator.snapshot.update.records.per.snapshot")
    share_prune_interval_ms: int = setting("share.coordinator.state.topic.prune.interval.ms")
    share_cold_snapshot_interval_ms: int = setting("share.coordinator.cold.partition.snapshot.interval.ms")


@dataclass(frozen=True, slots=True)
class BrokerConfig(ListenerConfig, ShareSettings):
    """The settings of a broker; names and defaults are Kafka's broker-level ones."""

    # The settings of single listeners, by full key.
    listener_overrides: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # All settings that were given, as they were written, for DescribeConfigs; passwords are among them.
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    listeners: str = setting("listeners")
    advertised_listeners: str = setting("advertised.listeners")
    listener_security_protocol_map: str = setting("listener.security.protocol.map")
    inter_broker_listener_name: str = setting("inter.broker.listener.name")
    max_connections_per_ip: int = setting("max.connections.per.ip")
    max_connections_per_ip_overrides: str = setting("max.connections.per.ip.overrides")
    failed_authentication_delay_ms: int = setting("connection.failed.authentication.delay.ms")

    broker_id: int = setting("node.id")
    cluster_id: str = setting("cluster.id")
    auto_create_topics_enable: bool = setting("auto.create.topics.enable")
    num_partitions: int = setting("num.partitions")
    # Kafka's default is 1; here -1 is all brokers, so that a topic survives the stop of any of them.
    default_replication_factor: int = setting("default.replication.factor")
    delete_topic_enable: bool = setting("delete.topic.enable")
    transaction_version: int = setting("transaction.version")
    # Not a setting of Kafka's: the version whose APIs and features are served, empty for all.
    kafka_version: str = setting("kafka.version")
    # Not a setting of Kafka's: whether an acknowledged write is also synced to disk. It is, since there is no replica.
    flush_before_ack: bool = setting("log.flush.before.ack")

    authorizer_class_name: str = setting("authorizer.class.name")
    delegation_token_secret_key: str = setting("delegation.token.secret.key")
    delegation_token_max_lifetime_ms: int = setting("delegation.token.max.lifetime.ms")
    delegation_token_expiry_time_ms: int = setting("delegation.token.expiry.time.ms")
    delegation_token_expiry_check_interval_ms: int = setting("delegation.token.expiry.check.interval.ms")
    super_users: str = setting("super.users")
    allow_everyone_if_no_acl_is_found: bool = setting("allow.everyone.if.no.acl.found")

    message_max_bytes: int = setting("message.max.bytes")
    socket_request_max_bytes: int = setting("socket.request.max.bytes")
    connections_max_idle_ms: int = setting("connections.max.idle.ms")
    max_request_partition_size_limit: int = setting("max.request.partition.size.limit")
    fetch_max_bytes: int = setting("fetch.max.bytes")
    max_incremental_fetch_session_cache_slots: int = setting("max.incremental.fetch.session.cache.slots")
    log_cleanup_policy: str = setting("log.cleanup.policy")
    log_index_interval_bytes: int = setting("log.index.interval.bytes")
    log_message_timestamp_type: str = setting("log.message.timestamp.type")
    log_cleaner_enable: bool = setting("log.cleaner.enable")
    log_cleaner_backoff_ms: int = setting("log.cleaner.backoff.ms")
    log_retention_bytes: int = setting("log.retention.bytes")
    log_retention_ms: int = setting("log.retention.ms")
    log_retention_check_interval_ms: int = setting("log.retention.check.interval.ms")
    log_segment_bytes: int = setting("log.segment.bytes")
    log_roll_ms: int = setting("log.roll.ms")

    # The defaults of topics that have no log. prefix, or another name than the topic's setting.
    compression_gzip_level: int = setting("compression.gzip.level")
    compression_lz4_level: int = setting("compression.lz4.level")
    compression_type: str = setting("compression.type")
    compression_zstd_level: int = setting("compression.zstd.level")
    log_cleaner_delete_retention_ms: int = setting("log.cleaner.delete.retention.ms")
    log_cleaner_max_compaction_lag_ms: int = setting("log.cleaner.max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = setting("log.cleaner.min.cleanable.ratio")
    log_cleaner_min_compaction_lag_ms: int = setting("log.cleaner.min.compaction.lag.ms")
    log_index_size_max_bytes: int = setting("log.index.size.max.bytes")
    log_message_timestamp_after_max_ms: int = setting("log.message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = setting("log.message.timestamp.before.max.ms")
    max_decompressed_message_bytes: int = setting("max.decompressed.message.bytes")
    min_insync_replicas: int = setting("min.insync.replicas")
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable")

    quota_window_num: int = setting("quota.window.num")
    quota_window_size_seconds: int = setting("quota.window.size.seconds")
    controller_quota_window_num: int = setting("controller.quota.window.num")
    controller_quota_window_size_seconds: int = setting("controller.quota.window.size.seconds")

    transaction_max_timeout_ms: int = setting("transaction.max.timeout.ms")
    transactional_id_expiration_ms: int = setting("transactional.id.expiration.ms")
    transaction_state_log_num_partitions: int = setting("transaction.state.log.num.partitions")
    transaction_state_log_segment_bytes: int = setting("transaction.state.log.segment.bytes")
    transaction_abort_interval_ms: int = setting("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    transaction_expire_interval_ms: int = setting("transaction.remove.expired.transaction.cleanup.interval.ms")
    transaction_two_phase_commit_enable: bool = setting("transaction.two.phase.commit.enable")
    transaction_partition_verification_enable: bool = setting("transaction.partition.verification.enable")
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = setting("producer.id.expiration.check.interval.ms")
    add_partitions_retry_backoff_ms: int = setting("add.partitions.to.txn.retry.backoff.ms")
    add_partitions_retry_backoff_max_ms: int = setting("add.partitions.to.txn.retry.backoff.max.ms")

    offsets_topic_num_partitions: int = setting("offsets.topic.num.partitions")
    offsets_topic_segment_bytes: int = setting("offsets.topic.segment.bytes")
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes")
    offsets_retention_minutes: int = setting("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms")
    group_initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms")
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = setting("group.max.session.timeout.ms")
    group_max_size: int = setting("group.max.size")
    group_version: int = setting("group.version")
    group_consumer_session_timeout_ms: int = setting("group.consumer.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms")
    group_consumer_min_session_timeout_ms: int = setting("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = setting("group.consumer.max.session.timeout.ms")
    group_consumer_min_heartbeat_interval_ms: int = setting("group.consumer.min.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms: int = setting("group.consumer.max.heartbeat.interval.ms")
    group_consumer_min_assignment_interval_ms: int = setting("group.consumer.min.assignment.interval.ms")
    group_consumer_max_assignment_interval_ms: int = setting("group.consumer.max.assignment.interval.ms")
    group_consumer_max_size: int = setting("group.consumer.max.size")
    group_consumer_assignment_interval_ms: int = setting("group.consumer.assignment.interval.ms")
    group_consumer_migration_policy: str = setting("group.consumer.migration.policy")

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed, those of single listeners among them.

        Settings of Kafka's that have nothing to act on here are checked and left out, with a line in the log.
        """
        given = {**dict(self.given), **settings}
        check_usable(settings)
        # Before hours become milliseconds: all values are checked, also those that a shorter unit overrides. Settings
        # of topics only are unknown to Kafka's brokers.
        for key in effectless(settings, {*self.keys(), *TopicConfig.keys()}):
            check_as_kafka(key, settings[key])
        settings = without_controllers(in_milliseconds(settings, self.keys().keys()))
        of_no_listener = [key for key in settings if base_key(key) is None and key.startswith(LISTENER_PREFIX)]
        left_out = effectless(settings, self.keys()) + sorted(filter(setting_of_kafka, of_no_listener))
        if left_out:
            logger.info("settings of Kafka that have no effect here: %s", ", ".join(left_out))
        settings = {key: text for key, text in settings.items() if key not in left_out}
        own = {key: text for key, text in settings.items() if not key.startswith(LISTENER_PREFIX)}
        of_listeners = dict(self.listener_overrides)
        of_listeners.update((key, text.strip()) for key, text in settings.items() if key not in own)
        for key in of_listeners:
            if base_key(key) is None:
                raise ConfigError(
                    f"unknown setting {key!r}; listener l may have {LISTENER_PREFIX}l.<key> "
                    f"with one of these keys: {', '.join(sorted(ListenerConfig.keys()))}, "
                    f"{', '.join(f'<mechanism>.{each}' for each in _OF_MECHANISMS)}, the mechanism in lower case"
                )
        changed = Settings.override(self, own)
        return replace(changed, listener_overrides=tuple(sorted(of_listeners.items())), given=tuple(given.items()))

    def of_listener(self, name: str) -> Self:
        """Return the settings in force at one listener."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): text for key, text in self.listener_overrides if key.startswith(prefix)}
        known = ListenerConfig.keys()
        return Settings.override(self, {key: text for key, text in own.items() if key in known})

    def jaas_config(self, listener: str, mechanism: str) -> tuple[str, str]:
        """Return the key and the text of the setting with a mechanism's users and options; the text may be empty."""
        key = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_JAAS}"
        return key, dict(self.listener_overrides).get(key, "")

    def callback_handler(self, listener: str, mechanism: str) -> str:
        """Return the name of the Java class that checks a mechanism's credentials in Kafka; it may be empty."""
        key = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_HANDLER}"
        return dict(self.listener_overrides).get(key, "")

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return after how long clients of this listener and mechanism have to authenticate again, 0 for never."""
        key = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_REAUTH}"
        text = dict(self.listener_overrides).get(key)
        if text is None:
            return self.of_listener(listener).connections_max_reauth_ms
        return int(parse_setting(_REAUTH, text))

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of a topic that overrides nothing."""
        topic, broker = TopicConfig.keys(), self.keys()
        return TopicConfig(
            **{topic[own].name: getattr(self, broker[key].name) for own, key in TOPIC_DEFAULTS.items() if key in broker}
        )


def base_key(key: str) -> str | None:
    """Return the setting that `listener.name.<listener>.<key>` sets, or None if listeners do not have it."""
    found = listener_key(key)
    if found is None:
        return None
    of_listeners = ListenerConfig.keys()
    if found.base in of_listeners:
        return found.base
    mechanism, _, rest = found.base.partition(".")
    # In lower case only, as it is looked up; otherwise a limit on sessions would not be found and not apply.
    is_known = mechanism == mechanism.lower() and mechanism.upper() in _MECHANISMS
    return rest if is_known and rest in _OF_MECHANISMS else None


def is_secret(key: str) -> bool:
    """Return whether the setting's value is secret.

    Keys with the prefix of a listener count also where brokers here do not have the setting.
    """
    found = listener_key(key)
    base = key if found is None else found.base
    return TYPES.get(base) == "PASSWORD" or base.endswith(_JAAS)
