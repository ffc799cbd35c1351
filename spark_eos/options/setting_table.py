"""The verdict on every setting of Kafka's clients: what takes effect here, what has no effect, what is refused and why.

The parsers, the messages for misspelled names and docs/reference/kafka-settings.md all come from this table. It has
every setting of Apache Kafka's producer, consumer and admin client, and those of librdkafka, of libraries and of
platforms that users of Spark bring along.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_eos.options.client_settings import CONNECTION_SETTINGS, SECURITY_SETTINGS, SINK_SETTINGS, SOURCE_SETTINGS
from spark_eos.options.definitions import OptionDefinition
from spark_eos.options.oauth_settings import NOT_OF_KAFKA, OAUTH_ALIASES

# The sides of this package, named as the clients of Apache Kafka that they correspond to.
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin client"
_EVERY: Final = frozenset({PRODUCER, CONSUMER, ADMIN})
_NONE: Final[frozenset[str]] = frozenset()


class Verdict(StrEnum):
    """What becomes of a setting."""

    HONORED = "honored"
    MAPPED = "mapped"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: the verdict, and the reason for it or the meaning of the setting.

    `clients` are the clients of Apache Kafka that have the setting; none, if only others have it. The verdict is that
    of `sides`; on another side the setting has no effect. `target` is the setting that a mapped one is read as. A
    refused setting is accepted with one of the values `allowed`, in lower case.
    """

    name: str
    clients: frozenset[str]
    verdict: Verdict
    text: str
    sides: frozenset[str] = _EVERY
    target: str = ""
    allowed: frozenset[str] = _NONE

    def allows(self, value: str) -> bool:
        """Return whether a refused setting may have this value; a class may be one that a platform has renamed."""
        given = value.strip().lower()
        return any(given == each or ("." in each and given.endswith(f".{each}")) for each in self.allowed)


# Where these differ from those of the others in their group: librdkafka, kafka-python and this package have some too.
_CLIENTS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(NOT_OF_KAFKA, _NONE),
    "compression.level": _NONE,
    "default.api.timeout.ms": frozenset({CONSUMER, ADMIN}),
    "metadata.max.age.ms": _EVERY,
    "sasl.kerberos.domain.name": _NONE,
    "sasl.kerberos.keytab": _NONE,
    "sasl.kerberos.principal": _NONE,
    "sasl.password": _NONE,
    "sasl.username": _NONE,
    "ssl.certificate.location": _NONE,
    "ssl.key.location": _NONE,
}


def _honored(definitions: Iterable[OptionDefinition], sides: Iterable[str]) -> list[Setting]:
    where = frozenset(sides)
    return [
        Setting(each.name, _CLIENTS.get(each.name, where), Verdict.HONORED, each.meaning, where) for each in definitions
    ]


def _no_effect(clients: Iterable[str], reason: str, *names: str) -> list[Setting]:
    return [Setting(name, frozenset(clients), Verdict.NO_EFFECT, reason) for name in names]


def _refused(clients: Iterable[str], name: str, reason: str, allowed: Iterable[str] = ()) -> Setting:
    sides = frozenset(clients or _EVERY)
    return Setting(name, frozenset(clients), Verdict.REFUSED, reason, sides, allowed=frozenset(allowed))


def _mapped(names: Mapping[str, str]) -> list[Setting]:
    return [
        Setting(name, _NONE, Verdict.MAPPED, f"The same as {target}.", target=target) for name, target in names.items()
    ]


_JAVA: Final = "Java classes are not supported"
_KAFKA_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_MSK: Final = "software.amazon.msk.auth.iam."
_TOKENS: Final = (
    "Java classes are not supported; set sasl.oauthbearer.token.endpoint.url, or a Python function with "
    "sasl.oauthbearer.token.provider"
)
_IN_BROKERS: Final = "Brokers validate tokens; clients do not."
_NO_GROUP: Final = "The source assigns partitions itself and joins no group."
_SHARE: Final = "A setting of share consumers."
_JMX: Final = "A setting of the Java client's own metrics."
_PARTITIONER: Final = "The sink writes the rows of a task as they come and does not wait for slow partitions."
_JAVA_TLS: Final = "OpenSSL is used instead of Java's security providers."
_METADATA: Final = "If no broker responds, the client returns to bootstrap.servers."

