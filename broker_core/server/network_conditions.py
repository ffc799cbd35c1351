"""Latency and bandwidth of the network between clients and brokers, for tests.

Delays are in real time, also with a virtual clock, because clients wait in real time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker_core.types import check_number

_CLIENT_ID_POSITION = 12
_CLIENT_ID_LENGTH_BYTES = 2


@dataclass(frozen=True, eq=False)
class NetworkRule:
    """The conditions of some connections: a delay in each direction, and a limit of the rate; None matches any."""

    latency_s: float
    bytes_per_s: float | None
    client_id: str | None
    broker_id: int | None

    def matches(self, client_id: str, broker_id: int) -> bool:
        return self.client_id in (None, client_id) and self.broker_id in (None, broker_id)


class NetworkConditions:
    """The rules in force; of several that match, the newest applies."""

    def __init__(self) -> None:
        self.rules: list[NetworkRule] = []

    def add(self, rule: NetworkRule) -> None:
        self.rules.append(rule)

    def remove(self, rule: NetworkRule) -> None:
        self.rules = [each for each in self.rules if each is not rule]

    def find(self, client_id: str, broker_id: int) -> NetworkRule | None:
        return next((rule for rule in reversed(self.rules) if rule.matches(client_id, broker_id)), None)


class SlowLine:
    """One direction of a connection: data arrives in order, each part when its time has come."""

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self.parts: deque[tuple[float, bytes]] = deque()
        # When the data before is sent, and when its last part arrives.
        self._sent_at = self._arrives_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes, rule: NetworkRule | None) -> None:
        """Send data under a rule; without one it arrives after what is under way."""
        now = asyncio.get_running_loop().time()
        self._sent_at = max(self._sent_at, now)
        if rule is not None and rule.bytes_per_s is not None:
            self._sent_at += len(data) / rule.bytes_per_s
        latency_s = 0.0 if rule is None else rule.latency_s
        self._arrives_at = max(self._arrives_at, self._sent_at + latency_s)
        self.parts.append((self._arrives_at, data))
        self._arm()

    def flush(self) -> None:
        parts, self.parts = self.parts, deque()
        self.clear()
        for _, data in parts:
            self._deliver(data)

    def clear(self) -> None:
        self.parts.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self.parts:
            self._timer = asyncio.get_running_loop().call_at(self.parts[0][0], self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        due = []
        while self.parts and self.parts[0][0] <= now:
            due.append(self.parts.popleft()[1])
        # A timer may fire a little early; then the first part is due all the same.
        if not due and self.parts:
            due.append(self.parts.popleft()[1])
        self._arm()
        for data in due:
            self._deliver(data)


def client_id_of(data: bytes) -> str:
    end = _CLIENT_ID_POSITION + _CLIENT_ID_LENGTH_BYTES
    length = int.from_bytes(data[_CLIENT_ID_POSITION:end], "big", signed=True)
    return data[end : end + max(length, 0)].decode(errors="replace")


def checked_rule(
    latency_ms: float, bytes_per_s: float | None, client_id: str | None, broker_id: int | None, brokers: Iterable[int]
) -> NetworkRule:
    """Return a rule; raise ValueError or TypeError for conditions that cannot be or do nothing."""
    check_number("latency_ms", latency_ms)
    if bytes_per_s is not None:
        check_number("bytes_per_s", bytes_per_s)
    if latency_ms < 0:
        raise ValueError(f"latency_ms={latency_ms}: a latency cannot be negative")
    if bytes_per_s is not None and bytes_per_s <= 0:
        raise ValueError(f"bytes_per_s={bytes_per_s}: expected more than 0; to lose answers, use fault with Drop")
    if not latency_ms and bytes_per_s is None:
        raise ValueError("give latency_ms, bytes_per_s or both")
    known = list(brokers)
    if broker_id is not None and broker_id not in known:
        raise ValueError(f"there is no broker {broker_id}; there are {', '.join(map(str, known))}")
    return NetworkRule(latency_ms / 1000, bytes_per_s, client_id, broker_id)
