"""Every known `kafka.*` setting, and how it is used.

Names are the Java client's; librdkafka's names for the same thing are aliases. A setting that is not here is refused: a
misspelled `kafka.secruity.protocol` that is silently ignored takes hours to find.
"""

from collections.abc import Mapping
from typing import Final

# Used by the client, the sink or the source.
USED: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "group.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.kerberos.service.name",
        "sasl.kerberos.domain.name",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.endpoint.identification.algorithm",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "connections.max.idle.ms",
        "send.buffer.bytes",
        "receive.buffer.bytes",
        "buffer.memory",
        "batch.size",
        "max.request.size",
        "compression.type",
        "compression.level",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "transaction.timeout.ms",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "max.partition.fetch.bytes",
        "check.crcs",
        "isolation.level",
    }
)

ALIASES: Final[Mapping[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "socket.timeout.ms": "request.timeout.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "compression.codec": "compression.type",
    "connections.max.idle": "connections.max.idle.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}

# Meaningful to other clients, without a counterpart here: accepted so that a job moves over unchanged.
IGNORED: Final = frozenset(
    {
        "linger.ms",
        "max.poll.records",
        "max.poll.interval.ms",
        "max.block.ms",
        "retries",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "max.in.flight.requests.per.connection",
        "partitioner.ignore.keys",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "allow.auto.create.topics",
        "exclude.internal.topics",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "enable.metrics.push",
        "auto.include.jmx.reporter",
        "security.providers",
        "ssl.secure.random.implementation",
        "ssl.provider",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "log_level",
        "debug",
        "client.rack",
        # PEM stores have no password; that of the key is ssl.key.password.
        "ssl.truststore.password",
        "ssl.keystore.password",
        # librdkafka's own queues, sockets and reports.
        "queue.buffering.max.ms",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "batch.num.messages",
        "message.send.max.retries",
        "max.in.flight",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "topic.metadata.refresh.interval.ms",
        "statistics.interval.ms",
        "delivery.report.only.error",
    }
)

# Only one value works; others would break the guarantee or the columns. The text gives the alternative.
FIXED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "acks": (frozenset({"all", "-1"}), "a transaction needs acks=all"),
    "enable.idempotence": (frozenset({"true"}), "a transaction needs an idempotent producer"),
    "enable.ssl.certificate.verification": (
        frozenset({"true"}),
        "certificates are always verified; set the certificate authority with ssl.truststore.location",
    ),
    "sasl.login.callback.handler.class": (
        frozenset(
            {
                f"org.apache.kafka.common.security.oauthbearer.{room}oauthbearer{kind}logincallbackhandler"
                for room, kind in (("", ""), ("secured.", ""), ("internals.unsecured.", "unsecured"))
            }
        ),
        "Java classes are not supported; tokens come from the file of sasl.oauthbearer.token.endpoint.url",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        frozenset({f"org.apache.kafka.common.security.oauthbearer.{kind}jwtretriever" for kind in ("default", "file")}),
        "Java classes are not supported; tokens come from the file of sasl.oauthbearer.token.endpoint.url",
    ),
    "request.required.acks": (frozenset({"all", "-1"}), "a transaction needs acks=all"),
}

REFUSED: Final[Mapping[str, str]] = {
    "transactional.id": "the sink chooses its transactional ids, which begin with the option transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "the sink runs its own two-phase commit",
    "key.serializer": "keys are written as they are; cast the key column to string or binary",
    "value.serializer": "values are written as they are; cast the value column to string or binary",
    "key.deserializer": "keys are read as binary; decode the key column with DataFrame operations",
    "value.deserializer": "values are read as binary; decode the value column with DataFrame operations",
    "auto.offset.reset": "use the option startingOffsets to choose where to start",
    "enable.auto.commit": "the query's checkpoint stores the offsets, the source commits none",
    "auto.commit.interval.ms": "the query's checkpoint stores the offsets, the source commits none",
    "interceptor.classes": "Java classes are not supported",
    "partitioner.class": "Java classes are not supported; use the partition column to choose partitions",
    "partitioner": "partitions are chosen as by the Java client's default; use the partition column to choose others",
    "group.instance.id": "the source assigns partitions itself and joins no group",
    "group.protocol": "the source assigns partitions itself and joins no group",
    "partition.assignment.strategy": "the source assigns partitions itself and joins no group",
    "sasl.client.callback.handler.class": "Java classes are not supported",
    "sasl.login.class": "Java classes are not supported",
    "sasl.oauthbearer.config": "tokens come from the file of sasl.oauthbearer.token.endpoint.url",
    "ssl.engine.factory.class": "Java classes are not supported",
    "ssl.keymanager.algorithm": "keys come from PEM files",
    "ssl.trustmanager.algorithm": "certificates come from PEM files",
}
