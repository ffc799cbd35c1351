"""The quotas of clients (KIP-13, 124, 219, 599, 612): which limit applies to a client, and how long it is throttled.

Each broker measures what its own clients do, as in Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker_core.broker.limits import AddressLimits, ClientLimits, Throttled
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.features.quotas.records import Quotas

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"
# The types of values: whole numbers with their maximum, or None for any.
OF_USERS: Final[Mapping[str, tuple[str, float] | None]] = {
    PRODUCE: ("LONG", 2.0**63),
    FETCH: ("LONG", 2.0**63),
    REQUEST: None,
    MUTATION: None,
}
OF_ADDRESSES: Final[Mapping[str, tuple[str, float] | None]] = {CONNECTION: ("INT", 2**31 - 1)}
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_DEFAULT = None
# The requests that brokers send to each other; no quota applies to their time.
_EXEMPT: Final = frozenset({"WriteTxnMarkers"})
_FORGET_AFTER_MS: Final = 3_600_000


@dataclass(slots=True)
class _Sample:
    """The sum of the values of one window."""

    start_ms: int
    last_ms: int
    value: float = 0.0


class Rate:
    """A rate per second over the last `count` windows of `window_ms` each, as Kafka computes it.

    Until as many windows have passed, the missing ones but one count as empty, so that a burst at the beginning
    is spread over them.
    """

    def __init__(self, count: int, window_ms: int) -> None:
        self._count = count
        self._window_ms = window_ms
        self._samples: list[_Sample] = []

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
            del self._samples[: -self._count - 1]
        self._samples[-1].value += value
        self._samples[-1].last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        length_ms = self._length_ms(now_ms)
        return sum(each.value for each in self._samples) / (length_ms / 1000)

    def _length_ms(self, now_ms: int) -> int:
        self._samples = [each for each in self._samples if now_ms - each.last_ms < self._count * self._window_ms]
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(0, missing) * self._window_ms, 1)

    def counted(self, value: float, limit: float, now_ms: int, *, if_accepted: bool = False) -> int:
        """Add a value, and return the time to throttle; with `if_accepted` a throttled value does not count."""
        self.record(value, now_ms)
        throttle_ms = self.throttle_ms(limit, now_ms)
        if if_accepted and throttle_ms:
            self.record(-value, now_ms)
        return throttle_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long the rate is at the limit again if nothing is added; 0 if it is not above."""
        rate = self.measure(now_ms)
        return 0 if rate <= limit else round((rate - limit) / limit * self._length_ms(now_ms))


class TokenBucket:
    """The tokens that changes of the cluster's topics take; there are at most `seconds` times the limit."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._tokens = 0.0
        self._updated_ms = 0

    def take(self, value: float, limit: float, now_ms: int) -> None:
        self._refill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long there are no missing tokens."""
        self._refill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1000))

    def _refill(self, limit: float, now_ms: int) -> None:
        gained = limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._seconds * limit, self._tokens + gained)
        self._updated_ms = now_ms


