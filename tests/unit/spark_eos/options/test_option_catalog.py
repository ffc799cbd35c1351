"""Every setting of Kafka's clients has a verdict, and the parsers follow it."""

import contextlib
import json
import logging
from importlib.resources import files

import pytest

from spark_eos.client.transport import manager_config
from spark_eos.errors import OptionError
from spark_eos.options.catalog import (
    ADMIN,
    CONSUMER,
    PLATFORM_OPTIONS,
    PRODUCER,
    SETTINGS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Setting,
    Treatment,
)
from spark_eos.options.client import client_options, kafka_settings
from spark_eos.options.sink import sink_options
from spark_eos.options.source import batch_options, stream_options
from tests.support.kafka_setting_names import committed_names

SERVERS = {"kafka.bootstrap.servers": "a:1, b:2"}
SIDES = (PRODUCER, CONSUMER, ADMIN)
SPARK_REFUSES = {
    CONSUMER: {"key.deserializer", "value.deserializer", "auto.offset.reset", "enable.auto.commit"},
    PRODUCER: {"key.serializer", "value.serializer"},
}


def rows(*verdicts: Treatment) -> list[pytest.ParameterSet]:
    return [pytest.param(row, id=row.name) for row in SETTINGS.values() if row.treatment in verdicts]


def test_each_setting_of_apache_kafka_has_a_row() -> None:
    in_table = {name: {client.split()[0] for client in row.clients} for name, row in SETTINGS.items() if row.clients}
    assert in_table == committed_names()


def test_each_option_has_one_line() -> None:
    folder = files("spark_eos.options")
    for name in ("options.json", "client_settings.json"):
        lines = [line.strip().rstrip(",") for line in (folder / name).read_text("utf-8").splitlines()]
        rows = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        if name == "options.json":
            names = [(side, row["name"]) for row in rows for side in row["of"]]
        else:
            names = [each for row in rows for each in row.get("names", [row.get("name")])]
            names += json.loads((folder / name).read_text("utf-8"))["mapped"]
            assert set(names) == SETTINGS.keys() | {each.name for each in PLATFORM_OPTIONS.values()}
        assert len(names) == len(set(names))


@pytest.mark.parametrize("row", rows(Treatment.REFUSED))
def test_refused_setting_is_refused_with_its_reason(row: Setting) -> None:
    for side in row.sides:
        with pytest.raises(OptionError) as caught:
            kafka_settings({**SERVERS, f"kafka.{row.name}": "x"}, side=side)
        assert row.text[1:] in str(caught.value)
        for value in row.allowed:
            kafka_settings({**SERVERS, f"kafka.{row.name}": value.upper()}, side=side)


@pytest.mark.parametrize(
    ("side", "name"), [(side, name) for side, names in SPARK_REFUSES.items() for name in sorted(names)]
)
def test_settings_that_spark_refuses_are_refused_in_its_words(side: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"Kafka option '{name}' is not supported"):
        kafka_settings({**SERVERS, f"kafka.{name}": "x"}, side=side)


