"""Accept connections at one address of one broker, as many as may be, and encrypt them where the listener says so."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from broker_core.security.acls import printed_host
from broker_core.server.client import NewClient
from broker_core.server.limits import ConnectionLimits, Seat

log = logging.getLogger(__name__)

BACKLOG = 100
# A client that stalls here holds a seat and has shown nothing yet.
_TLS_HANDSHAKE_S = 10
_TLS_GOODBYE_S = 5
# The process is out of descriptors or memory: others may leave meanwhile.
_PAUSE_S = 1


class Door:
    """Be one listening socket."""

    def __init__(
        self,
        sock: socket.socket,
        listener: str,
        *,
        new_client: NewClient,
        limits: ConnectionLimits,
        now_ms: Callable[[], int],
        made_room_for: Callable[[], None],
        context: ssl.SSLContext | None,
    ) -> None:
        self._socket = sock
        self._listener = listener
        self._new_client = new_client
        self._limits = limits
        self._now_ms = now_ms
        self._made_room_for = made_room_for
        self._context = context
        self._room = asyncio.Event()
        self._arrivals: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to accept."""
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        # Not before: the event loop still watches the socket.
        self._accepting.add_done_callback(lambda _: self._socket.close())

    def close(self) -> None:
        """Accept nobody any more."""
        for task in (self._accepting, *self._arrivals):
            if task is not None:
                task.cancel()

    async def closed(self) -> None:
        """Wait until the address is nobody's after `close`."""
        if self._accepting is not None:
            await asyncio.wait([self._accepting])

    def room_made(self) -> None:
        """Note that somebody has left."""
        self._room.set()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._socket)
            except OSError as error:
                log.error("cannot accept connections at %s: %s", self._listener, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            host = printed_host(address[0])
            try:
                seat = await self._seat(host)
            except asyncio.CancelledError:
                sock.close()
                raise
            if seat is None:
                log.warning(
                    "closing connection from %s at %s: it has as many as it may (max.connections.per.ip)",
                    host,
                    self._listener,
                )
                sock.close()
                continue
            arrival = loop.create_task(self._arrive(sock, seat, host))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    async def _seat(self, address: str) -> Seat | None:
        wait_ms = self._limits.wait_ms(self._listener, self._now_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        while not self._limits.has_room(self._listener):
            self._room.clear()
            await self._room.wait()
        seat = self._limits.take_seat(self._listener, address)
        if self._limits.is_overfull():
            self._made_room_for()
        return seat

    async def _arrive(self, sock: socket.socket, seat: Seat, address: str) -> None:
        """Make a client of the socket; with TLS that takes a while, and may fail."""
        has_tls = self._context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._new_client(seat),
                sock,
                ssl=self._context,
                ssl_handshake_timeout=_TLS_HANDSHAKE_S if has_tls else None,
                ssl_shutdown_timeout=_TLS_GOODBYE_S if has_tls else None,
            )
        except OSError as error:
            seat.leave()
            log.info(
                "no connection from %s at %s: %s",
                address,
                self._listener,
                getattr(error, "reason", None) or type(error).__name__,
            )
        except asyncio.CancelledError:
            seat.leave()
            raise


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, listening to nobody yet; raise OSError that names it."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it. Without it the second of two answers waits for the client's system to
        # acknowledge the first, which takes 40 ms on Linux.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock
