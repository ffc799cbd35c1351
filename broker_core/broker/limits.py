"""What a broker asks about each client: how long it is throttled. Without a feature that has limits, never.

A throttled client gets its response at once, with `throttle_time_ms`, and its next request is handled when that time
has passed.
"""

from collections.abc import Collection

from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.installed import parts


class Throttled(KafkaError):
    """THROTTLING_QUOTA_EXCEEDED, with the time in ms that the client is throttled."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "")
        self.throttle_ms = throttle_ms


class ClientLimits:
    """No limits on the clients of a broker; a feature overrides the methods. All times are in ms."""

    def __init__(self, stored: Collection[object] = ()) -> None:
        # While it is empty, the broker measures no time.
        self.stored = stored

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Count the bytes of a Produce request; return how long the client is throttled."""
        return 0

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Count the bytes of a Fetch response; return how long the client is throttled.

        A throttled client gets none of the bytes, so they do not count.
        """
        return 0

    def most_fetched_bytes(self, user: str, client_id: str) -> int | None:
        """Return the largest response that is not throttled by itself; None without a limit."""
        return None

    def spent(self, api: str, user: str, client_id: str, duration_ms: float, now_ms: int) -> int:
        """Count the time that a request took; return how long the client is throttled."""
        return 0

    def mutated(self, user: str, client_id: str, partitions: int, now_ms: int, *, is_strict: bool) -> int:
        """Count partitions that are created or deleted; return how long the client is throttled.

        With `is_strict`, raise `Throttled` instead of counting if the client is throttled.
        """
        return 0


class AddressLimits:
    """No limits on the connections that single addresses create; a feature overrides the methods."""

    def use(self, metadata: ClusterMetadata) -> None:
        """Use the limits of another cluster from now on."""

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a connection; return after how long it is closed because there are too many, 0 if it is accepted."""
        return 0


def client_limits(metadata: ClusterMetadata, config: BrokerConfig) -> ClientLimits:
    return next((each.client_limits(metadata, config) for each in parts("limits")), ClientLimits())


def connection_limits(metadata: ClusterMetadata, config: BrokerConfig) -> AddressLimits:
    return next((each.connection_limits(metadata, config) for each in parts("limits")), AddressLimits())
