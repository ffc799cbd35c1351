"""The acceptor of one listener on one broker, with the limits on connections: their number and creation rate.

A connection is closed at once if its address has too many. If the limit of the broker or the listener is reached, new
connections wait in the kernel's queue until another one is closed, as with Kafka.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker_core.broker.cluster import Cluster
from broker_core.broker.limits import AddressLimits, connection_limits
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.listener_keys import LISTENER_PREFIX
from broker_core.security.acls import address_of, printed_host
from broker_core.server.listeners import ListenerPlan
from broker_core.settings.values import ADDRESS_LIMITS, address_limits
from broker_core.types import address_text

logger = logging.getLogger(__name__)


class ConnectionSlot:
    """The slot of one connection; releasing it twice has no effect."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class ConnectionQuotas:
    """The connection counts and limits of one broker; `slot_released()` is called when a connection is closed."""

    def __init__(
        self,
        config: BrokerConfig,
        plans: Sequence[ListenerPlan],
        slot_released: Callable[[], None],
        metadata: ClusterMetadata | None = None,
    ) -> None:
        self._addresses = AddressLimits() if metadata is None else connection_limits(metadata, config)
        self._names = [plan.name for plan in plans]
        self._config: BrokerConfig | None = None
        self.reconfigure(config)
        # Clients must not use up the connections that brokers need among themselves.
        self._protected = config.inter_broker_listener_name.upper() if len(plans) > 1 else None
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._slot_released = slot_released

    def reconfigure(self, config: BrokerConfig, metadata: ClusterMetadata | None = None) -> None:
        """Apply other limits; open connections stay open, also those above a new limit."""
        if metadata is not None:
            self._addresses.use(metadata)
        if config == self._config:
            return
        # Before anything changes: a host may be unknown.
        self._overrides = _overrides(config.max_connections_per_ip_overrides)
        self._config = config
        self._max = config.max_connections
        # Only a listener's own setting limits that listener; the broker's setting limits all of them together.
        own = {name: f"{LISTENER_PREFIX}{name.lower()}.max.connections" for name in self._names}
        of_listeners = {name: config.of_listener(name) for name in self._names}
        self._max_of_listener = {
            name: of_listeners[name].max_connections
            for name in self._names
            if own[name] in dict(config.listener_overrides)
        }
        self._max_per_address = config.max_connections_per_ip
        self._rates = {name: _Rate(each.max_connection_creation_rate) for name, each in of_listeners.items()}
        self._rate = _Rate(config.max_connection_creation_rate)

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a connection for the quota of its address; return after how long it is closed, 0 if it may stay."""
        return self._addresses.throttle_ms(printed_host(address), now_ms)

    def is_protected(self, listener: str) -> bool:
        """Return whether the listener accepts connections even if `max.connections` is reached."""
        return listener == self._protected

    def is_over_limit(self) -> bool:
        return self._by_listener.total() > self._max

    def has_free_slot(self, listener: str) -> bool:
        count = self._by_listener[listener]
        if count >= self._max_of_listener.get(listener, count + 1):
            return False
        return self.is_protected(listener) or self._by_listener.total() < self._max

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Count one connection, and return how long to wait before accepting it to keep within the creation rate."""
        rates = [self._rates[listener]] if self.is_protected(listener) else [self._rates[listener], self._rate]
        return max(rate.take(now_ms) for rate in rates)

    def acquire(self, listener: str, address: str) -> ConnectionSlot | None:
        """Return a slot for an accepted connection, or None if its address has too many.

        An IPv4 address that a dual-stack socket reports as IPv6 counts as the IPv4 address, as in Java.
        """
        address = printed_host(address)
        if self._by_address[address] >= self._overrides.get(address, self._max_per_address):
            return None
        self._by_address[address] += 1
        self._by_listener[listener] += 1

        def give_back() -> None:
            self._by_listener[listener] -= 1
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            self._slot_released()

        return ConnectionSlot(give_back)


def reconfigure_all(quotas: Mapping[int, ConnectionQuotas], cluster: Cluster) -> None:
    """Apply limits that were changed while the brokers run; a broker keeps its limits if the new ones are invalid."""
    for broker_id, each in quotas.items():
        try:
            each.reconfigure(cluster.settings.of(broker_id), cluster.metadata)
        except ConfigError as error:
            logger.error("broker %d: the limits on connections stay as they are: %s", broker_id, error)


class _Rate:
    """A rate limit of `per_second` connections, with bursts of at most one second's worth."""

    def __init__(self, per_second: int) -> None:
        self._interval_ms = 1000 / per_second
        self._next_ms = 0.0

    def take(self, now_ms: int) -> int:
        """Count one connection; return how long it has to wait."""
        # A burst of one second's worth needs no wait.
        self._next_ms = max(self._next_ms, now_ms - 1000 + self._interval_ms) + self._interval_ms
        return max(0, round(self._next_ms - self._interval_ms - now_ms))


def _overrides(text: str) -> dict[str, int]:
    try:
        limits = address_limits(text)
    except ConfigError:
        # Java's message is for clients; it does not say what to write.
        raise ConfigError(f"{ADDRESS_LIMITS}={text!r}: expected a list of host:count") from None
    # As in Java, no name is the name of this host.
    return {_resolved(host.strip("[]") or "localhost"): limit for host, limit in limits}


def _resolved(host: str) -> str:
    """Return the address under which connections from a host are counted; a name is resolved once, as by Kafka."""
    if address_of(host) is None:
        try:
            host = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"{ADDRESS_LIMITS}: {host!r} is neither an address nor a known host name "
                f"({getattr(error, 'strerror', None) or 'no such host'})"
            ) from None
    return printed_host(host)


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
    protocol_factory: Callable[[ConnectionSlot], asyncio.Protocol]
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
        self._accepting.add_done_callback(lambda _: self.sock.close())

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

    async def _acquire_slot(self, address: str) -> ConnectionSlot | None:
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

    async def _arrive(self, sock: socket.socket, slot: ConnectionSlot, address: str) -> None:
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
            slot.release()
            logger.info(
                "no connection from %s at %s: %s",
                address,
                self.listener,
                getattr(error, "reason", None) or type(error).__name__,
            )
        except asyncio.CancelledError:
            slot.release()
            raise


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
        """Bind the port that the place had; raise OSError if it is in use."""
        self._sockets[place] = bind(*self._addresses[place])

    def take(self, place: Place) -> socket.socket:
        """Return the place's socket, to listen on."""
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
