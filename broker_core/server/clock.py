"""Read the system's clock and draw the system's randomness."""

import os
import time


class SystemClock:
    """Tell the time; Kafka's timestamps are wall-clock milliseconds since the epoch.

    The wall is looked at once, at the start: afterwards the time only goes forward, so that a clock set back or
    ahead neither stops what waits nor times out what is open.
    """

    def __init__(self) -> None:
        self._started_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the time in milliseconds."""
        return (self._started_ns + time.monotonic_ns()) // 1_000_000

    def stopwatch_ms(self) -> float:
        """Return milliseconds, in fractions, of which only differences mean anything."""
        return time.perf_counter_ns() / 1_000_000


class SystemEntropy:
    """Draw random bytes from the operating system."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes."""
        return os.urandom(count)
