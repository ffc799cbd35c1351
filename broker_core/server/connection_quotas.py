"""The limits on the connections of one broker: their number, by address and listener, and their creation rate.

A connection is closed at once if its address has too many. If the limit of the broker or the listener is reached, new
connections wait in the kernel's queue until another one is closed, as with Kafka.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from broker_core.broker.cluster import Cluster
from broker_core.broker.limits import AddressLimits, connection_limits
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.security.acls import address_of, printed_host
from broker_core.server.listeners import ListenerPlan
from broker_core.settings.values import ADDRESS_LIMITS, LISTENER_PREFIX, address_limits

logger = logging.getLogger(__name__)


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

    def acquire(self, listener: str, address: str) -> ExitStack | None:
        """Return the slot of an accepted connection, which its `close` releases; None if its address has too many.

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

        slot = ExitStack()
        slot.callback(give_back)
        return slot


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
