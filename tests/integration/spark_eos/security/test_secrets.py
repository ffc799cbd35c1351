"""Searches for secrets where they must not be: logs, messages, decisions, files, errors, metrics, output."""

import base64
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from spark_eos.admin.command import main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError
from spark_eos.metrics import SINK_METRICS
from spark_eos.options.client import client_options
from spark_eos.options.sink import sink_options
from spark_eos.options.source import stream_options
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
from tests.support.oidc_provider import CLIENT_SECRET, Provider
from tests.support.secured import Secured
from tests.support.spark_eos.secret_search import MISPLACED, Search
from tests.support.spark_eos.secured_brokers import kafka, own
from tests.support.spark_eos.security_clients import PASSWORD, WAYS, Credentials, jaas
from tests.support.spark_eos.sink_world import World
from tests.support.spark_eos.token_clients import (
    KEY_PEM,
    TOKEN_WAYS,
    by_assertion,
    by_endpoint,
    by_function,
    provider,
    running,
)
from tests.support.waiting import wait_until

__all__ = ["kafka", "own", "provider", "running"]


@pytest.fixture
def search(own: Credentials, running: Provider) -> Search:
    return Search(own, CLIENT_SECRET, running.signer.pem().splitlines()[3])


@pytest.fixture
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    loggers = [
        logging.getLogger(name)
        for name in ("spark_eos", "spark_eos.sink", "spark_eos.source", "spark_eos.source.lag", "kafka")
    ]
    before = [logger.level for logger in loggers]
    caplog.set_level(logging.DEBUG)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield caplog
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_secret_search_finds_planted_secrets(search: Search) -> None:
    encoded = base64.b64encode(f"\0alice\0{PASSWORD}".encode())
    for shown in (f"password is {PASSWORD}", encoded, f"{MISPLACED}!".encode()):
        with pytest.raises(AssertionError):
            search.look("here", shown)


@pytest.mark.parametrize("way", [*WAYS, *TOKEN_WAYS])
def test_sink_source_and_command_do_not_leak_secrets(
    own: Credentials,
    provider: Provider,
    search: Search,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    debug_log: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(own.folder)
    given = WAYS[way](own) if way in WAYS else TOKEN_WAYS[way](own, provider)
    with KafkaClient(client_options(given)) as client:
        world = World(own.kafka.bootstrap_servers, client)
        options = sink_options({**given, "topic": world.topic, "decisionTopic": world.decisions})
        settled = check_cluster(client, options)
        prepared = world.prepare("run1")
        world.committer("run1").commit([prepared], 0)
    reading = {**given, "subscribe": world.topic, "startingOffsets": "earliest", "logLag": "true"}
    reader = StreamReader(reading, source_schema(False))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    pieces = reader.partitions(begin, end)
    rows = [rows.num_rows for piece in pieces for rows in reader.read(piece)]
    reader.stop()
    assert rows == [1]
    for each in (options, settled, settled.client, stream_options(reading), reader, client, prepared):
        search.look("repr", f"{each!r} {each}")
    search.look("a commit message", pickle.dumps(prepared))
    search.look("a planned range", pickle.dumps(pieces))
    search.look("offsets", f"{begin} {end}")
    search.look("the decision topic", stored(own.kafka, world.decisions))
    search.look("the metrics", repr(vars(SINK_METRICS)))
    config = tmp_path / "client.properties"
    config.write_text(properties(given))
    reach = ["--bootstrap-server", given["kafka.bootstrap.servers"], "--command-config", str(config)]
    for words in (
        ["decisions", "list", *reach, "--decision-topic", world.decisions],
        ["transactions", "list", *reach],
        ["transactions", "describe", *reach, "--transactional-id", "unknown"],
        ["transactions", "describe-producers", *reach, "--topic", world.topic, "--partition", "0"],
        ["timeline", world.topic, *reach, "--out", str(tmp_path / "timeline.html")],
    ):
        main(words)
    printed = capsys.readouterr()
    search.look("what the command prints", printed.out + printed.err)
    search.look("the timeline", (tmp_path / "timeline.html").read_bytes())
    search.look("the logs", debug_log.text)
    assert "kafka.net.connection" in debug_log.text, "requests were not logged, so the search was empty"
    assert search.places >= 12


def properties(given: Mapping[str, str]) -> str:
    """Write options as a properties file of the Java client."""
    values = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in given.items()}
    return "".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in values.items())


