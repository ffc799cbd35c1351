"""The asyncio protocol that carries bytes between a socket and a connection of the core."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from broker_core.broker.broker import Broker
from broker_core.broker.connection import Connection, Hold
from broker_core.broker.endpoints import Listener
from broker_core.broker.fault_injection import FaultInjector
from broker_core.security.acls import printed_host
from broker_core.security.principals import ANONYMOUS, Principal, PrincipalRules, subject_name, user
from broker_core.server.acceptor import shut_down
from broker_core.server.network_conditions import NetworkConditions, SlowLine, client_id_of
from broker_core.types import Frame

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 64 * 1024 * 1024
# The number of parts that the system takes at once.
_MOST_PARTS = 1024
# The wait for a clean shutdown of encrypted connections when the server stops.
_DRAIN_S = 1


class Clients:
    """The open connections of a server.

    `step` lets the core act, and lets the cluster settle unless the action returns False.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        step: Callable[[Callable[[], bool | None]], None],
        interceptor: FaultInjector | None,
    ) -> None:
        self.now_ms = now_ms
        self.step = step
        self.interceptor = interceptor
        self.network = NetworkConditions()
        self.connected: set[ConnectionProtocol] = set()
        # A separate set, so that a step does not have to iterate over all connections.
        self.paused: set[ConnectionProtocol] = set()
        self._all_gone = asyncio.Event()

    def add(self, client: "ConnectionProtocol") -> None:
        self.connected.add(client)
        self._all_gone.clear()

    def remove(self, client: "ConnectionProtocol") -> None:
        self.connected.discard(client)
        self.paused.discard(client)
        if not self.connected:
            self._all_gone.set()

    def of(self, broker_id: int) -> "list[ConnectionProtocol]":
        return [each for each in self.connected if each.broker_id == broker_id]

    def close_idle(self, max_idle_ms: int) -> None:
        """Close the connections without a byte for so long; a negative limit closes none."""
        for client in list(self.connected):
            if 0 <= max_idle_ms <= client.idle_ms():
                client.close()

    def resume_drained(self) -> None:
        self.paused = {client for client in self.paused if not client.resume_if_drained()}

    def abort(self) -> None:
        for client in list(self.connected):
            client.abort()

    async def close(self) -> None:
        """Close all connections. Encrypted ones close with a handshake, and are aborted after `_DRAIN_S`."""
        for client in list(self.connected):
            client.close()
        if self.connected:
            try:
                await asyncio.wait_for(self._all_gone.wait(), _DRAIN_S)
            except TimeoutError:
                self.abort()