@pytest.mark.parametrize("row", rows(Treatment.NO_EFFECT))
def test_setting_without_effect_is_accepted_with_a_debug_line(row: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark_eos.options")
    for side in SIDES:
        caplog.clear()
        assert row.name not in kafka_settings({**SERVERS, f"kafka.{row.name}": "secret"}, side=side)
        assert [record.levelname for record in caplog.records] == ["DEBUG"]
        assert f"'kafka.{row.name}' has no effect" in caplog.text
        assert "secret" not in caplog.text


@pytest.mark.parametrize("row", rows(Treatment.MAPPED))
def test_mapped_setting_is_read_as_its_target(row: Setting) -> None:
    target = SETTINGS[row.target]
    assert target.treatment is Treatment.HONORED
    for side in target.sides:
        assert kafka_settings({**SERVERS, f"kafka.{row.name}": "a:1, b:2"}, side=side)[row.target] == "a:1, b:2"


@pytest.mark.parametrize("row", rows(Treatment.HONORED))
def test_honored_setting_is_kept_on_its_sides_only(row: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark_eos.options")
    for side in SIDES:
        kept = row.name in kafka_settings({**SERVERS, f"kafka.{row.name}": "a:1, b:2"}, side=side)
        assert kept == (side in row.sides)
    assert len(caplog.records) == len(SIDES) - len(row.sides)


SECURED = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
LOGIN = {"kafka.sasl.username": "u", "kafka.sasl.password": "p"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
# Values other than the defaults, and what a setting needs in order to have an effect.
BY_TOKEN = {**SECURED, "kafka.sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {
    **BY_TOKEN,
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "kafka.sasl.oauthbearer.client.credentials.client.id": "job",
    "kafka.sasl.oauthbearer.client.credentials.client.secret": "secret",
}
SIGNING = {**ENDPOINT, "kafka.sasl.oauthbearer.assertion.private.key.file": "/key.pem"}
CREDENTIALS = "sasl.oauthbearer.client.credentials.client"
OAUTH_EXAMPLES = {
    "sasl.oauthbearer.token.provider": ("a:b", {**BY_TOKEN, "kafka.sasl.oauthbearer.token.provider": "c:d"}),
    f"{CREDENTIALS}.id": ("other", ENDPOINT),
    f"{CREDENTIALS}.secret": ("other", ENDPOINT),
    "sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        SIGNING,
    ),
    **{
        f"sasl.oauthbearer.{name}": (value, ENDPOINT)
        for name, value in (("scope", "all"), ("extensions", "a=b"), ("header.urlencode", "true"))
    },
    **{
        f"sasl.oauthbearer.{name}": (value, SIGNING)
        for name, value in (
            ("grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion.file", "/assertion"),
            ("assertion.private.key.file", "/other.pem"),
            ("assertion.private.key.pem", "PEM"),
            ("assertion.private.key.passphrase", "open"),
            ("assertion.algorithm", "ES256"),
            ("assertion.claim.aud", "a"),
            ("assertion.claim.iss", "i"),
            ("assertion.claim.sub", "s"),
            ("assertion.claim.exp.seconds", "7"),
            ("assertion.claim.nbf.seconds", "7"),
            ("assertion.claim.jti.include", "true"),
            ("assertion.template.file", "/template.json"),
        )
    },
    "https.ca.location": ("/ca.pem", ENDPOINT),
    "https.ca.pem": ("PEM", ENDPOINT),
    **{f"sasl.login.{name}.ms": ("7", ENDPOINT) for name in ("connect.timeout", "read.timeout")},
    **{f"sasl.login.retry.backoff.{name}": ("7", ENDPOINT) for name in ("ms", "max.ms")},
    "sasl.login.refresh.window.factor": ("0.6", ENDPOINT),
    "sasl.login.refresh.window.jitter": ("0.1", ENDPOINT),
    "sasl.login.refresh.min.period.seconds": ("7", ENDPOINT),
    "sasl.login.refresh.buffer.seconds": ("7", ENDPOINT),
}
EXAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    **OAUTH_EXAMPLES,
    "bootstrap.servers": ("c:3", {}),
    "client.dns.lookup": ("resolve_canonical_bootstrap_servers_only", {}),
    "security.protocol": ("SSL", {}),
    "sasl.mechanism": ("SCRAM-SHA-512", {"kafka.security.protocol": "SASL_SSL", **LOGIN}),
    "sasl.jaas.config": (f'{PLAIN} username="v" password="q";', {**SECURED, **LOGIN}),
    "sasl.username": ("v", {**SECURED, **LOGIN}),
    "sasl.password": ("q", {**SECURED, **LOGIN}),
    "ssl.endpoint.identification.algorithm": ("", {}),
    "ssl.enabled.protocols": ("TLSv1.3", {}),
    "ssl.cipher.suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", {}),
    "ssl.truststore.location": ("/ca.pem", {}),
    "ssl.keystore.location": ("/both.pem", {}),
    "sasl.oauthbearer.token.endpoint.url": (
        "file:///other",
        {
            **SECURED,
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": "file:///token",
        },
    ),
    "compression.type": ("gzip", {}),
    "compression.level": ("2", {"kafka.compression.type": "gzip"}),
    "compression.gzip.level": ("2", {"kafka.compression.type": "gzip"}),
    "compression.lz4.level": ("2", {"kafka.compression.type": "lz4"}),
    "compression.zstd.level": ("2", {"kafka.compression.type": "zstd"}),
    "isolation.level": ("read_uncommitted", {}),
    "group.id": ("g", {"commitOffsetsToGroup": "true", "kafka.group.id": "f"}),
    "check.crcs": ("false", {}),
}
# The formats of stores follow from their files.
WITHOUT_EXAMPLE = {"sasl.oauthbearer.method", "ssl.truststore.type", "ssl.keystore.type"}


