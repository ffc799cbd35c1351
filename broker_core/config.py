"""The settings of brokers, listeners and topics under Kafka's own names, with their types, defaults and bounds.

Files are read by the caller. No text and no error contains the value of a secret setting.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from broker_core.errors import ConfigError
from broker_core.kafka_settings import (
    TYPES,
    check_usable,
    effectless,
    in_milliseconds,
    parse_kind,
    setting_of_kafka,
    without_controllers,
)
from broker_core.listener_keys import LISTENER_PREFIX, listener_key
from broker_core.properties import read_properties
from broker_core.setting_checks import SMALLEST_SEGMENT_BYTES, check_as_kafka, check_without_effect, too_small
from broker_core.setting_fields import INT_MAX, LONG_MAX, Settings, parse_setting, setting
from broker_core.share_settings import ShareSettings

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
_CLEANUP = ("delete", "compact")
_COMPRESSION = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_TIMESTAMP = ("CreateTime", "LogAppendTime")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MIGRATIONS = ("disabled", "downgrade", "upgrade", "bidirectional")
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_HANDLER = "sasl.server.callback.handler.class"
_OF_MECHANISMS = (_JAAS, _REAUTH, _HANDLER)


@dataclass(frozen=True, slots=True)
class TopicConfig(Settings):
    """The effective settings of a topic; names and defaults are Kafka's topic-level ones."""

    cleanup_policy: str = setting("cleanup.policy", "delete", choices=_CLEANUP, may_be_empty=True)
    compression_gzip_level: int = setting("compression.gzip.level", -1, low=1, high=9, or_value=-1)
    compression_lz4_level: int = setting("compression.lz4.level", 9, low=1, high=17)
    compression_type: str = setting("compression.type", "producer", choices=_COMPRESSION)
    compression_zstd_level: int = setting("compression.zstd.level", 3, low=-131_072, high=22)
    delete_retention_ms: int = setting("delete.retention.ms", 86_400_000, low=0)
    dead_letter_queue_enable: bool = setting("errors.deadletterqueue.group.enable", False)
    file_delete_delay_ms: int = setting("file.delete.delay.ms", 60_000, low=0)
    flush_messages: int = setting("flush.messages", LONG_MAX, low=1)
    flush_ms: int = setting("flush.ms", LONG_MAX, low=0)
    follower_throttled_replicas: str = setting("follower.replication.throttled.replicas", "")
    index_interval_bytes: int = setting("index.interval.bytes", 4096, low=0)
    leader_throttled_replicas: str = setting("leader.replication.throttled.replicas", "")
    local_retention_bytes: int = setting("local.retention.bytes", -2, low=-2)
    local_retention_ms: int = setting("local.retention.ms", -2, low=-2)
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms", LONG_MAX, low=1)
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes", 2_147_483_639, low=1, high=2_147_483_639
    )
    max_message_bytes: int = setting("max.message.bytes", 1_048_588, low=0)
    message_timestamp_after_max_ms: int = setting("message.timestamp.after.max.ms", 3_600_000, low=0)
    message_timestamp_before_max_ms: int = setting("message.timestamp.before.max.ms", LONG_MAX, low=0)
    message_timestamp_type: str = setting("message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    min_cleanable_dirty_ratio: float = setting("min.cleanable.dirty.ratio", 0.5, low=0, high=1)
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms", 0, low=0)
    min_insync_replicas: int = setting("min.insync.replicas", 1, low=1)
    preallocate: bool = setting("preallocate", False)
    remote_copy_lag_bytes: int = setting("remote.copy.lag.bytes", -1, low=-1)
    remote_copy_lag_ms: int = setting("remote.copy.lag.ms", 0, low=-1)
    remote_log_copy_disable: bool = setting("remote.log.copy.disable", False)
    remote_log_delete_on_disable: bool = setting("remote.log.delete.on.disable", False)
    remote_storage_enable: bool = setting("remote.storage.enable", False)
    retention_bytes: int = setting("retention.bytes", -1)
    segment_bytes: int = setting("segment.bytes", 1_073_741_824, low=14)
    retention_ms: int = setting("retention.ms", 604_800_000, low=-1)
    segment_index_bytes: int = setting("segment.index.bytes", 10_485_760, low=4)
    segment_jitter_ms: int = setting("segment.jitter.ms", 0, low=0)
    segment_ms: int = setting("segment.ms", 604_800_000, low=1)
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable", False)
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
            spec = self.keys().get(key)
            if spec is None:
                raise ConfigError(f"Unknown topic config name: {key}")
            check_as_kafka(key, text, spec)
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
        if "segment.bytes" in settings and changed.segment_bytes < SMALLEST_SEGMENT_BYTES:
            raise too_small("segment.bytes", changed.segment_bytes, SMALLEST_SEGMENT_BYTES)
        return changed

    def compression_level(self, codec: str) -> int | None:
        """Return the level of batches that the broker compresses with this codec, None for the codec's default."""
        levels = {"lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        if self.compression_gzip_level != -1:
            levels["gzip"] = self.compression_gzip_level
        return levels.get(codec)


# The broker setting with the default of each topic setting, where brokers here have one.
TOPIC_SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.decompressed.message.bytes": "max.decompressed.message.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


@dataclass(frozen=True, slots=True)
class ListenerConfig(Settings):
    """The settings that can be set for a single listener, as `listener.name.<listener>.<key>`.

    Two defaults differ from Kafka's: the content of a store decides its type, and the mechanisms are those that
    passwords are enough for.
    """

    sasl_enabled_mechanisms: str = setting(
        "sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", choices=_MECHANISMS
    )
    sasl_server_max_receive_size: int = setting("sasl.server.max.receive.size", 524_288, low=1)
    sasl_oauthbearer_jwks_endpoint_url: str = setting("sasl.oauthbearer.jwks.endpoint.url", "")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, low=1
    )
    sasl_oauthbearer_expected_audience: str = setting("sasl.oauthbearer.expected.audience", "")
    sasl_oauthbearer_expected_issuer: str = setting("sasl.oauthbearer.expected.issuer", "")
    sasl_oauthbearer_allow_unverified_audience: bool = setting("sasl.oauthbearer.allow.unverified.audience", False)
    sasl_oauthbearer_allow_unverified_issuer: bool = setting("sasl.oauthbearer.allow.unverified.issuer", False)
    sasl_oauthbearer_clock_skew_seconds: int = setting("sasl.oauthbearer.clock.skew.seconds", 30, low=0)
    sasl_oauthbearer_scope_claim_name: str = setting("sasl.oauthbearer.scope.claim.name", "scope")
    sasl_oauthbearer_sub_claim_name: str = setting("sasl.oauthbearer.sub.claim.name", "sub")
    connections_max_reauth_ms: int = setting(_REAUTH, 0, low=0)
    max_connections: int = setting("max.connections", INT_MAX, low=0)
    max_connection_creation_rate: int = setting("max.connection.creation.rate", INT_MAX, low=1)
    ssl_client_auth: str = setting("ssl.client.auth", "none", choices=("none", "requested", "required"))
    ssl_enabled_protocols: str = setting("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", choices=("TLSv1.2", "TLSv1.3"))
    ssl_cipher_suites: str = setting("ssl.cipher.suites", "")
    ssl_allow_dn_changes: bool = setting("ssl.allow.dn.changes", False)
    ssl_allow_san_changes: bool = setting("ssl.allow.san.changes", False)
    ssl_principal_mapping_rules: str = setting("ssl.principal.mapping.rules", "DEFAULT")
    ssl_keystore_type: str = setting("ssl.keystore.type", "")
    ssl_keystore_location: str = setting("ssl.keystore.location", "")
    ssl_keystore_password: str = setting("ssl.keystore.password", "", secret=True)
    ssl_keystore_certificate_chain: str = setting("ssl.keystore.certificate.chain", "", secret=True)
    ssl_keystore_key: str = setting("ssl.keystore.key", "", secret=True)
    ssl_key_password: str = setting("ssl.key.password", "", secret=True)
    ssl_truststore_type: str = setting("ssl.truststore.type", "")
    ssl_truststore_location: str = setting("ssl.truststore.location", "")
    ssl_truststore_password: str = setting("ssl.truststore.password", "", secret=True)
    ssl_truststore_certificates: str = setting("ssl.truststore.certificates", "", secret=True)


@dataclass(frozen=True, slots=True)
class BrokerConfig(ListenerConfig, ShareSettings):
    """The settings of a broker; names and defaults are Kafka's broker-level ones."""

    # The settings of single listeners, by full key.
    listener_overrides: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # All settings that were given, as they were written, for DescribeConfigs; passwords are among them.
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    listeners: str = setting("listeners", "")
    advertised_listeners: str = setting("advertised.listeners", "")
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map", "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    )
    inter_broker_listener_name: str = setting("inter.broker.listener.name", "")
    max_connections_per_ip: int = setting("max.connections.per.ip", INT_MAX, low=0)
    max_connections_per_ip_overrides: str = setting("max.connections.per.ip.overrides", "")
    failed_authentication_delay_ms: int = setting("connection.failed.authentication.delay.ms", 100, low=0)

    broker_id: int = setting("node.id", 1, low=0)
    cluster_id: str = setting("cluster.id", "")
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", True)
    num_partitions: int = setting("num.partitions", 1, low=1)
    # Kafka's default is 1; here -1 is all brokers, so that a topic survives the stop of any of them.
    default_replication_factor: int = setting("default.replication.factor", -1, low=1, or_value=-1)
    delete_topic_enable: bool = setting("delete.topic.enable", True)
    transaction_version: int = setting("transaction.version", 2, low=0, high=2)
    # Not a setting of Kafka's: the version whose APIs and features are served, empty for all.
    kafka_version: str = setting("kafka.version", "")
    # Not a setting of Kafka's: whether an acknowledged write is also synced to disk. It is, since there is no replica.
    flush_before_ack: bool = setting("log.flush.before.ack", True)

    authorizer_class_name: str = setting("authorizer.class.name", "", choices=("", STANDARD_AUTHORIZER))
    delegation_token_secret_key: str = setting("delegation.token.secret.key", "", secret=True)
    delegation_token_max_lifetime_ms: int = setting("delegation.token.max.lifetime.ms", 604_800_000, low=1)
    delegation_token_expiry_time_ms: int = setting("delegation.token.expiry.time.ms", 86_400_000, low=1)
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms", 3_600_000, low=1
    )
    super_users: str = setting("super.users", "")
    allow_everyone_if_no_acl_is_found: bool = setting("allow.everyone.if.no.acl.found", False)

    message_max_bytes: int = setting("message.max.bytes", 1_048_588, low=0)
    socket_request_max_bytes: int = setting("socket.request.max.bytes", 104_857_600, low=1)
    connections_max_idle_ms: int = setting("connections.max.idle.ms", 600_000)
    max_request_partition_size_limit: int = setting("max.request.partition.size.limit", 2000, low=1)
    fetch_max_bytes: int = setting("fetch.max.bytes", 57_671_680, low=1024)
    max_incremental_fetch_session_cache_slots: int = setting("max.incremental.fetch.session.cache.slots", 1000, low=0)
    log_cleanup_policy: str = setting("log.cleanup.policy", "delete", choices=_CLEANUP, may_be_empty=True)
    log_index_interval_bytes: int = setting("log.index.interval.bytes", 4096, low=0)
    log_message_timestamp_type: str = setting("log.message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    log_cleaner_enable: bool = setting("log.cleaner.enable", True)
    log_cleaner_backoff_ms: int = setting("log.cleaner.backoff.ms", 15_000, low=0)
    log_retention_bytes: int = setting("log.retention.bytes", -1)
    log_retention_ms: int = setting("log.retention.ms", 604_800_000, low=1, or_value=-1)
    log_retention_check_interval_ms: int = setting("log.retention.check.interval.ms", 300_000, low=1)
    log_segment_bytes: int = setting("log.segment.bytes", 1_073_741_824, low=14)
    log_roll_ms: int = setting("log.roll.ms", 604_800_000, low=1)

    # The defaults of topics that have no log. prefix, or another name than the topic's setting.
    compression_gzip_level: int = setting("compression.gzip.level", -1, low=1, high=9, or_value=-1)
    compression_lz4_level: int = setting("compression.lz4.level", 9, low=1, high=17)
    compression_type: str = setting("compression.type", "producer", choices=_COMPRESSION)
    compression_zstd_level: int = setting("compression.zstd.level", 3, low=-131_072, high=22)
    log_cleaner_delete_retention_ms: int = setting("log.cleaner.delete.retention.ms", 86_400_000, low=0)
    log_cleaner_max_compaction_lag_ms: int = setting("log.cleaner.max.compaction.lag.ms", LONG_MAX, low=1)
    log_cleaner_min_cleanable_ratio: float = setting("log.cleaner.min.cleanable.ratio", 0.5, low=0, high=1)
    log_cleaner_min_compaction_lag_ms: int = setting("log.cleaner.min.compaction.lag.ms", 0, low=0)
    log_index_size_max_bytes: int = setting("log.index.size.max.bytes", 10_485_760, low=4)
    log_message_timestamp_after_max_ms: int = setting("log.message.timestamp.after.max.ms", 3_600_000, low=0)
    log_message_timestamp_before_max_ms: int = setting("log.message.timestamp.before.max.ms", LONG_MAX, low=0)
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes", 2_147_483_639, low=1, high=2_147_483_639
    )
    min_insync_replicas: int = setting("min.insync.replicas", 1, low=1)
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable", False)

    quota_window_num: int = setting("quota.window.num", 11, low=1)
    quota_window_size_seconds: int = setting("quota.window.size.seconds", 1, low=1)
    controller_quota_window_num: int = setting("controller.quota.window.num", 11, low=1)
    controller_quota_window_size_seconds: int = setting("controller.quota.window.size.seconds", 1, low=1)

    transaction_max_timeout_ms: int = setting("transaction.max.timeout.ms", 900_000, low=1)
    transactional_id_expiration_ms: int = setting("transactional.id.expiration.ms", 604_800_000, low=1)
    transaction_state_log_num_partitions: int = setting("transaction.state.log.num.partitions", 50, low=1)
    transaction_state_log_segment_bytes: int = setting("transaction.state.log.segment.bytes", 104_857_600, low=1)
    transaction_abort_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, low=1
    )
    transaction_expire_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, low=1
    )
    transaction_two_phase_commit_enable: bool = setting("transaction.two.phase.commit.enable", False)
    transaction_partition_verification_enable: bool = setting("transaction.partition.verification.enable", True)
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms", 86_400_000, low=1)
    producer_id_expiration_check_interval_ms: int = setting("producer.id.expiration.check.interval.ms", 600_000, low=1)
    add_partitions_retry_backoff_ms: int = setting("add.partitions.to.txn.retry.backoff.ms", 20, low=1)
    add_partitions_retry_backoff_max_ms: int = setting("add.partitions.to.txn.retry.backoff.max.ms", 100, low=0)

    offsets_topic_num_partitions: int = setting("offsets.topic.num.partitions", 50, low=1)
    offsets_topic_segment_bytes: int = setting("offsets.topic.segment.bytes", 104_857_600, low=1)
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes", 4096, low=0)
    offsets_retention_minutes: int = setting("offsets.retention.minutes", 10_080, low=1)
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms", 600_000, low=1)
    group_initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms", 0, low=0)
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms", 6_000, low=0)
    group_max_session_timeout_ms: int = setting("group.max.session.timeout.ms", 1_800_000, low=1)
    group_max_size: int = setting("group.max.size", 2**31 - 1, low=1)
    group_version: int = setting("group.version", 1, low=0, high=1)
    group_consumer_session_timeout_ms: int = setting("group.consumer.session.timeout.ms", 45_000, low=1)
    group_consumer_heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms", 5_000, low=1)
    group_consumer_min_session_timeout_ms: int = setting("group.consumer.min.session.timeout.ms", 45_000, low=1)
    group_consumer_max_session_timeout_ms: int = setting("group.consumer.max.session.timeout.ms", 60_000, low=1)
    group_consumer_min_heartbeat_interval_ms: int = setting("group.consumer.min.heartbeat.interval.ms", 5_000, low=1)
    group_consumer_max_heartbeat_interval_ms: int = setting("group.consumer.max.heartbeat.interval.ms", 15_000, low=1)
    group_consumer_min_assignment_interval_ms: int = setting("group.consumer.min.assignment.interval.ms", 0, low=0)
    group_consumer_max_assignment_interval_ms: int = setting("group.consumer.max.assignment.interval.ms", 15_000, low=0)
    group_consumer_max_size: int = setting("group.consumer.max.size", 2**31 - 1, low=1)
    group_consumer_assignment_interval_ms: int = setting("group.consumer.assignment.interval.ms", 0, low=0)
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy", "bidirectional", choices=_MIGRATIONS, ignores_case=True
    )

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed, those of single listeners among them.

        Settings of Kafka's that have nothing to act on here are checked and left out, with a line in the log.
        """
        given = {**dict(self.given), **settings}
        check_usable(settings)
        # Before hours become milliseconds: all values are checked, also those that a shorter unit overrides. Settings
        # of topics only are unknown to Kafka's brokers.
        for key in effectless(settings, {*self.keys(), *TopicConfig.keys()}):
            check_without_effect(key, settings[key])
        settings = without_controllers(in_milliseconds(settings))
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
        return int(parse_setting(self.keys()[_REAUTH], text))

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of a topic that overrides nothing."""
        topic, broker = TopicConfig.keys(), self.keys()
        return TopicConfig(**{topic[own].name: getattr(self, broker[key].name) for own, key in TOPIC_SYNONYMS.items()})


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