def stored(kafka: Secured, topic: str) -> bytes:
    """Read the keys, values and headers of all records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "search",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    [message] = wait_until(
        lambda: [each for each in [consumer.poll(1)] if each is not None and not each.error()],
        "a decision",
        deadline_s=60,
    )
    consumer.close()
    return bytes(message.key()) + bytes(message.value()) + repr(message.headers()).encode()


def by_aws_keys(own: Credentials, option: str) -> dict[str, str]:
    """Ask for MSK IAM, which no broker here offers."""
    words = f'awsRoleArn="arn:aws:iam::1:role/r" awsRoleAccessKeyId="k" {option}="{MISPLACED}"'
    jaas_line = f"software.amazon.msk.auth.iam.IAMLoginModule required {words};"
    return own.options("SECURE", "SASL_SSL", {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": jaas_line})


WRONG: Mapping[str, Callable[[Credentials], dict[str, str]]] = {
    "wrong password": lambda own: own.by_password("SCRAM-SHA-512", MISPLACED),
    "wrong password, plain": lambda own: own.by_password("PLAIN", MISPLACED, protocol="SASL_PLAINTEXT"),
    "no such mechanism": lambda own: {**own.by_password("PLAIN"), "kafka.sasl.mechanism": "DIGEST"},
    "module of another mechanism": lambda own: {**own.by_password("PLAIN"), "kafka.sasl.mechanism": "OAUTHBEARER"},
    "no module": lambda own: (
        own.by_password("PLAIN") | {"kafka.sasl.jaas.config": f'password="{MISPLACED}" username="alice";'}
    ),
    "a password for a module": lambda own: own.by_password("PLAIN") | {"kafka.sasl.jaas.config": MISPLACED},
    "no user": lambda own: (
        own.by_password("PLAIN") | {"kafka.sasl.jaas.config": jaas("PLAIN", f'password="{MISPLACED}"')}
    ),
    "misspelt option": lambda own: own.by_password("PLAIN") | {"kafka.sasl.passwrod": MISPLACED},
    "two passwords": lambda own: (
        own.by_password("PLAIN") | {"kafka.ssl.key.pem": MISPLACED, "kafka.ssl.keystore.key": "other"}
    ),
    "unreachable": lambda own: (
        own.by_password("PLAIN", MISPLACED)
        | {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    ),
    "key of another password": lambda own: own.by_certificate_file() | {"kafka.ssl.key.password": MISPLACED},
    "a key for a file name": lambda own: own.by_certificate_file() | {"kafka.ssl.keystore.location": own.key},
    "a key for another file name": lambda own: own.by_certificate_file() | {"kafka.ssl.key.location": own.key},
    "a key for the authority": lambda own: own.by_certificate_text() | {"kafka.ssl.truststore.certificates": own.key},
    "a key that is none": lambda own: own.by_certificate_text() | {"kafka.ssl.keystore.key": MISPLACED},
    "password of another store": lambda own: own.by_key_store(MISPLACED),
    "password of another trust store": lambda own: (
        own.by_key_store()
        | {"kafka.ssl.truststore.location": own.store_path, "kafka.ssl.truststore.password": MISPLACED}
    ),
    "no such delegation token": lambda own: (
        own.by_password("SCRAM-SHA-256")
        | {"kafka.sasl.jaas.config": jaas("SCRAM-SHA-256", f'username="x" password="{MISPLACED}" tokenauth="true"')}
    ),
    "keys of AWS for another cluster": lambda own: by_aws_keys(own, "awsRoleSecretAccessKey"),
    "misspelt keys of AWS": lambda own: by_aws_keys(own, "awsRoleSecretAcessKey"),
    "url with a password": lambda own: own.by_token_file(f"https://client:{MISPLACED}@issuer/token"),
    "a token for a url": lambda own: own.by_token_file(own.token),
    "no token in the file": lambda own: own.by_token_file(Path(own.both_path).as_uri()),
}


WRONG_TOKENS: Mapping[str, Callable[[Credentials, Provider], dict[str, str]]] = {
    "wrong client secret": lambda own, provider: by_endpoint(
        own, provider, **{"sasl.oauthbearer.client.secret": MISPLACED}
    ),
    "a secret in the extensions": lambda own, provider: by_endpoint(
        own, provider, **{"sasl.oauthbearer.extensions": f"logicalCluster={MISPLACED}\x7f"}
    ),
    "a secret for a function": lambda own, provider: (
        by_function(own, provider) | {"kafka.sasl.oauthbearer.token.provider": MISPLACED}
    ),
    "a function that raises": lambda own, provider: by_function(
        own, provider, f"def get():\n    raise ValueError({MISPLACED!r})\n"
    ),
    "a function that returns something else": lambda own, provider: by_function(
        own, provider, f"def get():\n    return {{'token': {MISPLACED!r}}}\n"
    ),
    "a module that raises": lambda own, provider: by_function(own, provider, f"raise ValueError({MISPLACED!r})\n"),
    "a token that the broker refuses": lambda own, provider: by_function(
        own, provider, f"def get():\n    return {MISPLACED!r}, None\n"
    ),
    "a key that signs nothing": lambda own, provider: by_assertion(own, provider) | {KEY_PEM: MISPLACED},
    "a key for a file that signs": lambda own, provider: (
        by_assertion(own, provider) | {KEY_PEM: "", f"{KEY_PEM.removesuffix('.pem')}.file": own.key}
    ),
    "wrong passphrase": lambda own, provider: (
        by_assertion(own, provider) | {"kafka.sasl.oauthbearer.assertion.private.key.passphrase": MISPLACED}
    ),
}


@pytest.mark.parametrize("wrong", [*WRONG, *WRONG_TOKENS])
def test_errors_do_not_leak_secrets(
    own: Credentials,
    provider: Provider,
    search: Search,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    debug_log: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(own.folder)
    given = WRONG[wrong](own) if wrong in WRONG else WRONG_TOKENS[wrong](own, provider)
    with pytest.raises(EosKafkaError) as raised, KafkaClient(client_options(given)) as client:
        check_cluster(client, sink_options({**given, "topic": "t"}))
    for error in (raised.value, raised.value.__cause__, raised.value.__context__):
        search.look("an error", f"{error!r} {error}")
    search.look("a traceback", "".join(traceback.format_exception(raised.value)))
    search.look("a pickled error", pickle.dumps(raised.value))
    config = tmp_path / "client.properties"
    config.write_text(properties(given))
    words = ["--bootstrap-server", given["kafka.bootstrap.servers"], "--command-config", str(config)]
    assert main(["transactions", "list", *words]) != 0
    printed = capsys.readouterr()
    search.look("what the command prints", printed.out + printed.err)
    assert printed.err
    search.look("the logs", debug_log.text)