@pytest.mark.parametrize("row", rows(Treatment.HONORED))
def test_honored_setting_changes_the_parsed_options(row: Setting) -> None:
    if row.name in WITHOUT_EXAMPLE:
        return
    value, needed = EXAMPLES.get(row.name, ("123456", {}))
    for side, own in ((PRODUCER, {"topic": "t"}), (CONSUMER, {"subscribe": "t"})):
        if side in row.sides:
            parse = sink_options if side == PRODUCER else stream_options
            base = {**SERVERS, **own, **needed}
            assert parse({**base, f"kafka.{row.name}": value}) != parse(base), side


def test_parsed_options_reach_the_connection() -> None:
    given = {
        "client.id": "me",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
        "request.timeout.ms": "11",
        "reconnect.backoff.ms": "12",
        "reconnect.backoff.max.ms": "13",
        "socket.connection.setup.timeout.ms": "14",
        "socket.connection.setup.timeout.max.ms": "15",
        "connections.max.idle.ms": "16",
        "send.buffer.bytes": "17",
        "receive.buffer.bytes": "18",
    }
    options = client_options({**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}})
    config = manager_config(options, None, None)
    for name, value in given.items():
        if not name.endswith("buffer.bytes"):
            assert str(config[name.replace(".", "_")]) == value
    assert {17, 18} <= {option[2] for option in config["socket_options"]}


# Ends of the ranges that Java's client has, and what they are read as.
JAVAS = {
    "batch.size": ("0", "batch_bytes", 0),
    "compression.gzip.level": ("-1", "compression_level", None),
    "compression.lz4.level": ("17", "compression_level", 17),
    "compression.zstd.level": ("-131072", "compression_level", -131_072),
    "retry.backoff.ms": ("0", "retry_backoff_ms", 0),
    "retry.backoff.max.ms": ("0", "retry_backoff_max_ms", 0),
    "reconnect.backoff.ms": ("0", "reconnect_backoff_ms", 0),
    "reconnect.backoff.max.ms": ("0", "reconnect_backoff_max_ms", 0),
    "connections.max.idle.ms": ("-1", "connections_max_idle_ms", -1),
}


@pytest.mark.parametrize("name", JAVAS)
def test_end_of_javas_range_is_taken(name: str) -> None:
    text, field, value = JAVAS[name]
    codec = {"kafka.compression.type": name.split(".")[1]} if name.startswith("compression") else {}
    options = sink_options({**SERVERS, "topic": "t", **codec, f"kafka.{name}": text})
    assert getattr(options if hasattr(options, field) else options.client, field) == value


def test_no_pause_and_no_end_of_idle_connections_reach_the_connection() -> None:
    names = ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms")
    for text in ("0", "-1"):
        idle = {"kafka.connections.max.idle.ms": text}
        config = manager_config(
            client_options({**SERVERS, **{f"kafka.{name}": "0" for name in names}, **idle}), None, None
        )
        # Attempts without any pause would only occupy a processor.
        assert (config["reconnect_backoff_ms"], config["reconnect_backoff_max_ms"]) == (1, 1)
        assert config["connections_max_idle_ms"] > 10**12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.login.callback.handler.class", "kafkashaded.org.apache.kafka.common.security.oauthbearer.secured."
         "OAuthBearerLoginCallbackHandler"),
        ("sasl.client.callback.handler.class", "shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler"),
    ],
)  # fmt: skip
def test_class_renamed_by_a_platform_is_known(name: str, value: str) -> None:
    assert kafka_settings({**SERVERS, f"kafka.{name}": value})[name] == value


