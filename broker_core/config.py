"""The settings of brokers, listeners and topics under Kafka's own names, with their types, defaults and bounds.

Files are read by the caller. No text and no error contains the value of a secret setting.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from broker_core.errors import ConfigError
from broker_core.kafka_settings import TYPES, effectless, in_milliseconds, without_controllers
from broker_core.properties import read_properties

# What Java's parsers take and Python's take too; without it an underscore would be part of a number.
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?|NaN")
logger = logging.getLogger(__name__)

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
HIDDEN = "[hidden]"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _key(
    name: str,
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    may_be_empty: bool = False,
    or_value: int | None = None,
) -> Any:
    return field(
        default=default,
        repr=not secret,
        metadata={
            "key": name,
            "low": low,
            "high": high,
            "choices": choices,
            "secret": secret,
            "may_be_empty": may_be_empty,
            "or_value": or_value,
        },
    )


def _parse(spec: Any, text: str) -> Any:
    """Turn a property's text into the type of its default, checking the bounds."""
    key, default = spec.metadata["key"], spec.default
    text = text.strip()
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r}: expected true or false")
        return text.lower() == "true"
    if isinstance(default, int | float):
        return _parse_number(spec, text)
    choices = spec.metadata["choices"]
    if not text and spec.metadata["may_be_empty"]:
        return text
    if TYPES.get(key) == "LIST":
        text = ",".join(part.strip() for part in text.split(","))
    if choices and any(part not in choices for part in text.split(",")):
        raise ConfigError(f"{key}={text!r}: expected one of {', '.join(choices)}")
    return text


def _parse_number(spec: Any, text: str) -> int | float:
    key, default, bounds = spec.metadata["key"], spec.default, spec.metadata
    try:
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        value: int | float = type(default)(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r}: expected a number such as {default}") from None
    if value == bounds["or_value"]:
        return value
    if bounds["low"] is not None and value < bounds["low"]:
        raise ConfigError(f"{key}={text}: must be at least {bounds['low']}")
    high = bounds["high"]
    if high is None and isinstance(value, int):
        high = _INT_MAX if TYPES.get(key) == "INT" else _LONG_MAX
    if high is not None and value > high:
        raise ConfigError(f"{key}={text}: must be at most {high}")
    return value


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text of a `.properties` file.

    An error gives the number of the line and not its content, which may be part of a key or a password.
    """
    settings: dict[str, str] = {}
    for each in read_properties(text):
        if each.separator != "=":
            raise ConfigError(f"line {each.line} is not of the form key=value")
        settings[each.name] = each.value
    return settings


_CLEANUP = ("delete", "compact")
_COMPRESSION = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_TIMESTAMP = ("CreateTime", "LogAppendTime")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_THROTTLED = re.compile(r"\*|(?:\d+:\d+(?:,\d+:\d+)*)?")
# Kafka refuses smaller segments of clients; the broker and its tests may make them.
_SMALLEST_SEGMENT_BYTES = 1_048_576
LISTENER_PREFIX = "listener.name."
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_HANDLER = "sasl.server.callback.handler.class"
_OF_MECHANISMS = (_JAAS, _REAUTH, _HANDLER)


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings by Kafka's keys; each field of a subclass is one."""

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """Return each Kafka key with its dataclass field."""
        return {spec.metadata["key"]: spec for spec in fields(cls) if "key" in spec.metadata}

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one."""
        known = self.keys()
        unknown = sorted(set(settings) - set(known))
        if unknown:
            what = "unsupported" if unknown[0] in TYPES else "unknown"
            raise ConfigError(f"{what} setting {unknown[0]!r}; known are: {', '.join(sorted(known))}")
        return replace(self, **{known[key].name: _parse(known[key], text) for key, text in settings.items()})

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it; a secret that is set is `[hidden]`."""
        texts = {}
        for key, spec in self.keys().items():
            value = getattr(self, spec.name)
            if spec.metadata["secret"] and value:
                value = HIDDEN
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return texts


