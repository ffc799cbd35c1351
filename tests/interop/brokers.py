"""Run the brokers that the scenarios ask for, of both makes."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from broker_core.embedded import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.apache_kafka import apache_kafka
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

BROKERS = ("broker_core", "apache")
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # A group's session must be short enough for a member that comes back after its broker was away.
    "group.min.session.timeout.ms": "1000",
}
# Transactional ids are forgotten soon.
FLEETING = SETTINGS | {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
SAFE_DOWNGRADE = 2


class Running(Protocol):
    """Stand for either broker while it runs."""

    @property
    def bootstrap_servers(self) -> str:
        """Return where clients connect."""
        ...


def broker(kind: str, settings: Mapping[str, str] = SETTINGS) -> AbstractContextManager[Running]:
    """Return a broker to be used as a block."""
    return apache_kafka(settings) if kind == "apache" else EmbeddedBroker(config=settings)


@contextmanager
def broker_of_version_1(kind: str) -> Iterator[Running]:
    """Run a broker whose transactions are of the old protocol, for every client."""
    with broker(kind) as running, RawClient(running.bootstrap_servers) as client:
        form = m.UpdateFeaturesRequest.FeatureUpdateKey
        assert client.send(m.UpdateFeaturesRequest(validate_only=False, feature_updates=[
            form(feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE)]), 2).error_code == 0

        def level() -> int:
            answer = client.send(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
            return next((feature.max_version_level for feature in answer.finalized_features
                         if feature.name == "transaction.version"), 0)

        wait_until(lambda: level() == 1, "transaction.version 1")
        yield running


class Bouncing:
    """Be one broker over one folder and at one address, that can be taken away and brought back."""

    def __init__(self, start: Callable[[], AbstractContextManager[Running]]) -> None:
        self._start = start
        self._block: AbstractContextManager[Running] | None = None
        self.bootstrap_servers = ""

    def start(self) -> None:
        """Bring it back; does nothing when it runs."""
        if self._block is None:
            self._block = self._start()
            self.bootstrap_servers = self._block.__enter__().bootstrap_servers

    def stop(self) -> None:
        """Stop it cleanly; does nothing when it is stopped."""
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)


@contextmanager
def bouncing_broker(kind: str, folder: Path) -> Iterator[Bouncing]:
    """Run a broker that can be bounced."""
    if kind == "apache":
        bouncing = Bouncing(lambda: apache_kafka(SETTINGS, folder))
    else:
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            port = reserved.getsockname()[1]
        bouncing = Bouncing(lambda: EmbeddedBroker(config=SETTINGS, data_dir=folder, port=port))
    bouncing.start()
    try:
        yield bouncing
    finally:
        bouncing.stop()
