"""The `kafka.*` settings that take effect: their meanings, defaults and values.

`setting_table` has a row for these and for every other setting of Kafka's clients.
"""

from typing import Final

from spark_eos.options.definitions import OptionDefinition
from spark_eos.options.oauth_settings import OAUTH_SETTINGS

_Def: Final = OptionDefinition
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
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
    _Def(
        "ssl.enabled.protocols",
        "The TLS versions. Older ones that are named besides these are left out.",
        default="TLSv1.2,TLSv1.3",
        values="`TLSv1.2`, `TLSv1.3`, or both with a comma",
    ),
    _Def(
        "ssl.cipher.suites",
        "The cipher suites of TLS 1.2. TLS 1.3 is used only if one of its suites is named, and then with any of them. "
        "Suites of Java that OpenSSL does not have are left out.",
        default_note="OpenSSL's",
        values="names of Java or of OpenSSL, separated by commas",
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
        "max.request.size",
        "How many bytes go into one Produce request. A record that is larger is refused, before compression.",
        default="1048576",
        unit="bytes",
        minimum=1024,
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
        "metadata.max.age.ms",
        "How long the driver uses metadata of topics. New topics and partitions are found that much later.",
        default_note="`1000`; `5000` with `subscribePattern`",
        unit="ms",
        minimum=0,
    ),
    _Def(
        "check.crcs", "Whether to verify the checksum of every record batch.", default="true", choices=("true", "false")
    ),
)
