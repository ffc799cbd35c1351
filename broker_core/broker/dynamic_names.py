"""The settings that Apache Kafka 4.4 changes while brokers run: of brokers, of groups, of client metrics."""

from typing import Final, NamedTuple

from broker_core.kafka_defaults import DEFAULTS, INTERNAL_DEFAULTS
from broker_core.kafka_settings import TYPES

# The settings of listeners, which have a value for each broker only.
_PER_BROKER = """
    cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
PER_BROKER: Final = frozenset(_PER_BROKER.split())
# The settings of key stores and trust stores, which take effect for the next connection. Single listeners change them.
OF_STORES: Final = frozenset(
    {
        "ssl.key.password",
        *(f"ssl.keystore.{name}" for name in ("certificate.chain", "key", "location", "password", "type")),
        *(f"ssl.truststore.{name}" for name in ("certificates", "location", "password", "type")),
    }
)
_CLUSTER_WIDE = """
    background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    config.providers errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
    follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
    group.streams.assignment.interval.ms log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
    log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.flush.interval.messages
    log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes log.local.retention.bytes
    log.local.retention.ms log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
    log.message.timestamp.type log.preallocate log.remote.copy.lag.bytes log.remote.copy.lag.ms
    log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
    max.connections.per.ip.overrides max.decompressed.message.bytes message.max.bytes metric.reporters
    min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
    producer.id.expiration.ms remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
    remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
    remote.log.reader.threads share.coordinator.cached.buffer.max.bytes transaction.partition.verification.enable
    unclean.leader.election.enable
"""
CLUSTER_WIDE: Final = frozenset(_CLUSTER_WIDE.split())
# The numbers of threads, which Kafka halves and doubles at most in one change.
THREAD_POOLS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
# Limits of replication traffic, which are not settings of a properties file.
DYNAMIC_ONLY: Final = {
    "follower.replication.throttled.rate": "LONG",
    "leader.replication.throttled.rate": "LONG",
    "replica.alter.log.dirs.io.max.bytes.per.second": "LONG",
}
DYNAMIC: Final = PER_BROKER | CLUSTER_WIDE | DYNAMIC_ONLY.keys()
# The settings of listeners that single listeners change too, with effect here.
OF_LISTENERS: Final = frozenset({"max.connections", "max.connection.creation.rate"})


class GroupSetting(NamedTuple):
    """A setting of groups: its type, its default or the broker setting with it, and its lowest value."""

    kind: str
    default: str | None = None
    synonym: str | None = None
    lowest: int | None = None


def _of_broker(kind: str, *names: str, lowest: int | None = None) -> dict[str, GroupSetting]:
    return {name: GroupSetting(kind, None, f"group.{name}", lowest) for name in names}


GROUP_SETTINGS: Final[dict[str, GroupSetting]] = {
    **_of_broker(
        "INT",
        "consumer.assignment.interval.ms",
        "share.assignment.interval.ms",
        "streams.assignment.interval.ms",
        lowest=0,
    ),
    **_of_broker(
        "INT",
        "consumer.heartbeat.interval.ms",
        "share.heartbeat.interval.ms",
        "streams.heartbeat.interval.ms",
        lowest=1,
    ),
    **_of_broker(
        "INT",
        "consumer.session.timeout.ms",
        "share.session.timeout.ms",
        "streams.session.timeout.ms",
        lowest=1,
    ),
    **_of_broker("INT", "share.delivery.count.limit", lowest=2),
    **_of_broker("INT", "share.partition.max.record.locks", lowest=100),
    **_of_broker("INT", "share.record.lock.duration.ms", lowest=1000),
    **_of_broker("INT", "streams.initial.rebalance.delay.ms", lowest=0),
    **_of_broker("INT", "streams.num.standby.replicas", lowest=0),
    **_of_broker("LIST", "streams.rack.aware.assignment.tags"),
    "errors.deadletterqueue.copy.record.enable": GroupSetting("BOOLEAN", "false"),
    "errors.deadletterqueue.topic.name": GroupSetting("STRING", ""),
    "share.auto.offset.reset": GroupSetting("STRING", "latest"),
    "share.isolation.level": GroupSetting("STRING", "read_uncommitted"),
    "share.renew.acknowledge.enable": GroupSetting("BOOLEAN", "true"),
    "streams.assignor.name": GroupSetting("STRING", None, "group.streams.assignors"),
}
# The bounds of settings of streams groups, which have none in the settings of brokers here.
STREAMS_RANGES: Final = {
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.heartbeat.interval.ms": (5_000, 15_000),
    "streams.session.timeout.ms": (45_000, 60_000),
}
# The type and the default of each setting of client metrics.
CLIENT_METRICS: Final = {"interval.ms": ("INT", "300000"), "match": ("LIST", ""), "metrics": ("LIST", "")}


def kind_of(name: str) -> str | None:
    """Return the type of a broker setting, None for one that Kafka does not have."""
    return TYPES[name] if name in DEFAULTS or name in INTERNAL_DEFAULTS else DYNAMIC_ONLY.get(name)
