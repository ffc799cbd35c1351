"""Reach Apache Kafka over SASL and TLS with the options of Spark's `kafka` sink, and commit a micro-batch there."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from spark_eos.admin.command import ExitCode, main
from spark_eos.client.connection import KafkaClient
from spark_eos.client_options import client_options
from spark_eos.errors import AuthenticationError
from tests.spark_eos.sink_world import World
from tests.support.apache_kafka import Unavailable, apache_kafka

USER, PASSWORD = "ann", 'it is; "s=cret" \\ 1'
JAAS = "org.apache.kafka.common.security.{} required username=\"ann\" password=\"{}\";"
MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule",
           "SCRAM-SHA-512": "scram.ScramLoginModule"}
QUOTED = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')


@dataclass(frozen=True)
class Secured:
    """Hold where one secured node listens."""

    plain_address: str
    sasl_address: str
    tls_address: str
    certificate: Path


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if not request.config.getoption("--apache"):
        pytest.skip("needs Apache Kafka, that is Java and Maven: run with --apache")
    folder = tmp_path_factory.mktemp("secured")
    certificate, key = make_certificate(folder)
    plain, controller, sasl, tls = free_ports(4)
    (folder / "node").mkdir()
    (folder / "node" / "ports").write_text(f"{plain} {controller}")
    at = "127.0.0.1"
    # Two levels of quotes: the properties file's, then the login module's.
    stored = QUOTED.replace("\\", "\\\\")
    settings = {
        "listeners": f"PLAINTEXT://{at}:{plain},CONTROLLER://{at}:{controller},SASL://{at}:{sasl},TLS://{at}:{tls}",
        "advertised.listeners": f"PLAINTEXT://{at}:{plain},SASL://{at}:{sasl},TLS://{at}:{tls}",
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": one_line(certificate),
        "ssl.keystore.key": one_line(key),
    }
    for listener in ("sasl", "tls"):
        for mechanism, module in MODULES.items():
            users = f' user_{USER}="{stored}"' if mechanism == "PLAIN" else ""
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            settings[name] = f"org.apache.kafka.common.security.{module} required{users};"
    try:
        with apache_kafka(settings, folder / "node") as apache:
            make_users(apache.bootstrap_servers)
            yield Secured(apache.bootstrap_servers, f"{at}:{sasl}", f"{at}:{tls}", certificate)
    except Unavailable as problem:
        pytest.skip(str(problem))


def make_certificate(folder: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: there is nothing to make a certificate with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True, capture_output=True, timeout=120,
    )
    return certificate, key


def one_line(pem: Path) -> str:
    return pem.read_text().strip().replace("\n", "\\n")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def make_users(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    # One request changes a user once.
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(60)


def options(address: str, mechanism: str, password: str = QUOTED, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": JAAS.format(MODULES[mechanism], password),
        "kafka.default.api.timeout.ms": "20000",
        **{f"kafka.{name}": value for name, value in more.items()},
    }


@pytest.mark.parametrize("mechanism", MODULES)
def test_a_micro_batch_is_committed_over_sasl(secured: Secured, mechanism: str) -> None:
    with KafkaClient(client_options(options(secured.sasl_address, mechanism))) as client:
        world = World(secured.plain_address, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
        assert world.visible() == ["row of 0"]


@pytest.mark.parametrize("mechanism", MODULES)
def test_a_wrong_password_is_said_at_once(secured: Secured, mechanism: str) -> None:
    with KafkaClient(client_options(options(secured.sasl_address, mechanism, "wrong"))) as client:
        with pytest.raises(AuthenticationError, match="refused the credentials"):
            client.connect(20_000)


@pytest.mark.parametrize("by_file", [True, False])
def test_a_micro_batch_is_committed_over_tls(secured: Secured, by_file: bool) -> None:
    trust = (
        {"ssl.truststore.location": str(secured.certificate), "ssl.truststore.type": "PEM"} if by_file
        else {"ssl.truststore.certificates": secured.certificate.read_text()}
    )
    given = options(secured.tls_address, "SCRAM-SHA-512", **trust, **{"security.protocol": "SASL_SSL"})
    with KafkaClient(client_options(given)) as client:
        world = World(secured.plain_address, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
        assert world.visible() == ["row of 0"]


def test_a_certificate_that_is_not_trusted_is_said(secured: Secured) -> None:
    given = options(secured.tls_address, "PLAIN", **{"security.protocol": "SASL_SSL"})
    with KafkaClient(client_options(given)) as client:
        with pytest.raises(AuthenticationError, match="certificate is not trusted"):
            client.connect(20_000)


def test_the_operators_command_takes_the_java_clients_file(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options(secured.tls_address, "PLAIN", **{
        "security.protocol": "SASL_SSL", "ssl.truststore.location": str(secured.certificate),
    })
    with KafkaClient(client_options(given)) as client:
        world = World(secured.plain_address, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
    config = tmp_path / "client.properties"
    lines = {name.removeprefix("kafka."): value.replace("\\", "\\\\") for name, value in given.items()}
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    words = ["--bootstrap-server", secured.tls_address, "--command-config", str(config)]
    listed = ["decisions", "list", *words, "--decision-topic", world.decisions, "--output", "json"]
    assert main(listed) == ExitCode.DONE
    assert [each["state"] for each in json.loads(capsys.readouterr().out)] == ["committed"]
    assert main(["transactions", "list", *words, "--output", "json"]) == ExitCode.DONE
    states = {each["transactional_id"]: each["state"] for each in json.loads(capsys.readouterr().out)}
    assert [state for name, state in states.items() if world.query in name] == ["CompleteCommit"] * 2