_PRODUCER_ROWS: Final = (
    *_honored(SINK_SETTINGS, [PRODUCER]),
    _refused([PRODUCER], "acks", "a transaction needs acks=all", ("all", "-1")),
    _refused([PRODUCER], "enable.idempotence", "a transaction needs an idempotent producer", ("true",)),
    _refused(
        [PRODUCER],
        "transactional.id",
        "the sink chooses its transactional ids, which begin with the option transactionalIdPrefix",
    ),
    _refused([PRODUCER], "transaction.two.phase.commit.enable", "the sink runs its own two-phase commit", ("false",)),
    _refused([PRODUCER], "key.serializer", "keys are written as they are; cast the key column to string or binary"),
    _refused(
        [PRODUCER], "value.serializer", "values are written as they are; cast the value column to string or binary"
    ),
    _refused(
        [PRODUCER],
        "partitioner.class",
        f"{_JAVA}; use the partition column to choose partitions",
        ("org.apache.kafka.clients.producer.internals.defaultpartitioner",),
    ),
    _refused(
        [PRODUCER],
        "partitioner.ignore.keys",
        "rows with equal keys go to one partition; use the partition column to choose others",
        ("false",),
    ),
    *_no_effect([PRODUCER], "A record batch is sent when it is full or the task ends.", "linger.ms"),
    *_no_effect([PRODUCER], "Waits end after delivery.timeout.ms or default.api.timeout.ms.", "max.block.ms"),
    *_no_effect([PRODUCER, ADMIN], "Attempts end after delivery.timeout.ms or default.api.timeout.ms.", "retries"),
    *_no_effect(
        [PRODUCER],
        "The sink chooses it; the order of a partition's records is kept.",
        "max.in.flight.requests.per.connection",
    ),
    *_no_effect([PRODUCER], "The sink decides how long it keeps the metadata of a topic.", "metadata.max.idle.ms"),
    *_no_effect(
        [PRODUCER],
        _PARTITIONER,
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.rack.aware",
    ),
    *_no_effect([PRODUCER], "Internal to the Java client.", "buffer.memory.allocation.strategy"),
)

_CONSUMER_ROWS: Final = (
    *_honored(SOURCE_SETTINGS, [CONSUMER]),
    _refused(
        [CONSUMER], "key.deserializer", "keys are read as binary; decode the key column with DataFrame operations"
    ),
    _refused(
        [CONSUMER],
        "value.deserializer",
        "values are read as binary; decode the value column with DataFrame operations",
    ),
    _refused([CONSUMER], "auto.offset.reset", "use the option startingOffsets to choose where to start"),
    _refused(
        [CONSUMER], "enable.auto.commit", "the checkpoint stores the offsets; see the option commitOffsetsToGroup"
    ),
    *_no_effect([CONSUMER], "The checkpoint stores the offsets.", "auto.commit.interval.ms"),
    *_no_effect(
        [CONSUMER],
        _NO_GROUP,
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    ),
    *_no_effect(
        [CONSUMER],
        "Use maxOffsetsPerTrigger to limit a micro-batch, fetch.max.bytes to limit a response.",
        "max.poll.records",
    ),
    *_no_effect([CONSUMER], "The source creates no topics.", "allow.auto.create.topics"),
    *_no_effect([CONSUMER], "The option subscribePattern never matches internal topics.", "exclude.internal.topics"),
    *_no_effect([CONSUMER], "Internal to the Java client.", "internal.throw.on.fetch.stable.offset.unsupported"),
    *_no_effect([CONSUMER], _SHARE, "share.acknowledgement.mode", "share.acquire.mode"),
)

