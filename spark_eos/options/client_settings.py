"""Every known `kafka.*` setting, and how it is used.

Names are the Java client's; librdkafka's names for the same thing are aliases. A setting that is not here is refused: a
misspelled `kafka.secruity.protocol` that is silently ignored takes hours to find.
"""

from collections.abc import Mapping
from typing import Final

from spark_eos.options.definitions import OptionDefinition
from spark_eos.options.oauth_settings import OAUTH_ALIASES, OAUTH_IGNORED, OAUTH_SETTINGS

_Def: Final = OptionDefinition
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_MSK_CLASSES: Final = "software.amazon.msk.auth.iam."
_STORES: Final = ("PEM", "PKCS12", "JKS")

CONNECTION_SETTINGS: Final = (
    _Def("bootstrap.servers", "Addresses of brokers. Required.", values="`host:port`, several with commas"),
    _Def("client.id", "The client's name in requests, for the brokers' logs and quotas.", default="spark-eos"),
    _Def(
        "client.dns.lookup",
        "How host names are resolved.",
        default="use_all_dns_ips",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    _Def("request.timeout.ms", "How long to wait for one response.", default="30000", unit="ms", minimum=1),
    _Def(
        "default.api.timeout.ms",
        "How long one operation may take, with all its attempts.",
        default="60000",
        unit="ms",
        minimum=1,
    ),
    _Def("retry.backoff.ms", "The first wait before a request is sent again.", default="100", unit="ms", minimum=1),
    _Def("retry.backoff.max.ms", "The longest such wait.", default="1000", unit="ms", minimum=1),
    _Def(
        "reconnect.backoff.ms", "The first wait before another connection attempt.", default="50", unit="ms", minimum=1
    ),
    _Def("reconnect.backoff.max.ms", "The longest such wait.", default="1000", unit="ms", minimum=1),
    _Def(
        "socket.connection.setup.timeout.ms",
        "How long a connection attempt may take at first.",
        default="10000",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "socket.connection.setup.timeout.max.ms",
        "The longest such time, after failed attempts.",
        default="30000",
        unit="ms",
        minimum=1,
    ),
    _Def("connections.max.idle.ms", "When an idle connection is closed.", default="540000", unit="ms", minimum=1),
    _Def("send.buffer.bytes", "The socket's send buffer; -1 for the system's.", default="-1", unit="bytes", minimum=-1),
    _Def(
        "receive.buffer.bytes",
        "The socket's receive buffer; -1 for the system's.",
        default="-1",
        unit="bytes",
        minimum=-1,
    ),
)

SECURITY_SETTINGS: Final = (
    _Def("security.protocol", "The protocol of the brokers' listener.", default="PLAINTEXT", choices=_PROTOCOLS),
    _Def(
        "sasl.mechanism",
        "The SASL mechanism, for `SASL_PLAINTEXT` and `SASL_SSL`.",
        default="GSSAPI",
        choices=_MECHANISMS,
    ),
    _Def(
        "sasl.jaas.config",
        "User name and password in Java's form. For OAUTHBEARER, `clientId`, `clientSecret`, `scope`, `extension_*`, "
        "and `ssl.truststore.*` for the token endpoint; or unsigned tokens of test brokers.",
        values='`...PlainLoginModule required username="u" password="p";`, `ScramLoginModule`, '
        "`OAuthBearerLoginModule`, `Krb5LoginModule` or `IAMLoginModule`",
    ),
    _Def("sasl.username", "The user name, if `sasl.jaas.config` is not given.", values="any text"),
    _Def("sasl.password", "The password, if `sasl.jaas.config` is not given.", values="any text"),
    *OAUTH_SETTINGS,
    _Def("sasl.kerberos.service.name", "The brokers' service name, for GSSAPI.", default="kafka"),
    _Def(
        "sasl.kerberos.domain.name",
        "The host name in the brokers' service, for GSSAPI.",
        default_note="each broker's host name",
        values="a host name",
    ),
    _Def(
        "sasl.kerberos.principal",
        "The client's principal, for GSSAPI.",
        default_note="that of the keytab or the ticket cache",
        values="`name@REALM`",
    ),
    _Def(
        "sasl.kerberos.keytab",
        "The client's keytab, for GSSAPI.",
        default_note="the tickets of `kinit`",
        values="a path",
    ),
    _Def(
        "ssl.truststore.location",
        "A file with the authorities that sign the brokers' certificates.",
        default_note="the system's authorities",
        values="a path",
    ),
    _Def(
        "ssl.truststore.type",
        "The format of that file. The file's content decides, so this is never needed.",
        default_note="from the content",
        choices=_STORES,
    ),
    _Def("ssl.truststore.password", "The password of that file, if it is PKCS12 or JKS.", values="any text"),
    _Def("ssl.truststore.certificates", "The authorities as PEM text.", values="PEM text"),
    _Def(
        "ssl.keystore.location",
        "A file with the client's certificate chain and key.",
        values="a path",
    ),
    _Def(
        "ssl.keystore.type",
        "The format of that file. The file's content decides, so this is never needed.",
        default_note="from the content",
        choices=_STORES,
    ),
    _Def("ssl.keystore.password", "The password of that file, if it is PKCS12 or JKS.", values="any text"),
    _Def("ssl.keystore.certificate.chain", "The client's certificate chain as PEM text.", values="PEM text"),
    _Def("ssl.keystore.key", "The client's key as PEM text.", values="PEM text"),
    _Def(
        "ssl.key.password",
        "The password of an encrypted key.",
        default_note="for a JKS file, `ssl.keystore.password`",
        values="any text",
    ),
    _Def(
        "ssl.certificate.location",
        "A PEM file with the client's certificate chain.",
        default_note="`ssl.keystore.location`",
        values="a path",
    ),
    _Def(
        "ssl.key.location",
        "A PEM file with the client's key.",
        default_note="`ssl.certificate.location`",
        values="a path",
    ),
    _Def(
        "ssl.endpoint.identification.algorithm",
        "`https` checks the brokers' host names against their certificates. Any other value does not.",
        default="https",
    ),
)

SINK_SETTINGS: Final = (
    _Def(
        "delivery.timeout.ms",
        "How long a task tries to send a record batch before it fails.",
        default="120000",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "max.request.size", "How many bytes go into one Produce request.", default="1048576", unit="bytes", minimum=1024
    ),
    _Def("transaction.timeout.ms", "The same as `transactionTimeout`, which takes precedence."),
    _Def("compression.type", "The same as the option `compression.type`."),
    _Def("compression.level", "The same as the option `compression.level`."),
    _Def("compression.gzip.level", "The level, if the codec is gzip.", minimum=1, maximum=9),
    _Def("compression.lz4.level", "The level, if the codec is lz4.", minimum=1, maximum=12),
    _Def("compression.zstd.level", "The level, if the codec is zstd.", minimum=1, maximum=22),
    _Def("batch.size", "The same as the option `batch.size`."),
    _Def("buffer.memory", "The same as the option `buffer.memory`."),
)

SOURCE_SETTINGS: Final = (
    _Def("isolation.level", "The same as the option `isolation.level`."),
    _Def("group.id", "The group that `commitOffsetsToGroup` commits to.", values="any text"),
    _Def(
        "max.partition.fetch.bytes",
        "The most bytes of one partition in one response.",
        default="4194304",
        unit="bytes",
        minimum=1,
    ),
    _Def("fetch.max.bytes", "The most bytes in one response.", default="52428800", unit="bytes", minimum=1),
    _Def("fetch.min.bytes", "The fewest bytes that a broker waits for.", default="1", unit="bytes", minimum=0),
    _Def("fetch.max.wait.ms", "The longest such wait.", default="500", unit="ms", minimum=0),
    _Def(
        "check.crcs", "Whether to verify the checksum of every record batch.", default="true", choices=("true", "false")
    ),
)

# Used by the client, the sink or the source.
USED: Final = frozenset(
    each.name for each in (*CONNECTION_SETTINGS, *SECURITY_SETTINGS, *SINK_SETTINGS, *SOURCE_SETTINGS)
)

ALIASES: Final[Mapping[str, str]] = {
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

# Meaningful to other clients, without a counterpart here: accepted so that a job moves over unchanged.
IGNORED: Final = frozenset(
    {
        *OAUTH_IGNORED,
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
        # The Kerberos library renews tickets by its own rules.
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
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
    "sasl.client.callback.handler.class": (
        frozenset(f"{shaded}{_MSK_CLASSES}iamclientcallbackhandler" for shaded in ("", "shadedmskiam.")),
        "Java classes are not supported, except Amazon's for MSK IAM",
    ),
    "sasl.login.callback.handler.class": (
        frozenset(f"{shaded}{_MSK_CLASSES}iamoauthbearerlogincallbackhandler" for shaded in ("", "shadedmskiam."))
        | frozenset(
            {
                f"org.apache.kafka.common.security.oauthbearer.{package}oauthbearer{kind}logincallbackhandler"
                for package, kind in (("", ""), ("secured.", ""), ("internals.unsecured.", "unsecured"))
            }
        ),
        "Java classes are not supported; a Python function can be named with sasl.oauthbearer.token.provider",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        frozenset(
            {f"org.apache.kafka.common.security.oauthbearer.{kind}jwtvalidator" for kind in ("default", "client")}
        ),
        "Java classes are not supported; the broker checks the token",
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
    "enable.auto.commit": "the checkpoint stores the offsets; see the option commitOffsetsToGroup",
    "auto.commit.interval.ms": "the checkpoint stores the offsets; see the option commitOffsetsToGroup",
    "interceptor.classes": "Java classes are not supported",
    "partitioner.class": "Java classes are not supported; use the partition column to choose partitions",
    "partitioner": "partitions are chosen as by the Java client's default; use the partition column to choose others",
    "group.instance.id": "the source assigns partitions itself and joins no group",
    "group.protocol": "the source assigns partitions itself and joins no group",
    "partition.assignment.strategy": "the source assigns partitions itself and joins no group",
    "sasl.login.class": "Java classes are not supported",
    "sasl.oauthbearer.config": "use sasl.oauthbearer.token.endpoint.url or sasl.oauthbearer.token.provider",
    "ssl.engine.factory.class": "Java classes are not supported",
    "ssl.keymanager.algorithm": "OpenSSL chooses the key",
    "ssl.trustmanager.algorithm": "OpenSSL verifies certificates",
}
