"""Carry bytes between one socket and one connection of the core."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from broker_core.broker.broker import Broker
from broker_core.broker.connection import Connection
from broker_core.broker.dispatch import RequestInterceptor
from broker_core.broker.endpoints import Listener
from broker_core.security.acls import printed_host
from broker_core.security.principals import ANONYMOUS, Principal, PrincipalRules, subject_name, user
from broker_core.server.limits import Seat

log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 64 * 1024 * 1024


class Driver(Protocol):
    """Drive the core with what clients send."""

    @property
    def has_failed(self) -> bool:
        """Say whether nothing is answered any more."""
        ...

    @property
    def fault_injector(self) -> RequestInterceptor | None:
        """Return what may meet requests before their handlers do, if anything may."""
        ...

    def now_ms(self) -> int:
        """Return the time."""
        ...

    def received(self, connection: Connection, data: bytes) -> None:
        """Hand bytes to the core."""
        ...

    def settle_soon(self) -> None:
        """Settle in this turn of the event loop."""
        ...

    def joined(self, client: "Client") -> None:
        """Note a new client."""
        ...

    def left(self, client: "Client") -> None:
        """Note that a client is gone."""
        ...

    def paused(self, client: "Client") -> None:
        """Note that a client is not read from until its requests have been worked off."""
        ...


class Client(asyncio.Protocol):
    """Be the client at one socket; it takes a seat until the socket is closed."""

    def __init__(
        self,
        driver: Driver,
        broker: Broker,
        listener: Listener,
        rules: PrincipalRules | None,
        seat: Seat,
    ) -> None:
        self._driver = driver
        self._broker = broker
        self._listener = listener
        self._rules = rules
        self._seat = seat
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._active_ms = driver.now_ms()
        self._unsent_bytes = 0

    @property
    def broker_id(self) -> int:
        """Return the broker the client is connected to."""
        return self._broker.broker_id

    @property
    def listener_name(self) -> str:
        """Return the listener the client came in by."""
        return self._listener.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a client that has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host = printed_host((transport.get_extra_info("peername") or ("?",))[0])
        principal = self._certified(transport.get_extra_info("ssl_object"))
        if principal is None:
            log.warning(
                "broker %d: closing connection from %s: ssl.principal.mapping.rules make no name of "
                "that in its certificate",
                self.broker_id,
                host,
            )
            transport.abort()
            return
        self._connection = Connection(self._broker, self, host, self._listener, principal, self._driver.fault_injector)
        self._driver.joined(self)

    def _certified(self, encryption: ssl.SSLObject | None) -> Principal | None:
        """Return who the certificate says it is, ANONYMOUS without one, None where no rule knows the name."""
        certificate = encryption.getpeercert(binary_form=True) if encryption is not None else None
        if certificate is None or self._rules is None:
            return ANONYMOUS
        try:
            name = self._rules.apply(subject_name(certificate))
        except ValueError:
            # What OpenSSL takes may be beyond another reader.
            return None
        return None if name is None else user(name)

    def data_received(self, data: bytes) -> None:
        """Take what the client has sent."""
        if self._connection is None:
            return
        assert self._transport is not None
        self._active_ms = self._driver.now_ms()
        self._driver.received(self._connection, data)
        if self._connection.is_far_ahead(MAX_WAITING_BYTES):
            self._transport.pause_reading()
            self._driver.paused(self)

    def resume_if_drained(self) -> bool:
        """Read on when the client's earlier requests have been worked off; say whether they have."""
        assert self._connection is not None
        assert self._transport is not None
        is_drained = not self._connection.is_far_ahead(MAX_WAITING_BYTES)
        if is_drained and not self._transport.is_closing():
            self._transport.resume_reading()
        return is_drained

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that has gone."""
        if self._connection is not None:
            self._connection.lost()
        self._seat.leave()
        self._driver.left(self)

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._transport is not None:
            self._transport.write(data)
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._active_ms = self._driver.now_ms()

    def quiet_ms(self) -> int:
        """Return for how long nothing has gone either way; what waits for the client to read it does not go.

        asyncio tells how much of a long answer is still to be sent, so that is compared with what it was when somebody
        last asked. With TLS it does not tell.
        """
        now_ms = self._driver.now_ms()
        if self._unsent_bytes and self._transport is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:
                self._active_ms = now_ms
            self._unsent_bytes = unsent
        return now_ms - self._active_ms

    def close(self) -> None:
        """Close the connection after what was sent; asked again, do not wait for a client that does not read."""
        if self._transport is not None:
            (self._transport.abort if self._transport.is_closing() else self._transport.close)()

    def abort(self) -> None:
        """Close the connection at once; nothing more is sent."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Stop to answer a client that does not read its answers."""
        if self._connection is not None:
            self._connection.pause()

    def resume_writing(self) -> None:
        """Go on to answer a client that reads again."""
        self._active_ms = self._driver.now_ms()
        if self._connection is not None and not self._driver.has_failed:
            self._connection.resume(self._driver.now_ms())
            self._driver.settle_soon()


NewClient = Callable[[Seat], Client]
