"""Brokers of either kind with several listeners, from the same settings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import apache_kafka, free_ports

AT = "127.0.0.1"


@contextmanager
def listening(
    kind: str, protocols: Mapping[str, str], settings: Mapping[str, str], folder: Path
) -> Iterator[dict[str, str]]:
    """Run a broker of this kind until the block ends, and yield the address of each listener by its name.

    `protocols` are those of the listeners; the first is the one that Apache Kafka itself uses. Raises `Unavailable` if
    Apache Kafka cannot run.
    """
    mapped = [f"{name}:{protocol}" for name, protocol in protocols.items()]
    if kind == "broker_core":
        own = {
            "listeners": ",".join(f"{name}://{AT}:0" for name in protocols),
            "listener.security.protocol.map": ",".join(mapped),
        }
        with EmbeddedBroker(config={**settings, **own}) as embedded:
            yield {name: embedded.bootstrap(name) for name in protocols}
        return
    controller, *ports = free_ports(1 + len(protocols))
    (folder / "ports").write_text(f"{ports[0]} {controller}")
    addresses = {name: f"{AT}:{port}" for name, port in zip(protocols, ports, strict=True)}
    advertised = ",".join(f"{name}://{address}" for name, address in addresses.items())
    own = {
        "listeners": f"{advertised},CONTROLLER://{AT}:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join([*mapped, "CONTROLLER:PLAINTEXT"]),
    }
    # A file of settings has one line for each.
    in_one_line = {key: text.replace("\n", "\\n") for key, text in {**settings, **own}.items()}
    with apache_kafka(in_one_line, folder):
        yield addresses