class ConnectionProtocol(asyncio.Protocol):
    """The server's end of one client connection; occupies a connection slot until the socket is closed."""

    def __init__(
        self,
        clients: Clients,
        broker: Broker,
        listener: Listener,
        rules: PrincipalRules | None,
        slot: ExitStack,
    ) -> None:
        self._clients = clients
        self._broker = broker
        self._listener = listener
        self._rules = rules
        self._slot = slot
        self._transport: asyncio.Transport | None = None
        # A transport of TLS does not name it any more once it is closed.
        self._sock: socket.socket | None = None
        self._connection: Connection | None = None
        self._active_ms = clients.now_ms()
        # The socket that takes frames of several parts, -1 if there is none: with TLS the parts are encrypted.
        self._descriptor = -1
        self._unsent_bytes = 0
        self._client_id: str | None = None
        self._inbound, self._outbound = SlowLine(self._receive), SlowLine(lambda data: self._write((data,)))

    @property
    def broker_id(self) -> int:
        return self._broker.broker_id

    @property
    def listener_name(self) -> str:
        return self._listener.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a new connection; close it if no rule maps the name in its certificate."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sock = transport.get_extra_info("socket")
        assert self._sock is not None
        if transport.get_extra_info("ssl_object") is None and hasattr(os, "writev"):
            self._descriptor = self._sock.fileno()
        host = printed_host((transport.get_extra_info("peername") or ("?",))[0])
        principal = self._principal_of_certificate(transport.get_extra_info("ssl_object"))
        if principal is None:
            logger.warning(
                "broker %d: closing connection from %s: ssl.principal.mapping.rules match no name in its certificate",
                self.broker_id,
                host,
            )
            transport.abort()
            return
        self._connection = Connection(self._broker, self, host, self._listener, principal, self._clients.interceptor)
        self._clients.add(self)

    def _principal_of_certificate(self, encryption: ssl.SSLObject | None) -> Principal | None:
        """Return the certificate's principal, ANONYMOUS if there is no certificate, None if no rule maps its name."""
        certificate = encryption.getpeercert(binary_form=True) if encryption is not None else None
        if certificate is None or self._rules is None:
            return ANONYMOUS
        try:
            name = self._rules.apply(subject_name(certificate))
        except ValueError:
            # OpenSSL accepts some certificates that asn1crypto cannot parse.
            return None
        return None if name is None else user(name)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the core; pause reading if the pending requests exceed the limit."""
        if self._client_id is None:
            # A client sends the header of its first request at once.
            self._client_id = client_id_of(data)
        if self._clients.network.rules or self._inbound.parts:
            self._inbound.put(data, self._clients.network.find(self._client_id, self.broker_id))
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self._connection is None:
            return
        assert self._transport is not None
        self._active_ms = now_ms = self._clients.now_ms()
        self._clients.step(partial(self._connection.receive, data, now_ms))
        if self._connection.is_far_ahead(MAX_WAITING_BYTES):
            self._transport.pause_reading()
            self._clients.paused.add(self)

    def suspend(self) -> None:
        if self._connection is not None:
            self._connection.hold(Hold.CLUSTER)

    def attach(self, broker: Broker, listener: Listener) -> None:
        """Continue with a broker of another cluster; close the connection if a request is still in progress."""
        self._broker, self._listener = broker, listener
        if self._connection is None or self._connection.closed:
            return
        if self._connection.is_busy:
            self._connection.lost()
            self.abort()
        else:
            self._connection.attach(broker, listener, self._clients.now_ms())

    def resume_if_drained(self) -> bool:
        """Resume reading if the pending requests are within the limit again; return whether they are."""
        assert self._connection is not None
        assert self._transport is not None
        is_drained = not self._connection.is_far_ahead(MAX_WAITING_BYTES)
        if is_drained and not self._transport.is_closing():
            self._transport.resume_reading()
        return is_drained

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sock is not None:
            shut_down(self._sock)
        self._inbound.clear()
        self._outbound.clear()
        if self._connection is not None:
            self._connection.lost()
        self._slot.close()
        self._clients.remove(self)
        self._clients.step(lambda: None)

    def send(self, frame: Frame) -> None:
        if self._clients.network.rules or self._outbound.parts:
            self._outbound.put(b"".join(frame), self._clients.network.find(self._client_id or "", self.broker_id))
        else:
            self._write(frame)

    def _write(self, frame: Frame) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(frame) == 1:
            transport.write(frame[0])
        elif self._descriptor < 0:
            transport.writelines(frame)
        else:
            if not (transport.get_write_buffer_size() or transport.is_closing()):
                frame = write_at_once(self._descriptor, frame)
            for part in frame:
                transport.write(part)
        self._unsent_bytes = transport.get_write_buffer_size()
        self._active_ms = self._clients.now_ms()

    def idle_ms(self) -> int:
        """Return for how long no bytes were sent or received.

        Bytes in the write buffer are not sent yet. To detect progress on a long response, the buffer's size is compared
        with that at the previous call. This works without TLS only: asyncio does not report the size with TLS.
        """
        now_ms = self._clients.now_ms()
        if self._unsent_bytes and self._transport is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:
                self._active_ms = now_ms
            self._unsent_bytes = unsent
        return now_ms - self._active_ms

    def close(self) -> None:
        """Close the connection after the write buffer is sent; a second call closes it at once."""
        self._outbound.flush()
        if self._transport is not None:
            (self._transport.abort if self._transport.is_closing() else self._transport.close)()

    def abort(self) -> None:
        if self._transport is not None:
            if self._sock is not None:
                shut_down(self._sock)
            self._transport.abort()

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.hold(Hold.CLIENT)

    def resume_writing(self) -> None:
        self._active_ms = now_ms = self._clients.now_ms()
        if self._connection is not None:
            self._clients.step(partial(self._connection.release, Hold.CLIENT, now_ms))


def write_at_once(descriptor: int, frame: Frame) -> Frame:
    """Write to a socket without blocking and return the parts that it did not take.

    asyncio's `writelines` joins the parts until Python 3.12, so it copies the records.
    """
    try:
        written = os.writev(descriptor, frame[:_MOST_PARTS])
    except OSError:
        # The transport meets the same error, and closes the connection unless the socket is only full.
        return frame
    for index, part in enumerate(frame):
        if written < len(part):
            return (memoryview(part)[written:], *frame[index + 1 :])
        written -= len(part)
    return ()
