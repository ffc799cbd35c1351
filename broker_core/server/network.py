"""Serve the core over TCP, in one thread, on asyncio.

Whatever arrives in one turn of the event loop is handed to the core first and settled once: that is group
commit, one sync for all the requests that came in together.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial

from broker_core.broker.cluster import Address, Cluster
from broker_core.broker.connection import Connection
from broker_core.config import BrokerConfig
from broker_core.ports import Entropy, Storage
from broker_core.server.clock import SystemClock

log = logging.getLogger(__name__)

_MAX_WAITING_BYTES = 64 * 1024 * 1024
_MAX_SLEEP_MS = 60_000


class Server:
    """Listen on one address a broker and drive the cluster behind them."""

    def __init__(
        self,
        *,
        storage: Storage,
        entropy: Entropy,
        clock: SystemClock,
        config: BrokerConfig,
        host: str,
        ports: Sequence[int],
        advertised_host: str | None = None,
    ) -> None:
        self._storage = storage
        self._entropy = entropy
        self._clock = clock
        self._config = config
        self._host = host
        self._ports = ports
        self._advertised_host = advertised_host or host
        self._servers: list[asyncio.Server] = []
        self._clients: set[_Client] = set()
        # Few of many clients: only they are looked at when work is done.
        self._paused: set[_Client] = set()
        self._settling = False
        self._timer: asyncio.TimerHandle | None = None
        self._cluster: Cluster | None = None
        self.failure: asyncio.Future[None] | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the running cluster."""
        assert self._cluster is not None, "the server is not started"
        return self._cluster

    @property
    def addresses(self) -> list[Address]:
        """Return where the brokers listen."""
        return list(self.cluster.addresses.values())

    async def start(self) -> None:
        """Bind the ports, open the cluster, accept clients; raises OSError when a port is taken."""
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        sockets = [_bind(self._host, port) for port in self._ports]
        first_id = self._config.broker_id
        addresses = {
            first_id + index: Address(self._advertised_host, sock.getsockname()[1])
            for index, sock in enumerate(sockets)
        }
        self._cluster = Cluster(
            storage=self._storage, entropy=self._entropy, config=self._config, addresses=addresses,
            now_ms=self._clock.now_ms())
        for broker_id, sock in zip(addresses, sockets, strict=True):
            self._servers.append(await loop.create_server(partial(_Client, self, broker_id), sock=sock))
        self._arm()

    async def stop(self) -> None:
        """Stop accepting, hang up, and close the logs cleanly."""
        if self._timer is not None:
            self._timer.cancel()
        for server in self._servers:
            server.close()
        for client in list(self._clients):
            client.close()
        if self._cluster is not None and not self.has_failed:
            self._cluster.close(self._clock.now_ms())

    def received(self, connection: Connection, data: bytes) -> None:
        """Hand bytes to the core, and settle when this turn's bytes are all in."""
        if not self.has_failed:
            connection.receive(data, self._clock.now_ms())
            self.settle_soon()

    def settle_soon(self) -> None:
        """Settle in this turn of the event loop, after all that came in with it."""
        if not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    @property
    def has_failed(self) -> bool:
        """Say whether the core could not keep a promise; nothing is answered any more."""
        return self.failure is not None and self.failure.done()

    def settle(self) -> None:
        """Settle now."""
        self._drive(self.cluster.settle)

    def _settle(self) -> None:
        self._settling = False
        self.settle()

    def _advance(self) -> None:
        now_ms = self._clock.now_ms()
        for client in list(self._clients):
            if 0 <= self._config.connections_max_idle_ms <= now_ms - client.active_ms:
                client.close()
        self._drive(self.cluster.advance)

    def _drive(self, step: Callable[[int], None]) -> None:
        """Take a step; a core that cannot write its log must not go on answering."""
        if self.has_failed:
            return
        try:
            step(self._clock.now_ms())
        except Exception as error:
            log.exception("the broker stops: it cannot keep its promises any more")
            if self.failure is not None and not self.failure.done():
                self.failure.set_exception(error)
            for server in self._servers:
                server.close()
            for client in list(self._clients):
                client.abort()
            return
        self._paused = {client for client in self._paused if not client.resume_if_drained()}
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(max(self.cluster.next_deadline_ms() - self._clock.now_ms(), 0), _MAX_SLEEP_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._advance)

    def now_ms(self) -> int:
        """Return the server's time."""
        return self._clock.now_ms()

    def joined(self, client: "_Client") -> None:
        """Note a new client."""
        self._clients.add(client)

    def left(self, client: "_Client") -> None:
        """Note that a client is gone."""
        self._clients.discard(client)
        self._paused.discard(client)

    def paused(self, client: "_Client") -> None:
        """Note that a client is not read from until its requests have been worked off."""
        self._paused.add(client)


class _Client(asyncio.Protocol):
    """Carry bytes between one socket and one connection of the core."""

    def __init__(self, server: Server, broker_id: int) -> None:
        self._server = server
        self._broker = server.cluster.brokers[broker_id]
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self.active_ms = server.now_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?",)
        self._connection = Connection(self._broker, self, peer[0])
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        assert self._connection is not None
        assert self._transport is not None
        self.active_ms = self._server.now_ms()
        self._server.received(self._connection, data)
        if self._connection.waiting_bytes > _MAX_WAITING_BYTES:
            self._transport.pause_reading()
            self._server.paused(self)

    def resume_if_drained(self) -> bool:
        """Read on when the client's earlier requests have been worked off; say whether they have."""
        assert self._connection is not None
        assert self._transport is not None
        is_drained = self._connection.waiting_bytes <= _MAX_WAITING_BYTES
        if is_drained and not self._transport.is_closing():
            self._transport.resume_reading()
        return is_drained

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()
        self._server.left(self)

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after what was sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; nothing more is sent."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def resume_writing(self) -> None:
        if self._connection is not None and not self._server.has_failed:
            self._connection.resume(self._server.now_ms())
            self._server.settle_soon()


def _bind(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock
