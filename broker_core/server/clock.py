"""The system's clock and its source of randomness."""

import os
import time


class SystemClock:
    """A monotonic clock that returns milliseconds since the epoch, as in Kafka's timestamps.

    The wall clock is read once, at the start; after that the time follows the monotonic clock. Changes of the system
    clock therefore neither delay timeouts nor expire open transactions.
    """

    def __init__(self) -> None:
        self._started_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._started_ns + time.monotonic_ns()) // 1_000_000

    def stopwatch_ms(self) -> float:
        """Return fractional milliseconds since an arbitrary point, for measuring durations."""
        return time.perf_counter_ns() / 1_000_000


class SystemEntropy:
    """Random bytes from the operating system."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
