"""The names and types of the settings that Apache Kafka 4.4 has for brokers and topics.

Brokers here serve a part of them. The functions turn settings of a real broker into that part.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from broker_core.errors import ConfigError
from broker_core.java_values import parse_double, parse_whole, trim
from broker_core.listener_keys import LISTENER_PREFIX, listener_key

_NAMES: Final = {
    "BOOLEAN": """
        auto.create.topics.enable auto.leader.rebalance.enable controlled.shutdown.enable
        controller.quorum.auto.join.enable delete.topic.enable errors.deadletterqueue.auto.create.topics.enable
        errors.deadletterqueue.group.enable follower.fetch.last.tiered.offset.enable log.cleaner.enable
        log.preallocate preallocate remote.log.copy.disable remote.log.delete.on.disable
        remote.log.storage.system.enable remote.storage.enable sasl.oauthbearer.allow.unverified.audience
        sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.claim.jti.include
        ssl.allow.dn.changes ssl.allow.san.changes transaction.partition.verification.enable
        transaction.two.phase.commit.enable unclean.leader.election.enable
    """,
    "CLASS": """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        group.streams.topology.description.plugin.class principal.builder.class
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
        sasl.server.callback.handler.class ssl.engine.factory.class
    """,
    "DOUBLE": """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio
        min.cleanable.dirty.ratio sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    "INT": """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        background.threads broker.heartbeat.interval.ms broker.id broker.session.timeout.ms
        compression.gzip.level compression.lz4.level compression.zstd.level
        connection.failed.authentication.delay.ms controller.quorum.append.linger.ms
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms controller.quota.window.num controller.quota.window.size.seconds
        controller.socket.timeout.ms default.replication.factor delete.records.purgatory.purge.interval.requests
        fetch.max.bytes fetch.purgatory.purge.interval.requests group.consumer.assignment.interval.ms
        group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
        group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
        group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms
        group.coordinator.append.linger.ms group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes group.coordinator.threads group.initial.rebalance.delay.ms
        group.max.session.timeout.ms group.max.size group.min.session.timeout.ms
        group.share.assignment.interval.ms group.share.delivery.count.limit group.share.heartbeat.interval.ms
        group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
        group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms group.share.partition.max.record.locks
        group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.assignment.interval.ms
        group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
        group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
        index.interval.bytes initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs
        log.cleaner.io.buffer.size log.cleaner.threads log.flush.offset.checkpoint.interval.ms
        log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes log.index.size.max.bytes
        log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours log.segment.bytes
        max.connection.creation.rate max.connections max.connections.per.ip max.decompressed.message.bytes
        max.incremental.fetch.session.cache.slots max.message.bytes max.request.partition.size.limit
        message.max.bytes metadata.log.segment.bytes metadata.max.idle.interval.ms metrics.num.samples
        min.insync.replicas node.id num.io.threads num.network.threads num.partitions
        num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
        offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size offsets.retention.minutes
        offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.segment.bytes
        producer.id.expiration.ms producer.purgatory.purge.interval.requests queued.max.requests
        quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks
        remote.log.reader.threads replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
        replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.socket.receive.buffer.bytes
        replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds
        request.timeout.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.clock.skew.seconds sasl.server.max.receive.size segment.bytes segment.index.bytes
        share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests socket.listen.backlog.size socket.receive.buffer.bytes
        socket.request.max.bytes socket.send.buffer.bytes telemetry.max.bytes
        transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
        transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
        transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.segment.bytes
        transactional.id.expiration.ms
    """,
    "LIST": """
        advertised.listeners cleanup.policy config.providers controller.listener.names
        controller.quorum.bootstrap.servers controller.quorum.voters cordoned.log.dirs early.start.listeners
        follower.replication.throttled.replicas group.consumer.assignors group.coordinator.rebalance.protocols
        group.share.assignors group.streams.assignors group.streams.rack.aware.assignment.tags
        kafka.metrics.reporters leader.replication.throttled.replicas listeners log.cleanup.policy log.dir
        log.dirs metric.reporters process.roles sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules
        sasl.oauthbearer.expected.audience ssl.cipher.suites ssl.enabled.protocols
    """,
    "LONG": """
        connections.max.idle.ms connections.max.reauth.ms delegation.token.expiry.check.interval.ms
        delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delete.retention.ms
        file.delete.delay.ms flush.messages flush.ms leader.imbalance.check.interval.seconds
        local.retention.bytes local.retention.ms log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
        log.cleaner.delete.retention.ms log.cleaner.max.compaction.lag.ms log.cleaner.min.compaction.lag.ms
        log.dir.failure.timeout.ms log.flush.interval.messages log.flush.interval.ms
        log.flush.scheduler.interval.ms log.local.retention.bytes log.local.retention.ms
        log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.remote.copy.lag.bytes
        log.remote.copy.lag.ms log.retention.bytes log.retention.check.interval.ms log.retention.ms
        log.roll.jitter.ms log.roll.ms log.segment.delete.delay.ms max.compaction.lag.ms
        message.timestamp.after.max.ms message.timestamp.before.max.ms
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.ms metadata.max.retention.bytes metadata.max.retention.ms metrics.sample.window.ms
        min.compaction.lag.ms offsets.retention.check.interval.ms queued.max.request.bytes remote.copy.lag.bytes
        remote.copy.lag.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.task.interval.ms replica.high.watermark.checkpoint.interval.ms
        replica.lag.time.max.ms retention.bytes retention.ms sasl.kerberos.min.time.before.relogin
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        segment.jitter.ms segment.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """,
    "PASSWORD": """
        delegation.token.secret.key sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret ssl.key.password ssl.keystore.certificate.chain
        ssl.keystore.key ssl.keystore.password ssl.truststore.certificates ssl.truststore.password
    """,
    "SHORT": """
        offsets.topic.replication.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
        transaction.state.log.replication.factor
    """,
    "STRING": """
        authorizer.class.name broker.rack compression.type errors.deadletterqueue.topic.name.prefix
        group.consumer.migration.policy inter.broker.listener.name listener.security.protocol.map
        log.message.timestamp.type max.connections.per.ip.overrides message.timestamp.type metadata.log.dir
        metrics.recording.level remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
        remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix replica.selector.class sasl.kerberos.kinit.cmd
        sasl.kerberos.service.name sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
        security.inter.broker.protocol security.providers ssl.client.auth ssl.endpoint.identification.algorithm
        ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.type ssl.principal.mapping.rules
        ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
        ssl.truststore.location ssl.truststore.type
    """,
}
# Those that Kafka does not document: for its own tests, or to be changed in an emergency.
_INTERNAL_NAMES: Final = {
    "BOOLEAN": """
        group.consumer.assignor.offload.enable group.share.assignor.offload.enable
        group.streams.assignor.offload.enable unstable.api.versions.enable unstable.feature.versions.enable
    """,
    "INT": """
        group.consumer.regex.refresh.interval.ms group.share.initialize.retry.interval.ms
        group.streams.max.warmup.replicas group.streams.min.task.offset.interval.ms
        group.streams.num.warmup.replicas group.streams.task.offset.interval.ms internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes producer.id.expiration.check.interval.ms
        share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.state.topic.prune.interval.ms
    """,
    "LONG": """
        controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
        group.streams.acceptable.recovery.lag internal.metadata.delete.delay.millis log.initial.task.delay.ms
        remote.log.index.file.cache.ttl.ms remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms server.max.startup.time.ms unclean.leader.election.interval.ms
    """,
    "STRING": """
        group.share.dlq.manager.class.name group.share.persister.class.name
    """,
}
TYPES: Final = {
    name: kind for each in (_NAMES, _INTERNAL_NAMES) for kind, names in each.items() for name in names.split()
}
# Kafka's lowest values of those that have no effect here, with the limits that clients set at run time only.
_LOWEST: Final = {
    -2: "log.local.retention.bytes log.local.retention.ms",
    -1: """
        group.coordinator.append.linger.ms log.remote.copy.lag.bytes log.remote.copy.lag.ms
        remote.log.index.file.cache.ttl.ms share.coordinator.append.linger.ms
    """,
    0: """
        controller.performance.always.log.threshold.ms controller.quorum.append.linger.ms
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms follower.replication.throttled.rate
        group.streams.acceptable.recovery.lag group.streams.assignment.interval.ms
        group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
        group.streams.max.standby.replicas group.streams.max.warmup.replicas
        group.streams.min.assignment.interval.ms group.streams.num.standby.replicas
        group.streams.num.warmup.replicas leader.replication.throttled.rate log.cleaner.io.buffer.size
        log.cleaner.threads log.flush.offset.checkpoint.interval.ms
        log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms log.roll.jitter.hours
        log.segment.delete.delay.ms metadata.log.max.snapshot.interval.ms metadata.max.idle.interval.ms
        remote.log.metadata.custom.metadata.max.bytes replica.alter.log.dirs.io.max.bytes.per.second
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.response.max.bytes
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds
        server.max.startup.time.ms
    """,
    1: """
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        background.threads controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        group.coordinator.background.threads group.coordinator.threads group.share.initialize.retry.interval.ms
        group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms group.streams.max.size group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms group.streams.min.task.offset.interval.ms
        group.streams.session.timeout.ms group.streams.task.offset.interval.ms
        kafka.metrics.polling.interval.secs leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms
        log.flush.interval.messages log.roll.hours metadata.log.max.record.bytes.between.snapshots
        metrics.num.samples metrics.sample.window.ms num.io.threads num.network.threads
        num.recovery.threads.per.data.dir num.replica.fetchers offsets.commit.timeout.ms
        offsets.load.buffer.size offsets.topic.replication.factor queued.max.requests remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
        remote.log.manager.thread.pool.size remote.log.reader.max.pending.tasks remote.log.reader.threads
        replication.quota.window.num replication.quota.window.size.seconds share.coordinator.load.buffer.size
        share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
        share.coordinator.threads share.coordinator.write.timeout.ms socket.listen.backlog.size
        telemetry.max.bytes transaction.state.log.load.buffer.size transaction.state.log.min.isr
        transaction.state.log.replication.factor unclean.leader.election.interval.ms
    """,
    100: "controller.performance.sample.period.ms",
    10_000: "group.consumer.regex.refresh.interval.ms",
    524_288: "group.coordinator.cached.buffer.max.bytes share.coordinator.cached.buffer.max.bytes",
    8_388_608: "metadata.log.segment.bytes",
}
LOWEST_WITHOUT_EFFECT: Final = {name: low for low, names in _LOWEST.items() for name in names.split()}
# And the highest ones, where they are below that of the type.
HIGHEST_WITHOUT_EFFECT: Final = {
    "sasl.oauthbearer.assertion.claim.exp.seconds": 86_400,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": 3600,
}

