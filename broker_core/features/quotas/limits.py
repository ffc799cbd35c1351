"""The quotas of clients (KIP-13, 124, 219, 599, 612): which limit applies to a client, and how long it is throttled.

Each broker measures what its own clients do, as in Kafka.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.broker.limits import AddressLimits, ClientLimits, Throttled
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.features.quotas.rates import Rate, TokenBucket
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


class _Limit(NamedTuple):
    """A limit, and the client whose measurements it applies to: users and client ids may share one."""

    value: float
    client: tuple[str, str]


class ClientQuotas(ClientLimits):
    """The measurements of one broker's clients, and their limits in the cluster's metadata."""

    def __init__(self, quotas: Quotas, config: BrokerConfig) -> None:
        super().__init__(quotas)
        self._quotas = quotas
        self._windows = (config.quota_window_num, config.quota_window_size_seconds)
        self._mutation_windows = (config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        self._rates: dict[tuple[str, tuple[str, str]], tuple[Rate, int]] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def _limit(self, kind: str, user: str, client_id: str) -> _Limit | None:
        """Return the limit of a client: the most specific one, in Kafka's order."""
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
                return _Limit(found, (user if USER in kinds else "", client_id if CLIENT_ID in kinds else ""))
        return None

    def _rate(self, kind: str, client: tuple[str, str], now_ms: int) -> Rate:
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
        return found[0]

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Count the bytes of a Produce request; return how long the client is throttled, in ms."""
        limit = self._limit(PRODUCE, user, client_id) if self._quotas else None
        if limit is None:
            return 0
        rate = self._rate(PRODUCE, limit.client, now_ms)
        rate.record(size_bytes, now_ms)
        return rate.throttle_ms(limit.value, now_ms)

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Count the bytes of a Fetch response; return how long the client is throttled.

        A throttled client gets none of the bytes, so they do not count.
        """
        limit = self._limit(FETCH, user, client_id) if self._quotas else None
        if limit is None:
            return 0
        rate = self._rate(FETCH, limit.client, now_ms)
        rate.record(size_bytes, now_ms)
        throttle_ms = rate.throttle_ms(limit.value, now_ms)
        if throttle_ms:
            rate.record(-size_bytes, now_ms)
        return throttle_ms

    def most_fetched_bytes(self, user: str, client_id: str) -> int | None:
        """Return the largest response that is not throttled by itself; None without a quota."""
        limit = self._limit(FETCH, user, client_id) if self._quotas else None
        if limit is None:
            return None
        count, seconds = self._windows
        return int(limit.value * (count - 1) * seconds)

    def spent(self, api: str, user: str, client_id: str, duration_ms: float, now_ms: int) -> int:
        """Count the time that a request took, as a percentage of one thread; return how long the client is throttled.

        It is throttled for one window at most.
        """
        limit = self._limit(REQUEST, user, client_id) if self._quotas and api not in _EXEMPT else None
        if limit is None:
            return 0
        rate = self._rate(REQUEST, limit.client, now_ms)
        rate.record(duration_ms / 10, now_ms)
        return min(rate.throttle_ms(limit.value, now_ms), self._windows[1] * 1000)

    def mutated(self, user: str, client_id: str, partitions: int, now_ms: int, *, is_strict: bool) -> int:
        """Count partitions that are created or deleted; return how long the client is throttled.

        With `is_strict`, raise THROTTLING_QUOTA_EXCEEDED instead of counting if the quota is used up.
        """
        limit = self._limit(MUTATION, user, client_id) if self._quotas else None
        if limit is None:
            return 0
        bucket = self._buckets.get(limit.client)
        if bucket is None:
            count, seconds = self._mutation_windows
            bucket = self._buckets[limit.client] = TokenBucket(count * seconds)
        throttle_ms = bucket.throttle_ms(limit.value, now_ms)
        if is_strict and throttle_ms:
            raise Throttled(throttle_ms)
        bucket.take(partitions, limit.value, now_ms)
        return 0 if is_strict else bucket.throttle_ms(limit.value, now_ms)


class AddressQuotas(AddressLimits):
    """The connections that single addresses create (KIP-612)."""

    def __init__(self, quotas: Quotas, config: BrokerConfig) -> None:
        self._quotas = quotas
        self._windows = (config.quota_window_num, config.quota_window_size_seconds)
        self._rates: dict[str, Rate] = {}

    def use(self, metadata: ClusterMetadata) -> None:
        """Use the quotas of another cluster from now on."""
        self._quotas = metadata.state(Quotas)

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a connection; return after how long it is closed because there are too many, 0 if it is accepted."""
        limit = self._limit(address)
        if limit is None:
            return 0
        rate = self._rates.setdefault(address, Rate(self._windows[0], self._windows[1] * 1000))
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _limit(self, address: str) -> float | None:
        for name in (address, "localhost" if address in ("127.0.0.1", "::1") else address, _DEFAULT):
            found = self._quotas.get(((IP, name),), {}).get(CONNECTION)
            if found is not None:
                return found
        return None


def client_limits(metadata: ClusterMetadata, config: BrokerConfig) -> ClientLimits:
    """Return the quotas of the clients of a broker."""
    return ClientQuotas(metadata.state(Quotas), config)


def connection_limits(metadata: ClusterMetadata, config: BrokerConfig) -> AddressLimits:
    """Return the quotas of single addresses."""
    return AddressQuotas(metadata.state(Quotas), config)
