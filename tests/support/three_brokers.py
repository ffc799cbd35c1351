"""Three brokers that stop and start, of `broker_core` or of Apache Kafka, for the tests that run on both."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_core import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.apache_cluster import ApacheCluster, apache_cluster
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

BROKER_IDS = (1, 2, 3)
_DEADLINE_S = 90
_SETTINGS = {"min.insync.replicas": "1"}


class ThreeBrokers:
    """Brokers 1 to 3; each may be stopped."""

    def __init__(self, running: EmbeddedBroker | ApacheCluster) -> None:
        self._running = running

    def ask(self, request: Any, version: int, broker_id: int = 1) -> Any:
        """Send a request to a broker and return its answer."""
        address = self._running.bootstrap_servers.split(",")[broker_id - 1]
        with RawClient(address, deadline_s=30) as client:
            return client.send(request, version)

    def stop(self, broker_id: int) -> None:
        """Stop a broker, and wait until the first one has seen it."""
        if isinstance(self._running, EmbeddedBroker):
            self._running.broker(broker_id).stop()
        else:
            self._running.stop(broker_id)
        wait_until(lambda: broker_id not in self._known(1), f"broker {broker_id} is gone", deadline_s=_DEADLINE_S)

    def start(self, broker_id: int) -> None:
        """Start a broker again, and wait until both know each other."""
        if isinstance(self._running, EmbeddedBroker):
            self._running.broker(broker_id).start()
        else:
            self._running.start(broker_id)
        for asked, other in ((1, broker_id), (broker_id, 1)):
            wait_until(
                lambda asked=asked, other=other: other in self._known(asked),
                f"broker {asked} knows broker {other}",
                deadline_s=_DEADLINE_S,
            )

    def _known(self, asked: int) -> set[int]:
        try:
            answer = self.ask(m.MetadataRequest(topics=[], allow_auto_topic_creation=False), 9, asked)
        except OSError:
            return set()
        return {each.node_id for each in answer.brokers}


@contextmanager
def three_brokers(kind: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[ThreeBrokers]:
    """Run three brokers, with settings added; raises `Unavailable` where Apache Kafka cannot run."""
    added = dict(settings or {})
    if kind == "apache":
        with apache_cluster(folder, _SETTINGS | added) as cluster:
            yield ThreeBrokers(cluster)
    else:
        with EmbeddedBroker(brokers=3, config=added) as embedded:
            yield ThreeBrokers(embedded)