_COMMON_ROWS: Final = (
    *_honored(CONNECTION_SETTINGS, _EVERY),
    *_honored(SECURITY_SETTINGS, _EVERY),
    _refused([PRODUCER, CONSUMER], "interceptor.classes", _JAVA),
    _refused(
        _EVERY,
        "config.providers",
        "variables in settings are not replaced; put the values into the options in your program",
        ("",),
    ),
    _refused(
        _EVERY,
        "sasl.client.callback.handler.class",
        f"{_JAVA}; only the class of Amazon's library is known, and means sasl.mechanism=AWS_MSK_IAM",
        (f"{_MSK}iamclientcallbackhandler",),
    ),
    _refused(
        _EVERY,
        "sasl.login.callback.handler.class",
        _TOKENS,
        (
            *(
                f"{_KAFKA_OAUTH}{package}oauthbearer{kind}logincallbackhandler"
                for package, kind in (("", ""), ("secured.", ""), ("internals.unsecured.", "unsecured"))
            ),
            f"{_MSK}iamoauthbearerlogincallbackhandler",
        ),
    ),
    _refused(_EVERY, "sasl.login.class", _JAVA),
    _refused(
        _EVERY,
        "sasl.oauthbearer.jwt.validator.class",
        f"{_JAVA}; the brokers validate tokens",
        (f"{_KAFKA_OAUTH}{kind}jwtvalidator" for kind in ("default", "client", "broker")),
    ),
    _refused(_EVERY, "ssl.engine.factory.class", _JAVA),
    _refused(
        _EVERY,
        "ssl.protocol",
        "only TLS 1.2 and 1.3 are supported; see ssl.enabled.protocols",
        ("tls", "tlsv1.2", "tlsv1.3"),
    ),
    _refused([ADMIN], "bootstrap.controllers", "the client connects to brokers; set bootstrap.servers"),
    *_no_effect(
        _EVERY,
        _IN_BROKERS,
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
    *_no_effect(
        _EVERY,
        _JMX,
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
    *_no_effect(
        _EVERY,
        "The Kerberos library renews tickets by its own rules.",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    *_no_effect(_EVERY, _METADATA, "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy"),
    *_no_effect(_EVERY, "The client does not send the cluster id when it connects.", "metadata.cluster.check.enable"),
    *_no_effect(_EVERY, "Names are resolved at each connection attempt.", "bootstrap.resolve.timeout.ms"),
    *_no_effect([PRODUCER, CONSUMER], "Records are written to and read from partition leaders only.", "client.rack"),
    *_no_effect(_EVERY, _JAVA_TLS, "security.providers", "ssl.provider", "ssl.secure.random.implementation"),
    *_no_effect(_EVERY, "OpenSSL verifies certificates.", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"),
)

_OTHER_ROWS: Final = (
    *_mapped(
        {
            **OAUTH_ALIASES,
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
    ),
    _refused([], "request.required.acks", "a transaction needs acks=all", ("all", "-1")),
    _refused(
        [],
        "enable.ssl.certificate.verification",
        "certificates are always verified; set the certificate authority with ssl.truststore.location",
        ("true",),
    ),
    _refused(
        [],
        "partitioner",
        "partitions are chosen as by the Java client's default; use the partition column to choose others",
        ("murmur2_random",),
    ),
    _refused([], "sasl.oauthbearer.config", "unsigned tokens are set with sasl.jaas.config"),
    *_no_effect(
        [],
        "A setting of librdkafka's own queues, sockets and reports.",
        "batch.num.messages",
        "debug",
        "delivery.report.only.error",
        "log_level",
        "max.in.flight",
        "message.send.max.retries",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "statistics.interval.ms",
        "topic.metadata.refresh.interval.ms",
    ),
    *_no_effect([], "A setting of older Java clients.", "auto.include.jmx.reporter"),
    *_no_effect(
        [],
        "A setting of serializers; the sink writes and the source reads bytes.",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "schema.registry.basic.auth.user.info",
        "schema.registry.url",
    ),
)

SETTINGS: Final[Mapping[str, Setting]] = {
    each.name: each for each in (*_COMMON_ROWS, *_PRODUCER_ROWS, *_CONSUMER_ROWS, *_OTHER_ROWS)
}


@dataclass(frozen=True, slots=True)
class PlatformOption:
    """An option of a platform's own Kafka connector, by which that platform finds brokers or credentials.

    A query that ignored it would connect elsewhere, or without authentication.
    """

    name: str
    platform: str
    meaning: str
    remedy: str


_DATABRICKS: Final = (
    "Databricks",
    "Databricks' own connector gets credentials from Unity Catalog by this name",
    "Set kafka.security.protocol and kafka.sasl.mechanism, and get the credential in a function of "
    "kafka.sasl.oauthbearer.token.provider; see docs/deploy/managed-kafka.md",
)
_FABRIC: Final = (
    "Microsoft Fabric",
    "Fabric's own connector finds the brokers, the topic and the credentials of an Eventstream by this name",
    "Add a custom endpoint to the Eventstream, and set kafka.bootstrap.servers, the topic and SASL as its Kafka tab "
    "shows them",
)
_GLUE: Final = (
    "AWS Glue",
    "Glue's own connector takes brokers and credentials from a Glue connection of this name",
    "Set kafka.bootstrap.servers and the kafka.security.*, kafka.sasl.* and kafka.ssl.* settings of that connection",
)
_EVENT_HUBS: Final = (
    "Azure",
    'It is an option of format("eventhubs"), which is another protocol',
    "Set kafka.bootstrap.servers=NAMESPACE.servicebus.windows.net:9093, kafka.security.protocol=SASL_SSL, "
    "kafka.sasl.mechanism=PLAIN, and kafka.sasl.jaas.config with the user $ConnectionString",
)

PLATFORM_OPTIONS: Final[Mapping[str, PlatformOption]] = {
    each.name.lower(): each
    for each in (
        PlatformOption("databricks.serviceCredential", *_DATABRICKS),
        PlatformOption("databricks.serviceCredential.scope", *_DATABRICKS),
        PlatformOption("eventstream.itemid", *_FABRIC),
        PlatformOption("eventstream.datasourceid", *_FABRIC),
        PlatformOption("connectionName", *_GLUE),
        PlatformOption("eventhubs.connectionString", *_EVENT_HUBS),
    )
}


def setting_of(name: str) -> Setting | None:
    """Return the row of a setting, in lower case and without the prefix, or None if there is no such setting."""
    if name.startswith("config.providers."):
        name = "config.providers"
    return SETTINGS.get(name)


def nearest_setting(name: str, *, cutoff: float) -> str | None:
    """Return the setting whose name is closest to a misspelled one."""
    near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=cutoff)
    return near[0] if near else None
