"""The brokers of the interoperability scenarios, of both kinds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self

from broker_core import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.apache_kafka import apache_kafka, free_ports
from tests.support.both_brokers import SETTINGS
from tests.support.broker_processes import BrokerCore
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

# Transactional ids expire soon.
FLEETING = SETTINGS | {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
# Partitions expire producer ids soon.
FORGETFUL = SETTINGS | {"producer.id.expiration.ms": "1500", "producer.id.expiration.check.interval.ms": "100"}
# Transactions that Apache Kafka aborts before its partitions have leaders again hang (KAFKA-20734): wait after a start.
BOUNCED = SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "4000"}
BROKERS_IN_CLUSTER = 3
UPGRADE, SAFE_DOWNGRADE = 1, 2
NEWEST_VERSION = 2


class Running(Protocol):
    """A running broker of either kind."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers."""
        ...


def broker(kind: str, settings: Mapping[str, str]) -> AbstractContextManager[Running]:
    """Return a broker as a context manager."""
    return apache_kafka(settings) if kind == "apache" else EmbeddedBroker(config=settings)


def cluster() -> EmbeddedBroker:
    """Return three brokers whose leaders and coordinators can be moved."""
    return EmbeddedBroker(brokers=BROKERS_IN_CLUSTER, config=SETTINGS)


@contextmanager
def at_version(running: "Broker", version: int) -> Iterator[None]:
    """Set a broker's transaction version for every client that connects in the block."""
    _set_version(running, version)
    try:
        yield
    finally:
        _set_version(running, NEWEST_VERSION)


def _set_version(running: "Broker", version: int) -> None:
    def level() -> int:
        request = m.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        levels = {each.name: each.max_version_level for each in client.send(request, 4).finalized_features}
        return levels.get("transaction.version", 0)

    with RawClient(running.bootstrap_servers) as client:
        before = level()
        if before == version:
            return
        kind = SAFE_DOWNGRADE if version < before else UPGRADE
        change = {"feature": "transaction.version", "max_version_level": version, "upgrade_type": kind}
        request = filled(m.UpdateFeaturesRequest, validate_only=False, feature_updates=[change])
        assert client.send(request, 2).error_code == 0
        wait_until(lambda: level() == version, f"transaction.version {version}")


class CoreProcess(BrokerCore):
    """Run `python -m broker_core` on a folder until the block ends."""

    def __init__(self, folder: Path, settings: Mapping[str, str], port: int) -> None:
        super().__init__(folder, settings, f"127.0.0.1:{port}")
        self.bootstrap_servers = self.address

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            if self._process.poll() is None:
                self.stop()
        finally:
            self.close()


class Killable(Running, Protocol):
    """A broker of either kind in a process of its own."""

    def kill(self) -> None:
        """Kill the process, as in a crash."""


class Bouncing:
    """One broker over one folder and at one address, which can be stopped and restarted."""

    def __init__(self, start: Callable[[], AbstractContextManager[Killable]]) -> None:
        self._start = start
        self._block = ExitStack()
        self._running: Killable | None = None
        self.bootstrap_servers = ""

    def start(self) -> None:
        """Start the broker unless it runs."""
        if self._running is None:
            self._running = self._block.enter_context(self._start())
            self.bootstrap_servers = self._running.bootstrap_servers

    def stop(self, *, hard: bool = False) -> None:
        """Stop the broker with a clean shutdown or as in a crash, unless it is stopped."""
        running, self._running = self._running, None
        if running is not None and hard:
            running.kill()
        self._block.close()


Broker = Running | Bouncing


@contextmanager
def bouncing_broker(kind: str, folder: Path) -> Iterator[Bouncing]:
    """Run a broker that can be stopped and restarted."""
    if kind == "apache":
        bouncing = Bouncing(lambda: apache_kafka(BOUNCED, folder))
    else:
        (port,) = free_ports(1)
        bouncing = Bouncing(lambda: CoreProcess(folder, BOUNCED, port))
    bouncing.start()
    try:
        yield bouncing
    finally:
        bouncing.stop()