@dataclass(frozen=True, slots=True)
class TopicConfig(_Settings):
    """The effective settings of a topic; names and defaults are Kafka's topic-level ones."""

    cleanup_policy: str = _key("cleanup.policy", "delete", choices=_CLEANUP, may_be_empty=True)
    compression_gzip_level: int = _key("compression.gzip.level", -1, low=1, high=9, or_value=-1)
    compression_lz4_level: int = _key("compression.lz4.level", 9, low=1, high=17)
    compression_type: str = _key("compression.type", "producer", choices=_COMPRESSION)
    compression_zstd_level: int = _key("compression.zstd.level", 3, low=-131_072, high=22)
    delete_retention_ms: int = _key("delete.retention.ms", 86_400_000, low=0)
    dead_letter_queue_enable: bool = _key("errors.deadletterqueue.group.enable", False)
    file_delete_delay_ms: int = _key("file.delete.delay.ms", 60_000, low=0)
    flush_messages: int = _key("flush.messages", _LONG_MAX, low=1)
    flush_ms: int = _key("flush.ms", _LONG_MAX, low=0)
    follower_throttled_replicas: str = _key("follower.replication.throttled.replicas", "")
    index_interval_bytes: int = _key("index.interval.bytes", 4096, low=0)
    leader_throttled_replicas: str = _key("leader.replication.throttled.replicas", "")
    local_retention_bytes: int = _key("local.retention.bytes", -2, low=-2)
    local_retention_ms: int = _key("local.retention.ms", -2, low=-2)
    max_compaction_lag_ms: int = _key("max.compaction.lag.ms", _LONG_MAX, low=1)
    max_decompressed_message_bytes: int = _key(
        "max.decompressed.message.bytes", 2_147_483_639, low=1, high=2_147_483_639
    )
    max_message_bytes: int = _key("max.message.bytes", 1_048_588, low=0)
    message_timestamp_after_max_ms: int = _key("message.timestamp.after.max.ms", 3_600_000, low=0)
    message_timestamp_before_max_ms: int = _key("message.timestamp.before.max.ms", _LONG_MAX, low=0)
    message_timestamp_type: str = _key("message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    min_cleanable_dirty_ratio: float = _key("min.cleanable.dirty.ratio", 0.5, low=0, high=1)
    min_compaction_lag_ms: int = _key("min.compaction.lag.ms", 0, low=0)
    min_insync_replicas: int = _key("min.insync.replicas", 1, low=1)
    preallocate: bool = _key("preallocate", False)
    remote_copy_lag_bytes: int = _key("remote.copy.lag.bytes", -1, low=-1)
    remote_copy_lag_ms: int = _key("remote.copy.lag.ms", 0, low=-1)
    remote_log_copy_disable: bool = _key("remote.log.copy.disable", False)
    remote_log_delete_on_disable: bool = _key("remote.log.delete.on.disable", False)
    remote_storage_enable: bool = _key("remote.storage.enable", False)
    retention_bytes: int = _key("retention.bytes", -1)
    retention_ms: int = _key("retention.ms", 604_800_000, low=-1)
    segment_bytes: int = _key("segment.bytes", 1_073_741_824, low=14)
    segment_index_bytes: int = _key("segment.index.bytes", 10_485_760, low=4)
    segment_jitter_ms: int = _key("segment.jitter.ms", 0, low=0)
    segment_ms: int = _key("segment.ms", 604_800_000, low=1)
    unclean_leader_election_enable: bool = _key("unclean.leader.election.enable", False)

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one, or two that conflict."""
        changed = _Settings.override(self, settings)
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
        for text in (changed.follower_throttled_replicas, changed.leader_throttled_replicas):
            if not _THROTTLED.fullmatch(text):
                raise ConfigError(f"throttled replicas {text!r}: expected * or partition:broker,partition:broker,...")
        return changed

    def override_by_client(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with those of a client changed, to which Kafka's bound of segment.bytes applies."""
        changed = self.override(settings)
        if "segment.bytes" in settings and changed.segment_bytes < _SMALLEST_SEGMENT_BYTES:
            raise ConfigError(f"segment.bytes={changed.segment_bytes}: must be at least {_SMALLEST_SEGMENT_BYTES}")
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
class ListenerConfig(_Settings):
    """The settings that can be set for a single listener, as `listener.name.<listener>.<key>`.

    Two defaults differ from Kafka's: key stores are PEM, and the mechanisms are those that passwords are enough for.
    """

    sasl_enabled_mechanisms: str = _key(
        "sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", choices=_MECHANISMS
    )
    sasl_server_max_receive_size: int = _key("sasl.server.max.receive.size", 524_288, low=1)
    sasl_oauthbearer_jwks_endpoint_url: str = _key("sasl.oauthbearer.jwks.endpoint.url", "")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _key("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, low=1)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, low=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, low=1
    )
    sasl_oauthbearer_expected_audience: str = _key("sasl.oauthbearer.expected.audience", "")
    sasl_oauthbearer_expected_issuer: str = _key("sasl.oauthbearer.expected.issuer", "")
    sasl_oauthbearer_allow_unverified_audience: bool = _key("sasl.oauthbearer.allow.unverified.audience", False)
    sasl_oauthbearer_allow_unverified_issuer: bool = _key("sasl.oauthbearer.allow.unverified.issuer", False)
    sasl_oauthbearer_clock_skew_seconds: int = _key("sasl.oauthbearer.clock.skew.seconds", 30, low=0)
    sasl_oauthbearer_scope_claim_name: str = _key("sasl.oauthbearer.scope.claim.name", "scope")
    sasl_oauthbearer_sub_claim_name: str = _key("sasl.oauthbearer.sub.claim.name", "sub")
    connections_max_reauth_ms: int = _key(_REAUTH, 0, low=0)
    max_connections: int = _key("max.connections", _INT_MAX, low=0)
    max_connection_creation_rate: int = _key("max.connection.creation.rate", _INT_MAX, low=1)
    ssl_client_auth: str = _key("ssl.client.auth", "none", choices=("none", "requested", "required"))
    ssl_enabled_protocols: str = _key("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", choices=("TLSv1.2", "TLSv1.3"))
    ssl_principal_mapping_rules: str = _key("ssl.principal.mapping.rules", "DEFAULT")
    ssl_keystore_type: str = _key("ssl.keystore.type", "PEM")
    ssl_keystore_location: str = _key("ssl.keystore.location", "")
    ssl_keystore_certificate_chain: str = _key("ssl.keystore.certificate.chain", "", secret=True)
    ssl_keystore_key: str = _key("ssl.keystore.key", "", secret=True)
    ssl_key_password: str = _key("ssl.key.password", "", secret=True)
    ssl_truststore_type: str = _key("ssl.truststore.type", "PEM")
    ssl_truststore_location: str = _key("ssl.truststore.location", "")
    ssl_truststore_certificates: str = _key("ssl.truststore.certificates", "", secret=True)


@dataclass(frozen=True, slots=True)
class BrokerConfig(ListenerConfig):
    """The settings of a broker; names and defaults are Kafka's broker-level ones."""

    # The settings of single listeners, by full key.
    listener_overrides: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    listeners: str = _key("listeners", "")
    advertised_listeners: str = _key("advertised.listeners", "")
    listener_security_protocol_map: str = _key(
        "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    )
    inter_broker_listener_name: str = _key("inter.broker.listener.name", "")
    max_connections_per_ip: int = _key("max.connections.per.ip", _INT_MAX, low=0)
    max_connections_per_ip_overrides: str = _key("max.connections.per.ip.overrides", "")
    failed_authentication_delay_ms: int = _key("connection.failed.authentication.delay.ms", 100, low=0)

    broker_id: int = _key("node.id", 1, low=0)
    cluster_id: str = _key("cluster.id", "")
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", True)
    num_partitions: int = _key("num.partitions", 1, low=1)
    delete_topic_enable: bool = _key("delete.topic.enable", True)
    transaction_version: int = _key("transaction.version", 2, low=0, high=2)
    # Not a setting of Kafka's: whether an acknowledged write is also synced to disk. It is, since there is no replica.
    flush_before_ack: bool = _key("log.flush.before.ack", True)

    authorizer_class_name: str = _key("authorizer.class.name", "", choices=("", STANDARD_AUTHORIZER))
    super_users: str = _key("super.users", "")
    allow_everyone_if_no_acl_is_found: bool = _key("allow.everyone.if.no.acl.found", False)

    message_max_bytes: int = _key("message.max.bytes", 1_048_588, low=0)
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 104_857_600, low=1)
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000)
    fetch_max_bytes: int = _key("fetch.max.bytes", 57_671_680, low=1024)
    max_incremental_fetch_session_cache_slots: int = _key("max.incremental.fetch.session.cache.slots", 1000, low=0)
    log_cleanup_policy: str = _key("log.cleanup.policy", "delete", choices=_CLEANUP, may_be_empty=True)
    log_index_interval_bytes: int = _key("log.index.interval.bytes", 4096, low=0)
    log_message_timestamp_type: str = _key("log.message.timestamp.type", "CreateTime", choices=_TIMESTAMP)
    log_cleaner_enable: bool = _key("log.cleaner.enable", True)
    log_cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms", 15_000, low=1)
    log_retention_bytes: int = _key("log.retention.bytes", -1)
    log_retention_ms: int = _key("log.retention.ms", 604_800_000, low=-1)
    log_retention_check_interval_ms: int = _key("log.retention.check.interval.ms", 300_000, low=1)
    log_segment_bytes: int = _key("log.segment.bytes", 1_073_741_824, low=14)
    log_roll_ms: int = _key("log.roll.ms", 604_800_000, low=1)

    # The defaults of topics that have no log. prefix, or another name than the topic's setting.
    compression_gzip_level: int = _key("compression.gzip.level", -1, low=1, high=9, or_value=-1)
    compression_lz4_level: int = _key("compression.lz4.level", 9, low=1, high=17)
    compression_type: str = _key("compression.type", "producer", choices=_COMPRESSION)
    compression_zstd_level: int = _key("compression.zstd.level", 3, low=-131_072, high=22)
    log_cleaner_delete_retention_ms: int = _key("log.cleaner.delete.retention.ms", 86_400_000, low=0)
    log_cleaner_max_compaction_lag_ms: int = _key("log.cleaner.max.compaction.lag.ms", _LONG_MAX, low=1)
    log_cleaner_min_cleanable_ratio: float = _key("log.cleaner.min.cleanable.ratio", 0.5, low=0, high=1)
    log_cleaner_min_compaction_lag_ms: int = _key("log.cleaner.min.compaction.lag.ms", 0, low=0)
    log_index_size_max_bytes: int = _key("log.index.size.max.bytes", 10_485_760, low=4)
    log_message_timestamp_after_max_ms: int = _key("log.message.timestamp.after.max.ms", 3_600_000, low=0)
    log_message_timestamp_before_max_ms: int = _key("log.message.timestamp.before.max.ms", _LONG_MAX, low=0)
    max_decompressed_message_bytes: int = _key(
        "max.decompressed.message.bytes", 2_147_483_639, low=1, high=2_147_483_639
    )
    min_insync_replicas: int = _key("min.insync.replicas", 1, low=1)
    unclean_leader_election_enable: bool = _key("unclean.leader.election.enable", False)

    transaction_max_timeout_ms: int = _key("transaction.max.timeout.ms", 900_000, low=1)
    transactional_id_expiration_ms: int = _key("transactional.id.expiration.ms", 604_800_000, low=1)
    transaction_state_log_num_partitions: int = _key("transaction.state.log.num.partitions", 50, low=1)
    transaction_state_log_segment_bytes: int = _key("transaction.state.log.segment.bytes", 104_857_600, low=1)
    transaction_abort_interval_ms: int = _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, low=1
    )
    transaction_expire_interval_ms: int = _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, low=1
    )
    transaction_two_phase_commit_enable: bool = _key("transaction.two.phase.commit.enable", False)
    transaction_partition_verification_enable: bool = _key("transaction.partition.verification.enable", True)
    producer_id_expiration_ms: int = _key("producer.id.expiration.ms", 86_400_000, low=1)
    producer_id_expiration_check_interval_ms: int = _key("producer.id.expiration.check.interval.ms", 600_000, low=1)
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

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed, those of single listeners among them.

        Settings of Kafka's that have nothing to act on here are left out, with a line in the log.
        """
        settings = without_controllers(in_milliseconds(settings))
        left_out = effectless(settings, self.keys())
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
        return replace(_Settings.override(self, own), listener_overrides=tuple(sorted(of_listeners.items())))

    def of_listener(self, name: str) -> Self:
        """Return the settings in force at one listener."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): text for key, text in self.listener_overrides if key.startswith(prefix)}
        known = ListenerConfig.keys()
        return _Settings.override(self, {key: text for key, text in own.items() if key in known})

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
        return int(_parse(self.keys()[_REAUTH], text))

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of a topic that overrides nothing."""
        topic, broker = TopicConfig.keys(), self.keys()
        return TopicConfig(**{topic[own].name: getattr(self, broker[key].name) for own, key in TOPIC_SYNONYMS.items()})


def base_key(key: str) -> str | None:
    """Return the setting that `listener.name.<listener>.<key>` sets, or None if listeners do not have it."""
    _, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    known = ListenerConfig.keys()
    if rest in known:
        return rest
    mechanism, _, rest = rest.partition(".")
    # In lower case only, as it is looked up; otherwise a limit on sessions would not be found and not apply.
    is_known = mechanism == mechanism.lower() and mechanism.upper() in _MECHANISMS
    return rest if is_known and rest in _OF_MECHANISMS else None


def is_secret(key: str) -> bool:
    """Return whether the setting's value is secret."""
    base = base_key(key) if key.startswith(LISTENER_PREFIX) else key
    spec = BrokerConfig.keys().get(base or "")
    return base == _JAAS or (spec is not None and bool(spec.metadata["secret"]))
