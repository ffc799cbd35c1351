"""The brokers that foreign suites run against, each in a process of its own and on a disk."""

import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.support.apache_kafka import Unavailable, apache_kafka, free_ports
from tests.support.broker_core import broker_command
from tests.support.interop_brokers import CoreProcess

SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
# As Kafka's default is.
APACHE_SETTINGS = {"group.consumer.migration.policy": "bidirectional"}
# The conformance tests' JVM is small, and starts fast; suites run for minutes.
JVM = ("-Xmx1g", "-XX:+UseSerialGC")
HOST = "127.0.0.1"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
REQUEST_S = 30


@dataclass(frozen=True)
class Sasl:
    """A listener with SASL: its port, and the passwords of its users for PLAIN and for SCRAM of each size."""

    port: int
    plain: Mapping[str, str]
    scram: Mapping[tuple[str, int], str]


@dataclass(frozen=True)
class Place:
    """What a suite expects of its broker; a port of 0 is a free one, and clients get the port `advertised` if given."""

    settings: Mapping[str, str] = field(default_factory=dict)
    host: str = HOST
    port: int = 0
    advertised: int = 0
    sasl: Sasl | None = None


@contextmanager
def running(kind: str, place: Place | None = None) -> Iterator[str]:
    """Run one broker of a kind until the block ends, and return its address.

    Raises `Unavailable` if a port that the suite expects is in use, or if there is no Apache Kafka.
    """
    place = place or Place()
    for port in filter(None, (place.port, place.sasl and place.sasl.port)):
        _check_free(port)
    port, controller = (place.port, *free_ports(1)) if place.port else free_ports(2)
    with tempfile.TemporaryDirectory(prefix="foreign-") as name:
        folder = Path(name)
        listeners = {"PLAINTEXT": port} | ({"SASL_PLAINTEXT": place.sasl.port} if place.sasl else {})
        settings = SETTINGS | {
            "listeners": ",".join(f"{listener}://{HOST}:{each}" for listener, each in listeners.items()),
            "advertised.listeners": ",".join(
                f"{listener}://{place.host}:{(place.advertised if listener == 'PLAINTEXT' else 0) or each}"
                for listener, each in listeners.items()
            ),
            "listener.security.protocol.map": PROTOCOLS,
            **(_sasl_settings(place.sasl) if place.sasl else {}),
            **place.settings,
        }
        address = f"{place.host}:{port}"
        if kind == "apache":
            (folder / "ports").write_text(f"{port} {controller}", encoding="utf-8")
            settings["listeners"] += f",CONTROLLER://{HOST}:{controller}"
            broker = apache_kafka(APACHE_SETTINGS | settings, folder, jvm=JVM)
        else:
            broker = CoreProcess(folder, settings, port)
        with broker:
            if place.sasl:
                _add_scram_users(address, place.sasl)
            yield address


@contextmanager
def three_brokers(settings: Mapping[str, str]) -> Iterator[str]:
    """Run `broker_core` as three brokers until the block ends, and return their addresses."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as name:
        folder = Path(name)
        config = folder / "broker.properties"
        lines = (f"{key}={value}\n" for key, value in (SETTINGS | settings).items())
        config.write_text("".join(lines), encoding="utf-8")
        arguments = ("--brokers", "3", "--port", "0", "--data-dir", str(folder / "data"), "--config", str(config))
        with broker_command.running(*arguments) as (_, addresses):
            yield addresses


def _check_free(port: int) -> None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        raise Unavailable(f"Port {port} is in use: the suite expects its broker there; end what listens.") from None


def _sasl_settings(sasl: Sasl) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in sasl.plain.items())
    listener = "listener.name.sasl_plaintext"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        f"{listener}.scram-sha-256.sasl.jaas.config": scram,
        f"{listener}.scram-sha-512.sasl.jaas.config": scram,
    }


def _add_scram_users(address: str, sasl: Sasl) -> None:
    mechanisms = {256: ScramMechanism.SCRAM_SHA_256, 512: ScramMechanism.SCRAM_SHA_512}
    changes = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanisms[size], 4096), password.encode())
        for (user, size), password in sasl.scram.items()
    ]
    admin = AdminClient({"bootstrap.servers": address})
    for change in changes:
        for done in admin.alter_user_scram_credentials([change], request_timeout=REQUEST_S).values():
            done.result(REQUEST_S)