_WHOLE_MAX: Final = {"INT": 2**31 - 1, "LONG": 2**63 - 1, "SHORT": 2**15 - 1}
_RETENTION_MS = "log.retention.ms"
_LONGER_UNITS = {
    _RETENTION_MS: (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
}
_SECURITY: Final = "org.apache.kafka.common.security"
# Settings that protect a broker by Java code, which does not run here, and the values that mean what happens here:
# leaving out others would let clients do what they forbid.
JAVA_CODE: Final[Mapping[str, tuple[str, ...]]] = {
    "alter.config.policy.class.name": (),
    "create.topic.policy.class.name": (),
    "principal.builder.class": (f"{_SECURITY}.authenticator.DefaultKafkaPrincipalBuilder",),
    "sasl.oauthbearer.jwt.validator.class": (
        f"{_SECURITY}.oauthbearer.DefaultJwtValidator",
        f"{_SECURITY}.oauthbearer.BrokerJwtValidator",
    ),
    "security.providers": (),
    "ssl.engine.factory.class": (f"{_SECURITY}.ssl.DefaultSslEngineFactory",),
    "ssl.provider": ("SunJSSE",),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
}


def in_milliseconds(settings: Mapping[str, str]) -> dict[str, str]:
    """Replace settings in minutes and hours by those in milliseconds; the shortest unit counts, as in Kafka."""
    found = dict(settings)
    for key, longer in _LONGER_UNITS.items():
        for name, factor in longer:
            text = found.pop(name, None)
            if text is None or key in found:
                continue
            found[key] = str(parse_kind(name, TYPES[name], text) * factor)
    # Kafka keeps records forever for every negative time.
    retention_ms = parse_whole(trim(found.get(_RETENTION_MS, "")))
    if retention_ms is not None and retention_ms < 0:
        found[_RETENTION_MS] = "-1"
    return found


def without_controllers(settings: Mapping[str, str]) -> dict[str, str]:
    """Leave out the listeners of the controller and their settings: brokers here have none."""
    names = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")} - {""}
    prefixes = tuple(f"{LISTENER_PREFIX}{name.lower()}." for name in names)
    found = {key: text for key, text in settings.items() if not key.startswith(prefixes)}
    for key in ("listeners", "advertised.listeners"):
        if key in found:
            entries = [entry.strip() for entry in found[key].split(",")]
            found[key] = ",".join(entry for entry in entries if entry.partition(":")[0].upper() not in names)
    return found


def effectless(settings: Collection[str], served: Collection[str]) -> list[str]:
    """Return the settings that Kafka has and that are not served here."""
    return sorted(key for key in settings if key not in served and key in TYPES)


def setting_of_kafka(key: str) -> str | None:
    """Return Kafka's setting that a key sets, maybe of one listener or mechanism, None for an unknown name."""
    found = listener_key(key)
    if found is None:
        return key if key in TYPES else None
    if found.base in TYPES:
        return found.base
    mechanism, _, rest = found.base.partition(".")
    return rest if rest in TYPES and mechanism == mechanism.lower() else None


def check_usable(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that have no effect here and without which a broker is less protected."""
    for key, text in settings.items():
        value, known = trim(text), JAVA_CODE.get(setting_of_kafka(key) or key)
        if known is not None and value not in ("", *known):
            remedy = f"remove it, or set it to {' or '.join(known)}" if known else "remove it"
            raise ConfigError(f"{key}={value!r} protects a broker by Java code, which does not run here: {remedy}")
    if trim(settings.get("config.providers", "")) and any("${" in text for text in settings.values()):
        raise ConfigError(
            "config.providers: variables such as ${file:name:key} are not replaced; write their values instead"
        )


def parse_kind(key: str, kind: str, text: str) -> Any:
    """Return the value of a text of one of Kafka's types; raise `ConfigError`, with Kafka's message, if it has none.

    The value of a text that is neither a number nor a boolean is the text itself, trimmed.
    """
    trimmed = trim(text)
    value: Any = trimmed
    if kind == "BOOLEAN":
        value = {"true": True, "false": False}.get(trimmed.lower())
    elif kind in _WHOLE_MAX:
        value = parse_whole(trimmed)
        if value is not None and not -_WHOLE_MAX[kind] - 1 <= value <= _WHOLE_MAX[kind]:
            value = None
    elif kind == "DOUBLE":
        value = parse_double(trimmed)
    if value is None:
        what = "Expected value to be either true or false" if kind == "BOOLEAN" else f"Not a number of type {kind}"
        raise ConfigError(f"Invalid value {text} for configuration {key}: {what}")
    return value
