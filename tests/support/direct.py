"""A `Cluster` without sockets, threads or clocks: requests in, responses out, time as an argument."""

import itertools
from typing import Any

from broker_core.broker.apis import SERVED
from broker_core.broker.cluster import Cluster
from broker_core.broker.connection import Connection
from broker_core.broker.endpoints import Address
from broker_core.broker.fault_injection import FaultInjector
from broker_core.config import BrokerConfig
from broker_core.security.principals import ANONYMOUS, Principal
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import Frame


class CountingEntropy:
    """A source of the same bytes in every run."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def random_bytes(self, count: int) -> bytes:
        return next(self._count).to_bytes(count, "big")


def direct_cluster(
    storage: Any = None, *, brokers: int = 1, settings: dict[str, str] | None = None, now_ms: int = 1_000_000
) -> Cluster:
    """Open a cluster over the storage, by default one in memory."""
    return Cluster(
        storage=MemoryStorage() if storage is None else storage,
        entropy=CountingEntropy(),
        config=BrokerConfig().override(settings or {}),
        addresses={index + 1: Address("test", 9000 + index) for index in range(brokers)},
        now_ms=now_ms,
    )


class DirectClient:
    """One client connection to one broker of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int = 1,
        *,
        principal: Principal = ANONYMOUS,
        host: str = "test",
        interceptor: FaultInjector | None = None,
    ) -> None:
        self.cluster = cluster
        self.client_id = "direct"
        self.sent: list[bytes] = []
        self.closed = False
        self._connection = Connection(
            cluster.brokers[broker_id], self, host, principal=principal, interceptor=interceptor
        )
        self._correlation = itertools.count(1)
        self._expected: list[tuple[Any, int]] = []

    def send(self, frame: Frame) -> None:
        """Receive the broker's bytes, as the transport."""
        self.sent.append(b"".join(frame))

    def close(self) -> None:
        """Note that the broker closed the connection, as the transport."""
        self.closed = True

    def post(self, request: Any, version: int) -> None:
        """Send a request and process it, without waiting for a response."""
        self.post_bytes(self.encoded(request, version))

    def encoded(self, request: Any, version: int) -> bytes:
        """Return the bytes of a request whose response is expected next."""
        request.API_VERSION = version
        request.with_header(next(self._correlation), self.client_id)
        self._expected.append((SERVED[request.API_KEY].response, version))
        return bytes(request.encode(header=True, framed=True))

    def post_bytes(self, data: bytes) -> None:
        """Send bytes, of several requests for example, and process them."""
        self._connection.receive(data, self.cluster.now_ms)
        self.cluster.settle(self.cluster.now_ms)

    def take(self) -> Any | None:
        """Return the next response, or None if there is none."""
        if not self.sent:
            return None
        response, version = self._expected.pop(0)
        return response.decode(self.sent.pop(0), version=version, header=True, framed=True)

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response, which must be there at once."""
        self.post(request, version)
        answer = self.take()
        assert answer is not None, f"{request} was not answered"
        return answer