class ClientQuotas(ClientLimits):
    """The measurements of one broker's clients, and their limits in the cluster's metadata."""

    def __init__(self, quotas: Quotas, config: BrokerConfig) -> None:
        super().__init__(quotas)
        self._quotas = quotas
        self._windows = (config.quota_window_num, config.quota_window_size_seconds)
        self._mutation_windows = (config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        self._rates: dict[tuple[str, tuple[str, str]], tuple[Rate, int]] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def _limit(self, kind: str, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
        """Return the limit of a client, the most specific one in Kafka's order, and whose measurements it applies to.

        Users and client ids may share a limit.
        """
        if not self._quotas:
            return None
        for entity in (
            ((CLIENT_ID, client_id), (USER, user)),
            ((CLIENT_ID, _DEFAULT), (USER, user)),
            ((USER, user),),
            ((CLIENT_ID, client_id), (USER, _DEFAULT)),
            ((CLIENT_ID, _DEFAULT), (USER, _DEFAULT)),
            ((USER, _DEFAULT),),
            ((CLIENT_ID, client_id),),
            ((CLIENT_ID, _DEFAULT),),
        ):
            found = self._quotas.get(entity, {}).get(kind)
            if found is not None:
                kinds = dict(entity)
                return found, (user if USER in kinds else "", client_id if CLIENT_ID in kinds else "")
        return None

    def _counted(
        self, kind: str, user: str, client_id: str, value: float, now_ms: int, *, if_accepted: bool = False
    ) -> int:
        limit = self._limit(kind, user, client_id)
        if limit is None:
            return 0
        most, client = limit
        found = self._rates.get((kind, client))
        if found is None:
            # Clients that have been quiet for an hour are forgotten, as in Kafka.
            self._rates = {
                key: (rate, used_ms)
                for key, (rate, used_ms) in self._rates.items()
                if now_ms - used_ms < _FORGET_AFTER_MS
            }
            count, seconds = self._windows
            found = (Rate(count, seconds * 1000), now_ms)
        self._rates[kind, client] = (found[0], now_ms)
        return found[0].counted(value, most, now_ms, if_accepted=if_accepted)

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        return self._counted(PRODUCE, user, client_id, size_bytes, now_ms)

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        return self._counted(FETCH, user, client_id, size_bytes, now_ms, if_accepted=True)

    def most_fetched_bytes(self, user: str, client_id: str) -> int | None:
        limit = self._limit(FETCH, user, client_id)
        count, seconds = self._windows
        return None if limit is None else int(limit[0] * (count - 1) * seconds)

    def spent(self, api: str, user: str, client_id: str, duration_ms: float, now_ms: int) -> int:
        """Count the time that a request took, as a percentage of one thread; return how long the client is throttled.

        It is throttled for one window at most.
        """
        if api in _EXEMPT:
            return 0
        return min(self._counted(REQUEST, user, client_id, duration_ms / 10, now_ms), self._windows[1] * 1000)

    def mutated(self, user: str, client_id: str, partitions: int, now_ms: int, *, is_strict: bool) -> int:
        limit = self._limit(MUTATION, user, client_id)
        if limit is None:
            return 0
        most, client = limit
        bucket = self._buckets.get(client)
        if bucket is None:
            count, seconds = self._mutation_windows
            bucket = self._buckets[client] = TokenBucket(count * seconds)
        throttle_ms = bucket.throttle_ms(most, now_ms)
        if is_strict and throttle_ms:
            raise Throttled(throttle_ms)
        bucket.take(partitions, most, now_ms)
        return 0 if is_strict else bucket.throttle_ms(most, now_ms)


class AddressQuotas(AddressLimits):
    """The connections that single addresses create (KIP-612)."""

    def __init__(self, quotas: Quotas, config: BrokerConfig) -> None:
        self._quotas = quotas
        self._windows = (config.quota_window_num, config.quota_window_size_seconds)
        self._rates: dict[str, Rate] = {}

    def use(self, metadata: ClusterMetadata) -> None:
        self._quotas = metadata.state(Quotas)

    def throttle_ms(self, address: str, now_ms: int) -> int:
        for name in (address, "localhost" if address in ("127.0.0.1", "::1") else address, _DEFAULT):
            limit = self._quotas.get(((IP, name),), {}).get(CONNECTION)
            if limit is not None:
                rate = self._rates.setdefault(address, Rate(self._windows[0], self._windows[1] * 1000))
                return rate.counted(1, limit, now_ms, if_accepted=True)
        return 0


def client_limits(metadata: ClusterMetadata, config: BrokerConfig) -> ClientLimits:
    return ClientQuotas(metadata.state(Quotas), config)


def connection_limits(metadata: ClusterMetadata, config: BrokerConfig) -> AddressLimits:
    return AddressQuotas(metadata.state(Quotas), config)