def test_class_that_only_resembles_a_known_one_is_refused() -> None:
    value = "evil.notsoftware.amazon.msk.auth.iam.IAMClientCallbackHandler"
    with pytest.raises(OptionError, match="Java classes are not supported"):
        kafka_settings({**SERVERS, "kafka.sasl.client.callback.handler.class": value})


def test_parameters_of_config_providers_are_refused() -> None:
    with pytest.raises(OptionError, match="variables in settings are not replaced"):
        kafka_settings({**SERVERS, "kafka.config.providers.env.param.allowlist.pattern": "x"})


def test_one_set_of_options_serves_reader_writer_and_command() -> None:
    shared = {
        **SERVERS, "kafka.acks": "1", "kafka.linger.ms": "5", "kafka.max.poll.records": "10", "kafka.retries": "3",
    }  # fmt: skip
    assert client_options(shared, side=CONSUMER) == client_options(shared, side=ADMIN)
    with pytest.raises(OptionError, match="acks"):
        client_options(shared, side=PRODUCER)


@pytest.mark.parametrize("name", [each.name for each in PLATFORM_OPTIONS.values()])
@pytest.mark.parametrize("parse", [sink_options, stream_options, batch_options])
def test_option_of_a_platform_is_refused_with_what_to_do(parse: object, name: str) -> None:
    assert callable(parse)
    with pytest.raises(OptionError) as caught:
        parse({name: "hidden-name"})
    assert PLATFORM_OPTIONS[name.lower()].remedy in str(caught.value)
    assert "hidden-name" not in str(caught.value)


def test_unused_credentials_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    client_options({**SERVERS, "kafka.sasl.username": "u", "kafka.sasl.password": "hidden"})
    assert "kafka.sasl.username has no effect, because kafka.security.protocol is PLAINTEXT" in caplog.text
    assert "hidden" not in caplog.text


NINES = "9" * 5_000
ODD_TEXTS = (
    "\ud800",
    "\x00",
    "h:²",
    NINES,
    f"h:{NINES}",
    f"{NINES}ms",
    f"0.{NINES}",
    "inf",
    "http://[::1/x",
    "http://h:99999/x",
    f'{{"t":{{"{NINES}":1}}}}',
    f'{{"t":{{"0":{NINES}}}}}',
    '{"t":{"4294967296":1}}',
    '{"t":[4294967296]}',
    "(" * 500,
)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=[ascii(text)[1:15] for text in ODD_TEXTS])
def test_odd_text_is_taken_as_it_is_or_refused(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """No error of Python itself: it does not say which option is meant."""
    # pytest cannot send half a surrogate pair from one process to another.
    caplog.set_level(logging.CRITICAL, "spark_eos")
    for parse, own in ((sink_options, SINK_OPTIONS), (stream_options, SOURCE_OPTIONS), (batch_options, SOURCE_OPTIONS)):
        for name in (*(each.name for each in own), *(f"kafka.{each}" for each in SETTINGS)):
            topics = {} if parse is sink_options or name in ("assign", "subscribePattern") else {"subscribe": "t"}
            with contextlib.suppress(OptionError):
                parse({**SERVERS, **topics, name: text})


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp", "assign"])
def test_partition_beyond_an_integer_of_java_is_refused(name: str) -> None:
    numbers = "[2147483648]" if name == "assign" else '{"2147483648":1}'
    others = {**SERVERS, **({} if name == "assign" else {"subscribe": "t"})}
    with pytest.raises(OptionError, match=f"Expected e.g. .*Correct option '{name}'"):
        stream_options({**others, name: f'{{"t":{numbers}}}'})


@pytest.mark.parametrize(
    "address", ["SASL_SSL://user:secret@h:9092", "user:secret@h", "user:secret@h:", "u:secret@h:x"]
)
def test_password_in_an_address_is_not_shown(address: str) -> None:
    with pytest.raises(OptionError, match="contains '[^']*h") as refused:
        client_options({"kafka.bootstrap.servers": address})
    assert "secret" not in str(refused.value)
