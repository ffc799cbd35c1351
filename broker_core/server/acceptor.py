"""The acceptor of one listener on one broker, and the ports of all listeners."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from broker_core.security.acls import printed_host
from broker_core.server.connection_quotas import ConnectionQuotas
from broker_core.types import address_text

logger = logging.getLogger(__name__)

BACKLOG = 100
# Limits how long a client that stalls in its TLS handshake occupies a connection slot.
_TLS_HANDSHAKE_S = 10
_TLS_SHUTDOWN_S = 5
# The wait after a failed accept, which means that descriptors or memory are exhausted.
_PAUSE_S = 1


@dataclass(eq=False)
class Acceptor:
    """One listening socket and the task that accepts its connections."""

    sock: socket.socket
    listener: str
    protocol_factory: Callable[[ExitStack], asyncio.Protocol]
    quotas: ConnectionQuotas
    now_ms: Callable[[], int]
    evict: Callable[[], None]
    context: Callable[[], ssl.SSLContext | None]

    def __post_init__(self) -> None:
        self._slot_is_free = asyncio.Event()
        self._arrivals: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        self.sock.setblocking(False)
        self.sock.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        # Closing it earlier is not possible: the event loop watches the socket until the task has ended.
        self._accepting.add_done_callback(lambda _: close_for_all(self.sock))

    def close(self) -> None:
        for task in (self._accepting, *self._arrivals):
            if task is not None:
                task.cancel()

    async def closed(self) -> None:
        """Wait until the socket is closed, after a call of `close`."""
        if self._accepting is not None:
            await asyncio.wait([self._accepting])

    def slot_released(self) -> None:
        self._slot_is_free.set()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self.sock)
            except OSError as error:
                logger.error("cannot accept connections at %s: %s", self.listener, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            host = printed_host(address[0])
            throttle_ms = self.quotas.throttle_ms(host, self.now_ms())
            if throttle_ms:
                self._keep(loop.create_task(_close_later(sock, throttle_ms)))
                continue
            try:
                slot = await self._acquire_slot(host)
            except asyncio.CancelledError:
                sock.close()
                raise
            if slot is None:
                logger.warning(
                    "closing connection from %s at %s: its host has reached max.connections.per.ip", host, self.listener
                )
                sock.close()
                continue
            self._keep(loop.create_task(self._arrive(sock, slot, host)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._arrivals.add(task)
        task.add_done_callback(self._arrivals.discard)

    async def _acquire_slot(self, address: str) -> ExitStack | None:
        wait_ms = self.quotas.wait_ms(self.listener, self.now_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        while not self.quotas.has_free_slot(self.listener):
            self._slot_is_free.clear()
            await self._slot_is_free.wait()
        slot = self.quotas.acquire(self.listener, address)
        if self.quotas.is_over_limit():
            self.evict()
        return slot

    async def _arrive(self, sock: socket.socket, slot: ExitStack, address: str) -> None:
        """Set up an accepted connection; the TLS handshake may fail."""
        context = self.context()
        has_tls = context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.protocol_factory(slot),
                sock,
                ssl=context,
                ssl_handshake_timeout=_TLS_HANDSHAKE_S if has_tls else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S if has_tls else None,
            )
        except OSError as error:
            slot.close()
            logger.info(
                "no connection from %s at %s: %s",
                address,
                self.listener,
                getattr(error, "reason", None) or type(error).__name__,
            )
        except asyncio.CancelledError:
            slot.close()
            raise


def shut_down(sock: socket.socket) -> None:
    """End a socket also for the processes that were forked meanwhile: their copies would keep it open."""
    with suppress(OSError):
        # It is not connected any more.
        sock.shutdown(socket.SHUT_RDWR)


def close_for_all(sock: socket.socket) -> None:
    shut_down(sock)
    sock.close()


async def _close_later(sock: socket.socket, delay_ms: int) -> None:
    """Close a connection that exceeds the quota of its address; the delay slows down the client's next attempt."""
    try:
        await asyncio.sleep(delay_ms / 1000)
    finally:
        sock.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not listening yet; raise an OSError that names the address."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit the option. Without it the second of two responses waits until the client's
        # system acknowledges the first, which takes 40 ms on Linux.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise address_error("listen", host, port, error) from error
    return sock


# A listener and a broker.
Place = tuple[str, int]


class ReservedPorts:
    """The bound sockets by listener and broker; each place keeps its address."""

    def __init__(self) -> None:
        self._sockets: dict[Place, socket.socket] = {}
        self._addresses: dict[Place, tuple[str, int]] = {}

    def reserve(self, place: Place, host: str, port: int) -> int:
        """Bind the place's port and return it, a free one for 0; raise OSError if it is in use."""
        sock = self._sockets[place] = bind(host, port)
        bound: int = sock.getsockname()[1]
        self._addresses[place] = (host, bound)
        return bound

    def reserve_again(self, place: Place) -> None:
        """Bind the port that the place had, unless it is bound; raise OSError if it is in use."""
        if place not in self._sockets:
            self._sockets[place] = bind(*self._addresses[place])

    def take(self, place: Place) -> socket.socket:
        return self._sockets.pop(place)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


def address_error(doing: str, host: str, port: int, error: OSError) -> OSError:
    """Return an error that says what cannot be done at the address, why, and what to do."""
    # `socket.create_server` adds the address in parentheses.
    reason = (error.strerror or str(error)).partition(" (")[0]
    remedy = "give another address, or port 0 for a free one"
    return OSError(error.errno, f"cannot {doing} on {address_text(host, port)}: {reason}; {remedy}")
