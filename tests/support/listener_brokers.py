"""Brokers of either kind with several listeners, from the same settings."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import Unavailable, apache_kafka, free_ports

AT = "127.0.0.1"


@contextmanager
def listening(
    kind: str,
    protocols: Mapping[str, str],
    settings: Mapping[str, str],
    folder: Path,
    hosts: Mapping[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """Run a broker of this kind until the block ends, and yield the address of each listener by its name.

    `protocols` are those of the listeners; the first is the one that Apache Kafka itself uses. `hosts` are those of the
    listeners that are not at 127.0.0.1. Raises `Unavailable` if Apache Kafka cannot run.
    """
    at = dict.fromkeys(protocols, AT) | dict(hosts or {})
    if kind == "broker_core":
        own = {
            "listeners": ",".join(f"{name}://{host}:0" for name, host in at.items()),
            "listener.security.protocol.map": _mapped(protocols),
        }
        with EmbeddedBroker(config={**settings, **own}) as embedded:
            yield {name: embedded.bootstrap(name) for name in protocols}
        return
    addresses, own = apache_listeners(protocols, folder, at)
    # A file of settings has one line for each.
    in_one_line = {key: text.replace("\n", "\\n") for key, text in {**settings, **own}.items()}
    with apache_kafka(in_one_line, folder):
        yield addresses


def apache_listeners(
    protocols: Mapping[str, str], folder: Path, hosts: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose the ports of Apache Kafka in this folder; return the address of each listener, and the settings."""
    controller, *ports = free_ports(1 + len(protocols))
    (folder / "ports").write_text(f"{ports[0]} {controller}", encoding="utf-8")
    addresses = {name: f"{(hosts or {}).get(name, AT)}:{port}" for name, port in zip(protocols, ports, strict=True)}
    advertised = ",".join(f"{name}://{address}" for name, address in addresses.items())
    return addresses, {
        "listeners": f"{advertised},CONTROLLER://{AT}:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": _mapped({**protocols, "CONTROLLER": "PLAINTEXT"}),
    }


def _mapped(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


def check_ipv6() -> None:
    """Raise `Unavailable` where there is no loopback address of IPv6, as in some containers."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        raise Unavailable(f"No server can listen on ::1: {error}.") from None
