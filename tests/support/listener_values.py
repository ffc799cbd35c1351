"""Values of settings of listeners, SASL and TLS, and what Apache Kafka says of each while it runs.

`tests.conformance.test_listener_settings` asks both brokers.
"""

from broker_core.settings.catalog import TYPES

_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_ENGINES = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
_NOT_OF_TYPE = "Invalid value {value} for configuration {key}: Not a number of type {kind}"
_REPEATED = "Configuration '{key}' values must not be duplicated."
_EMPTY = "Configuration '{key}' values must not be empty."
_MISSING = "Invalid value {value} for configuration {key}: Class {value} could not be found."
_CLIENT_AUTH_CHOICES = "ssl.client.auth: String must be one of: required, requested, none"
_CLIENT_AUTH = f"Invalid value {{value}} for configuration {_CLIENT_AUTH_CHOICES}"
_MAP = "listener.security.protocol.map"
# What each value of a type is answered, None for those that are accepted.
_OF_TYPE: dict[str, dict[str, str | None]] = {
    "LONG": {"58000": None, " 0058 ": None, "0": None, "-1": None, "": _NOT_OF_TYPE, "x": _NOT_OF_TYPE},
    "SHORT": {"5": None, "-1": None, "32767": None, "": _NOT_OF_TYPE, "40000": _NOT_OF_TYPE},
    "DOUBLE": {"0.5": None, "-1": None, "2": None, "NaN": None, "": _NOT_OF_TYPE, "x": _NOT_OF_TYPE},
    "LIST": {"a": None, " a , b ": None, "": None, "a,a": _REPEATED, ",": _REPEATED, "a,": _EMPTY},
    "PASSWORD": {"x": None, "": None},
    "STRING": {"x": None, "": None},
}
_OF_KEY: dict[str, dict[str, str | None]] = {
    "cordoned.log.dirs": {
        "": None,
        "/x": (
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            "Missing entries : /x"
        ),
        "a,a": _REPEATED,
        "a,": _EMPTY,
    },
    "listeners": {
        "": "Configuration '{key}' must not be empty. Valid values include: any non-empty value",
        "a,a": _REPEATED,
        "a,": _EMPTY,
        "x": "Error creating broker listeners from '[x]': Unable to parse x to a broker endpoint",
    },
    _MAP: {
        "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TEXT:SSL,FILE:SSL,LIMITED:SSL,CONTROLLER:PLAINTEXT": None,
        "plaintext:plaintext,SASL:sasl_plaintext,TEXT:SSL,FILE:SSL,LIMITED:SSL,CONTROLLER:PLAINTEXT,NEW:SSL": None,
        "x": f"Error parsing configuration property '{_MAP}': begin 0, end -1, length 1",
        "PLAINTEXT:BOGUS": f"Invalid security protocol `BOGUS` defined in {_MAP}",
    },
    "principal.builder.class": {_PRINCIPALS: None, f" {_PRINCIPALS} ": None, "x.Y": _MISSING, "": _MISSING},
    "ssl.engine.factory.class": {_ENGINES: None, "x.Y": _MISSING},
    "ssl.client.auth": {
        "none": None,
        " required ": None,
        "requested": None,
        "NONE": _CLIENT_AUTH,
        "": _CLIENT_AUTH,
        "x": _CLIENT_AUTH,
    },
}
_OF_SASL = "Configs cannot be updated dynamically for existing listener ListenerName(SASL), restart broker or create a "
_FIXED = f"{_OF_SASL}new listener for update"
_MECHANISMS = {"listener.name.sasl.sasl.enabled.mechanisms": "PLAIN"}
_JAAS = {"listener.name.sasl.plain.sasl.jaas.config": "x"}
_SERVICE = {"sasl.kerberos.service.name": "x"}
# Settings that are sent in one request, and what is said of them.
TOGETHER: list[tuple[dict[str, str | None], str | None]] = [
    ({**_MECHANISMS}, None),
    ({**_JAAS}, None),
    ({**_MECHANISMS, **_SERVICE}, _FIXED),
    ({**_JAAS, **_SERVICE}, _FIXED),
    ({**_MECHANISMS, "max.connections": "1000"}, _FIXED),
    ({**_MECHANISMS, "num.network.threads": "4"}, _FIXED),
    ({**_MECHANISMS, "num.io.threads": "7"}, None),
    ({**_MECHANISMS, "cordoned.log.dirs": ""}, None),
    ({"listener.name.sasl.no.such": "x", **_SERVICE}, _FIXED),
    ({"listener.name.SASL.sasl.enabled.mechanisms": "PLAIN", **_SERVICE}, None),
    ({"listener.name.nosuch.sasl.enabled.mechanisms": "PLAIN", **_SERVICE}, None),
    ({"listener.name.sasl.max.connections": "1000", **_SERVICE}, None),
    ({"listener.name.sasl.num.network.threads": "4", **_SERVICE}, None),
    ({"listener.name.sasl.ssl.keystore.location": "x", **_SERVICE}, None),
    (
        {_MAP: "PLAINTEXT:PLAINTEXT,SASL:PLAINTEXT,TEXT:SSL,FILE:SSL,LIMITED:SSL,CONTROLLER:PLAINTEXT"},
        "Security protocol cannot be updated for existing listener ListenerName(SASL)",
    ),
    (
        {"listener.name.sasl.num.partitions": "x"},
        "Invalid value x for configuration num.partitions: Not a number of type INT",
    ),
    (
        {"listener.name.plaintext.num.partitions": "0"},
        "Invalid value 0 for configuration num.partitions: Value must be at least 1",
    ),
    ({"listener.name.nosuch.num.partitions": "x"}, None),
    (
        {"listener.name.sasl.connections.max.reauth.ms": "x"},
        "Invalid value x for configuration connections.max.reauth.ms: Not a number of type LONG",
    ),
    (
        {"listener.name.sasl.any.connections.max.reauth.ms": "x"},
        "Invalid value x for configuration connections.max.reauth.ms: Not a number of type LONG",
    ),
    ({"listener.name.sasl.not.any.connections.max.reauth.ms": "x"}, None),
    ({"listener.name.sasl.any.ssl.client.auth": "x"}, f"Invalid value x for configuration {_CLIENT_AUTH_CHOICES}"),
    ({"listener.name.sasl.sasl.server.max.receive.size": "0"}, None),
    (
        {"listener.name.sasl.sasl.login.class": "x"},
        "Invalid value x for configuration sasl.login.class: Class x could not be found.",
    ),
    (
        {"listener.name.file.ssl.allow.dn.changes": "x"},
        "Invalid value x for configuration ssl.allow.dn.changes: Expected value to be either true or false",
    ),
    ({"listener.name.file.ssl.protocol": "x", "listener.name.file.ssl.cipher.suites": "x"}, None),
]
_HALF, _DOUBLE = (
    "should be at least half the current value {}",
    "should not be greater than double the current value {}",
)
THREADS: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
    ("background.threads", ("5", "20"), {"4": _HALF.format(10), "21": _DOUBLE.format(10)}),
    ("listener.name.sasl.num.network.threads", ("1", "6"), {"7": _DOUBLE.format(3)}),
    ("num.io.threads", ("4", "16"), {"3": _HALF.format(8), "17": _DOUBLE.format(8)}),
    ("num.network.threads", ("1", "6"), {"7": _DOUBLE.format(3)}),
    ("num.recovery.threads.per.data.dir", ("1", "4"), {"5": _DOUBLE.format(2)}),
    ("num.replica.fetchers", ("1", "2"), {"3": _DOUBLE.format(1)}),
    ("remote.log.reader.threads", ("5", "20"), {"4": _HALF.format(10), "21": _DOUBLE.format(10)}),
]
_TEXT, _FILE, _OTHER = "listener.name.text.ssl.", "listener.name.file.ssl.", "/no/such/file.pem"
_NO_KEY_STORE_PASSWORD = (
    "SSL key store password cannot be specified with PEM format, only key password may be specified"
)
_NO_TRUST_STORE_PASSWORD = "SSL trust store password cannot be specified for PEM format."
# Where a message names the file of the broker's key store, it has {file}.
STORES: list[tuple[dict[str, str | None], str]] = [
    ({f"{_TEXT}keystore.key": "x"}, "Invalid PEM keystore configs"),
    ({f"{_TEXT}keystore.key": ""}, "Invalid PEM keystore configs"),
    ({f"{_TEXT}keystore.certificate.chain": "x"}, "Invalid PEM keystore configs"),
    ({f"{_TEXT}key.password": "x"}, "Invalid PEM keystore configs"),
    ({f"{_TEXT}keystore.location": _OTHER}, "Both SSL key store location and separate private key are specified."),
    ({f"{_TEXT}keystore.password": "x"}, f"{_NO_KEY_STORE_PASSWORD}."),
    (
        {f"{_TEXT}keystore.type": "JKS"},
        "SSL private key can be specified only for PEM, but key store type is JKS.",
    ),
    ({f"{_TEXT}truststore.certificates": "x"}, "No matching CERTIFICATE entries in PEM file"),
    (
        {f"{_TEXT}truststore.location": _OTHER},
        "Both SSL trust store location and separate trust certificates are specified.",
    ),
    ({f"{_TEXT}truststore.password": "x"}, _NO_TRUST_STORE_PASSWORD),
    (
        {f"{_TEXT}truststore.type": "x"},
        "SSL trust store certs can be specified only for PEM, but trust store type is x.",
    ),
    ({f"{_FILE}keystore.location": _OTHER}, f"Failed to load PEM SSL keystore {_OTHER}"),
    ({f"{_FILE}keystore.password": "x"}, _NO_KEY_STORE_PASSWORD),
    (
        {f"{_FILE}keystore.type": "JKS"},
        "SSL key store is specified, but key store password is not specified.",
    ),
    (
        {f"{_FILE}keystore.key": "x"},
        "SSL private key is specified, but certificate chain is not specified.",
    ),
    (
        {f"{_FILE}keystore.certificate.chain": "x"},
        "SSL certificate chain is specified, but private key is not specified",
    ),
    ({f"{_FILE}key.password": "x"}, "Failed to load PEM SSL keystore {file}"),
    (
        {f"{_FILE}truststore.password": "x"},
        "SSL trust store is not specified, but trust store password is specified.",
    ),
    ({f"{_FILE}truststore.location": _OTHER}, f"Failed to load PEM SSL keystore {_OTHER}"),
]
_RELOGIN = "sasl.kerberos.min.time.before.relogin"
_OF_LISTENER = f"listener.name.sasl.{_RELOGIN}"
_OWN_JAAS = "listener.name.nosuch.plain.sasl.jaas.config"
DESCRIBED: dict[str, str | None] = {
    _RELOGIN: "058000",
    "sasl.enabled.mechanisms": " PLAIN , x",
    "sasl.jaas.config": "x",
    "ssl.protocol": "TLSv1.2",
}
AS_DESCRIBED: dict[str, tuple[object, ...]] = {
    _RELOGIN: ("58000", False, False, 5, [(_RELOGIN, "058000", 2), (_RELOGIN, "60000", 5)]),
    "sasl.jaas.config": (None, False, True, 9, [("sasl.jaas.config", None, 2)]),
    "ssl.protocol": ("TLSv1.2", False, False, 2, [("ssl.protocol", "TLSv1.2", 2), ("ssl.protocol", "TLSv1.3", 5)]),
}
# Described after those above.
DESCRIBED_OF_LISTENERS: dict[str, str | None] = {
    _OF_LISTENER: "57000",
    _OWN_JAAS: "x",
    "listener.name.sasl.ssl.keystore.password": "x",
    "listener.name.sasl.ssl.client.auth": "none",
    "listener.name.sasl.no.such": "x",
    "listener.name.nosuch.plain.connections.max.reauth.ms": "x",
    "listener.name.sasl.plain.sasl.jaas.config": "x",
}
_REAUTH, _AUTH = "connections.max.reauth.ms", "ssl.client.auth"
OF_LISTENERS_AS_DESCRIBED: dict[str, tuple[object, ...]] = {
    _OF_LISTENER: ("57000", True, False, 5, [(_OF_LISTENER, "57000", 2), (_RELOGIN, "60000", 5)]),
    _OWN_JAAS: (None, True, True, 9, [(_OWN_JAAS, None, 2)]),
    "listener.name.sasl.ssl.keystore.password": (
        *(None, True, True, 9),
        [("listener.name.sasl.ssl.keystore.password", None, 2)],
    ),
    f"listener.name.sasl.{_AUTH}": (
        *("none", True, False, 2),
        [(f"listener.name.sasl.{_AUTH}", "none", 2), (_AUTH, "none", 5)],
    ),
    "listener.name.sasl.no.such": (None, True, True, 0, [("listener.name.sasl.no.such", None, 2)]),
    f"listener.name.nosuch.plain.{_REAUTH}": (
        *("x", True, False, 5),
        [(f"listener.name.nosuch.plain.{_REAUTH}", "x", 2), (_REAUTH, "0", 5)],
    ),
    "listener.name.sasl.plain.sasl.jaas.config": (
        *(None, True, True, 9),
        [
            ("listener.name.sasl.plain.sasl.jaas.config", None, 2),
            ("listener.name.sasl.plain.sasl.jaas.config", None, 4),
        ],
    ),
}


def values_of(key: str) -> list[tuple[str, str | None]]:
    """Return values of a setting, and the message that each is refused with, None for those that are accepted."""
    kind = TYPES[key]
    return [
        (value, message and message.format(key=key, value=value, kind=kind))
        for value, message in _OF_KEY.get(key, _OF_TYPE.get(kind, {})).items()
    ]


def depends(message: str) -> bool:
    """Return whether a value is refused because of the broker's other settings."""
    return message.startswith(("requirement", "Error", "Invalid security"))
