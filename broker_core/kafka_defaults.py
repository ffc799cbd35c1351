"""The defaults of the settings that Apache Kafka 4.4 has for brokers, as DescribeConfigs shows them."""

from typing import Final

_DEFAULTS = """
    add.partitions.to.txn.retry.backoff.max.ms=100 add.partitions.to.txn.retry.backoff.ms=20
    alter.log.dirs.replication.quota.window.num=11 alter.log.dirs.replication.quota.window.size.seconds=1
    authorizer.class.name= auto.create.topics.enable=true auto.leader.rebalance.enable=true
    background.threads=10 broker.heartbeat.interval.ms=2000 broker.id=-1 broker.session.timeout.ms=9000
    compression.gzip.level=-1 compression.lz4.level=9 compression.type=producer compression.zstd.level=3
    config.providers= connection.failed.authentication.delay.ms=100 connections.max.idle.ms=600000
    connections.max.reauth.ms=0 controlled.shutdown.enable=true controller.quorum.append.linger.ms=25
    controller.quorum.auto.join.enable=false controller.quorum.bootstrap.servers=
    controller.quorum.election.backoff.max.ms=1000 controller.quorum.election.timeout.ms=1000
    controller.quorum.fetch.max.bytes=1048576 controller.quorum.fetch.snapshot.max.bytes=1048576
    controller.quorum.fetch.timeout.ms=2000 controller.quorum.request.timeout.ms=2000
    controller.quorum.retry.backoff.ms=20 controller.quorum.voters= controller.quota.window.num=11
    controller.quota.window.size.seconds=1 controller.socket.timeout.ms=30000 cordoned.log.dirs=
    default.replication.factor=1 delegation.token.expiry.check.interval.ms=3600000
    delegation.token.expiry.time.ms=86400000 delegation.token.max.lifetime.ms=604800000
    delete.records.purgatory.purge.interval.requests=1 delete.topic.enable=true
    errors.deadletterqueue.auto.create.topics.enable=false errors.deadletterqueue.topic.name.prefix=dlq.
    fetch.max.bytes=57671680 fetch.purgatory.purge.interval.requests=1000
    follower.fetch.last.tiered.offset.enable=false group.consumer.assignment.interval.ms=1000
    group.consumer.assignors=uniform,range group.consumer.heartbeat.interval.ms=5000
    group.consumer.max.assignment.interval.ms=15000 group.consumer.max.heartbeat.interval.ms=15000
    group.consumer.max.session.timeout.ms=60000 group.consumer.max.size=2147483647
    group.consumer.migration.policy=bidirectional group.consumer.min.assignment.interval.ms=0
    group.consumer.min.heartbeat.interval.ms=5000 group.consumer.min.session.timeout.ms=45000
    group.consumer.session.timeout.ms=45000 group.coordinator.append.linger.ms=-1
    group.coordinator.background.threads=2 group.coordinator.cached.buffer.max.bytes=1048588
    group.coordinator.rebalance.protocols=classic,consumer,streams group.coordinator.threads=4
    group.initial.rebalance.delay.ms=3000 group.max.session.timeout.ms=1800000 group.max.size=2147483647
    group.min.session.timeout.ms=6000 group.share.assignment.interval.ms=1000 group.share.assignors=simple
    group.share.delivery.count.limit=5 group.share.heartbeat.interval.ms=5000
    group.share.max.assignment.interval.ms=15000 group.share.max.delivery.count.limit=10
    group.share.max.heartbeat.interval.ms=15000 group.share.max.partition.max.record.locks=4000
    group.share.max.record.lock.duration.ms=60000 group.share.max.session.timeout.ms=60000
    group.share.max.share.sessions=2000 group.share.max.size=200 group.share.min.assignment.interval.ms=0
    group.share.min.delivery.count.limit=2 group.share.min.heartbeat.interval.ms=5000
    group.share.min.partition.max.record.locks=100 group.share.min.record.lock.duration.ms=15000
    group.share.min.session.timeout.ms=45000 group.share.partition.max.record.locks=2000
    group.share.record.lock.duration.ms=30000 group.share.session.timeout.ms=45000
    group.streams.assignment.interval.ms=1000 group.streams.assignors=sticky
    group.streams.heartbeat.interval.ms=5000 group.streams.initial.rebalance.delay.ms=3000
    group.streams.max.assignment.interval.ms=15000 group.streams.max.heartbeat.interval.ms=15000
    group.streams.max.session.timeout.ms=60000 group.streams.max.size=2147483647
    group.streams.max.standby.replicas=2 group.streams.min.assignment.interval.ms=0
    group.streams.min.heartbeat.interval.ms=5000 group.streams.min.session.timeout.ms=45000
    group.streams.num.standby.replicas=0 group.streams.rack.aware.assignment.tags=
    group.streams.session.timeout.ms=45000 initial.broker.registration.timeout.ms=60000
    kafka.metrics.polling.interval.secs=10 kafka.metrics.reporters= leader.imbalance.check.interval.seconds=300
    listener.security.protocol.map=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    listeners=PLAINTEXT://:9092 log.cleaner.backoff.ms=15000 log.cleaner.dedupe.buffer.size=134217728
    log.cleaner.delete.retention.ms=86400000 log.cleaner.enable=true log.cleaner.io.buffer.load.factor=0.9
    log.cleaner.io.buffer.size=524288 log.cleaner.io.max.bytes.per.second=1.7976931348623157E308
    log.cleaner.max.compaction.lag.ms=9223372036854775807 log.cleaner.min.cleanable.ratio=0.5
    log.cleaner.min.compaction.lag.ms=0 log.cleaner.threads=1 log.cleanup.policy=delete log.dir=/tmp/kafka-logs
    log.dir.failure.timeout.ms=30000 log.flush.interval.messages=9223372036854775807
    log.flush.offset.checkpoint.interval.ms=60000 log.flush.scheduler.interval.ms=9223372036854775807
    log.flush.start.offset.checkpoint.interval.ms=60000 log.index.interval.bytes=4096
    log.index.size.max.bytes=10485760 log.local.retention.bytes=-2 log.local.retention.ms=-2
    log.message.timestamp.after.max.ms=3600000 log.message.timestamp.before.max.ms=9223372036854775807
    log.message.timestamp.type=CreateTime log.preallocate=false log.remote.copy.lag.bytes=-1
    log.remote.copy.lag.ms=0 log.retention.bytes=-1 log.retention.check.interval.ms=300000
    log.retention.hours=168 log.roll.hours=168 log.roll.jitter.hours=0 log.segment.bytes=1073741824
    log.segment.delete.delay.ms=60000 max.connection.creation.rate=2147483647 max.connections=2147483647
    max.connections.per.ip=2147483647 max.connections.per.ip.overrides=
    max.decompressed.message.bytes=2147483639 max.incremental.fetch.session.cache.slots=1000
    max.request.partition.size.limit=2000 message.max.bytes=1048588
    metadata.log.max.record.bytes.between.snapshots=20971520 metadata.log.max.snapshot.interval.ms=3600000
    metadata.log.segment.bytes=1073741824 metadata.log.segment.ms=604800000 metadata.max.idle.interval.ms=500
    metadata.max.retention.bytes=104857600 metadata.max.retention.ms=604800000
    metric.reporters=org.apache.kafka.common.metrics.JmxReporter metrics.num.samples=2
    metrics.recording.level=INFO metrics.sample.window.ms=30000 min.insync.replicas=1 num.io.threads=8
    num.network.threads=3 num.partitions=1 num.recovery.threads.per.data.dir=2 num.replica.fetchers=1
    offset.metadata.max.bytes=4096 offsets.commit.timeout.ms=5000 offsets.load.buffer.size=5242880
    offsets.retention.check.interval.ms=600000 offsets.retention.minutes=10080 offsets.topic.compression.codec=0
    offsets.topic.num.partitions=50 offsets.topic.replication.factor=3 offsets.topic.segment.bytes=104857600
    principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    producer.id.expiration.ms=86400000 producer.purgatory.purge.interval.requests=1000
    queued.max.request.bytes=-1 queued.max.requests=500 quota.window.num=11 quota.window.size.seconds=1
    remote.fetch.max.wait.ms=500 remote.list.offsets.request.timeout.ms=30000
    remote.log.index.file.cache.total.size.bytes=1073741824 remote.log.manager.copier.thread.pool.size=10
    remote.log.manager.copy.max.bytes.per.second=9223372036854775807 remote.log.manager.copy.quota.window.num=11
    remote.log.manager.copy.quota.window.size.seconds=1 remote.log.manager.expiration.thread.pool.size=10
    remote.log.manager.fetch.max.bytes.per.second=9223372036854775807
    remote.log.manager.fetch.quota.window.num=11 remote.log.manager.fetch.quota.window.size.seconds=1
    remote.log.manager.follower.thread.pool.size=2 remote.log.manager.task.interval.ms=30000
    remote.log.manager.thread.pool.size=2 remote.log.metadata.custom.metadata.max.bytes=128
    remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    remote.log.metadata.manager.impl.prefix=rlmm.config. remote.log.reader.max.pending.tasks=100
    remote.log.reader.threads=10 remote.log.storage.manager.impl.prefix=rsm.config.
    remote.log.storage.system.enable=false replica.fetch.backoff.ms=1000 replica.fetch.max.bytes=1048576
    replica.fetch.min.bytes=1 replica.fetch.response.max.bytes=10485760 replica.fetch.wait.max.ms=500
    replica.high.watermark.checkpoint.interval.ms=5000 replica.lag.time.max.ms=30000
    replica.socket.receive.buffer.bytes=65536 replica.socket.timeout.ms=30000 replication.quota.window.num=11
    replication.quota.window.size.seconds=1 request.timeout.ms=30000 sasl.enabled.mechanisms=GSSAPI
    sasl.kerberos.kinit.cmd=/usr/bin/kinit sasl.kerberos.min.time.before.relogin=60000
    sasl.kerberos.principal.to.local.rules=DEFAULT sasl.kerberos.ticket.renew.jitter=0.05
    sasl.kerberos.ticket.renew.window.factor=0.8 sasl.login.refresh.buffer.seconds=300
    sasl.login.refresh.min.period.seconds=60 sasl.login.refresh.window.factor=0.8
    sasl.login.refresh.window.jitter=0.05 sasl.login.retry.backoff.max.ms=10000 sasl.login.retry.backoff.ms=100
    sasl.mechanism.controller.protocol=GSSAPI sasl.mechanism.inter.broker.protocol=GSSAPI
    sasl.oauthbearer.allow.unverified.audience=false sasl.oauthbearer.allow.unverified.issuer=false
    sasl.oauthbearer.assertion.algorithm=RS256 sasl.oauthbearer.assertion.claim.exp.seconds=300
    sasl.oauthbearer.assertion.claim.jti.include=false sasl.oauthbearer.assertion.claim.nbf.seconds=60
    sasl.oauthbearer.clock.skew.seconds=30 sasl.oauthbearer.expected.audience=
    sasl.oauthbearer.jwks.endpoint.refresh.ms=3600000 sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=10000
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=100
    sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    sasl.oauthbearer.scope.claim.name=scope sasl.oauthbearer.sub.claim.name=sub
    sasl.server.max.receive.size=524288 security.inter.broker.protocol=PLAINTEXT
    share.coordinator.append.linger.ms=-1 share.coordinator.cached.buffer.max.bytes=1048588
    share.coordinator.load.buffer.size=5242880 share.coordinator.snapshot.update.records.per.snapshot=500
    share.coordinator.state.topic.compression.codec=0 share.coordinator.state.topic.min.isr=2
    share.coordinator.state.topic.num.partitions=50 share.coordinator.state.topic.replication.factor=3
    share.coordinator.state.topic.segment.bytes=104857600 share.coordinator.threads=1
    share.coordinator.write.timeout.ms=5000 share.fetch.purgatory.purge.interval.requests=1000
    socket.connection.setup.timeout.max.ms=30000 socket.connection.setup.timeout.ms=10000
    socket.listen.backlog.size=50 socket.receive.buffer.bytes=102400 socket.request.max.bytes=104857600
    socket.send.buffer.bytes=102400 ssl.allow.dn.changes=false ssl.allow.san.changes=false ssl.cipher.suites=
    ssl.client.auth=none ssl.enabled.protocols=TLSv1.2,TLSv1.3 ssl.endpoint.identification.algorithm=https
    ssl.keymanager.algorithm=SunX509 ssl.keystore.type=JKS ssl.principal.mapping.rules=DEFAULT
    ssl.protocol=TLSv1.3 ssl.trustmanager.algorithm=PKIX ssl.truststore.type=JKS telemetry.max.bytes=1048576
    transaction.abort.timed.out.transaction.cleanup.interval.ms=10000 transaction.max.timeout.ms=900000
    transaction.partition.verification.enable=true
    transaction.remove.expired.transaction.cleanup.interval.ms=3600000
    transaction.state.log.load.buffer.size=5242880 transaction.state.log.min.isr=2
    transaction.state.log.num.partitions=50 transaction.state.log.replication.factor=3
    transaction.state.log.segment.bytes=104857600 transaction.two.phase.commit.enable=false
    transactional.id.expiration.ms=604800000 unclean.leader.election.enable=false
"""
_WITHOUT_DEFAULT = """
    advertised.listeners alter.config.policy.class.name broker.rack client.quota.callback.class
    controller.listener.names create.topic.policy.class.name delegation.token.secret.key early.start.listeners
    group.streams.topology.description.plugin.class inter.broker.listener.name log.dirs log.flush.interval.ms
    log.retention.minutes log.retention.ms log.roll.jitter.ms log.roll.ms metadata.log.dir node.id
    num.replica.alter.log.dirs.threads process.roles remote.log.metadata.manager.class.path
    remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path replica.selector.class sasl.client.callback.handler.class
    sasl.jaas.config sasl.kerberos.service.name sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.server.callback.handler.class security.providers ssl.engine.factory.class ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.provider
    ssl.secure.random.implementation ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
"""
_INTERNAL = """
    controller.performance.always.log.threshold.ms=2000 controller.performance.sample.period.ms=60000
    group.consumer.assignor.offload.enable=true group.consumer.regex.refresh.interval.ms=600000
    group.share.assignor.offload.enable=true
    group.share.dlq.manager.class.name=org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
    group.share.initialize.retry.interval.ms=30000
    group.share.persister.class.name=org.apache.kafka.server.share.persister.DefaultStatePersister
    group.streams.acceptable.recovery.lag=10000 group.streams.assignor.offload.enable=true
    group.streams.max.warmup.replicas=20 group.streams.min.task.offset.interval.ms=15000
    group.streams.num.warmup.replicas=2 group.streams.task.offset.interval.ms=60000
    internal.metadata.delete.delay.millis=60000 internal.metadata.max.batch.size.in.bytes=8388608
    log.initial.task.delay.ms=30000 producer.id.expiration.check.interval.ms=600000
    remote.log.index.file.cache.ttl.ms=900000 remote.log.manager.task.retry.backoff.max.ms=30000
    remote.log.manager.task.retry.backoff.ms=500 server.max.startup.time.ms=9223372036854775807
    share.coordinator.cold.partition.snapshot.interval.ms=300000
    share.coordinator.state.topic.prune.interval.ms=300000 unclean.leader.election.interval.ms=300000
    unstable.api.versions.enable=false unstable.feature.versions.enable=false
"""


def _pairs(text: str) -> dict[str, str]:
    return {name: default for name, _, default in (each.partition("=") for each in text.split())}


# The documented settings; None is null.
DEFAULTS: Final[dict[str, str | None]] = {**_pairs(_DEFAULTS), **dict.fromkeys(_WITHOUT_DEFAULT.split())}
# Those that Kafka does not document, and describes only where a file sets them.
INTERNAL_DEFAULTS: Final[dict[str, str | None]] = {**_pairs(_INTERNAL), "internal.metadata.log.segment.bytes": None}
