"""Count connections, so that no client can take all there are.

An address that has too many is turned away at once; when the broker or the listener is full, newcomers wait in the
kernel's queue until somebody leaves, as with Kafka.
"""

import socket
from collections import Counter
from collections.abc import Callable, Sequence

from broker_core.config import LISTENER_PREFIX, BrokerConfig
from broker_core.errors import ConfigError
from broker_core.security.acls import address_of, printed_host
from broker_core.server.listeners import ListenerPlan


class Seat:
    """Be one connection's place; giving it back twice does no harm."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def leave(self) -> None:
        """Make room for somebody else."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class ConnectionLimits:
    """Hold who is connected to one broker; `room_made()` is called when somebody leaves."""

    def __init__(self, config: BrokerConfig, plans: Sequence[ListenerPlan], room_made: Callable[[], None]) -> None:
        self._max = config.max_connections
        # Only what a listener has of its own bounds it alone; the broker's number bounds them all together.
        own = {plan.name: f"{LISTENER_PREFIX}{plan.name.lower()}.max.connections" for plan in plans}
        self._max_of_listener = {
            plan.name: plan.config.max_connections
            for plan in plans
            if own[plan.name] in dict(config.listener_overrides)
        }
        self._max_per_address = config.max_connections_per_ip
        self._overrides = _overrides(config.max_connections_per_ip_overrides)
        self._rates = {plan.name: _Rate(plan.config.max_connection_creation_rate) for plan in plans}
        self._rate = _Rate(config.max_connection_creation_rate)
        # What the brokers need to talk to each other must not be lost to clients.
        self._protected = config.inter_broker_listener_name.upper() if len(plans) > 1 else None
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._room_made = room_made

    def is_protected(self, listener: str) -> bool:
        """Say whether the listener takes connections although the broker is full."""
        return listener == self._protected

    def is_overfull(self) -> bool:
        """Say whether there are more connections than the broker may have."""
        return self._by_listener.total() > self._max

    def has_room(self, listener: str) -> bool:
        """Say whether one more connection may be accepted."""
        count = self._by_listener[listener]
        if count >= self._max_of_listener.get(listener, count + 1):
            return False
        return self.is_protected(listener) or self._by_listener.total() < self._max

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Return how long to wait before the next connection, so that not too many come in a second; then count it."""
        rates = [self._rates[listener]] if self.is_protected(listener) else [self._rates[listener], self._rate]
        return max(rate.take(now_ms) for rate in rates)

    def take_seat(self, listener: str, address: str) -> Seat | None:
        """Return a place for a connection that was accepted, or None if its address has too many.

        An IPv4 address that a socket for both kinds writes as an IPv6 one is the IPv4 address, as in Java.
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
            self._room_made()

        return Seat(give_back)


class _Rate:
    """Let `per_second` connections in every second; what was not used does not add up beyond that."""

    def __init__(self, per_second: int) -> None:
        self._interval_ms = 1000 / per_second
        self._next_ms = 0.0

    def take(self, now_ms: int) -> int:
        """Count one connection; return how long it has to wait."""
        # A second's worth may come at once.
        self._next_ms = max(self._next_ms, now_ms - 1000 + self._interval_ms) + self._interval_ms
        return max(0, round(self._next_ms - self._interval_ms - now_ms))


def _overrides(text: str) -> dict[str, int]:
    limits = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = part.rpartition(":")
        if not address or not count.isdecimal():
            raise ConfigError(f"max.connections.per.ip.overrides: {part!r} is not of the form address:count")
        limits[_resolved(address.strip("[]"))] = int(count)
    return limits


def _resolved(host: str) -> str:
    """Return the address that connections from a host are counted under; a name's is looked up once, as by Kafka."""
    if address_of(host) is None:
        try:
            host = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides: {host!r} is no address, nor the name of one "
                f"({getattr(error, 'strerror', None) or 'no host is named so'})"
            ) from None
    return printed_host(host)
