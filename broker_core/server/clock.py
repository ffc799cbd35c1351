"""The system's clock and its source of randomness, a clock that only a test advances, and its purgatory.

Logs, coordinators and sessions use virtual time: transactions and members time out, and segments age, when the test
advances the clock. Requests that wait in the purgatory use real time, as their clients do. Otherwise a fetch that waits
for data, a retry or a delayed error response would not finish until the test advances the clock.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from broker_core.broker.purgatory import Purgatory, Waiting

# Of Linux, and not moved by time-machine. It is some milliseconds behind.
_CLOCK_REALTIME_COARSE: Final = 5
_MOST_BEHIND_NS: Final = 1_000_000_000


def monotonic_s() -> float:
    """Return seconds from an arbitrary point on.

    Unlike `time.monotonic`, it goes on while a test freezes the time with freezegun, as Kafka and clients in C do.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _wall_ns() -> int:
    """Return the wall clock, also while a test freezes the time."""
    now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    coarse_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) if sys.platform == "linux" else now_ns
    return now_ns if abs(now_ns - coarse_ns) < _MOST_BEHIND_NS else coarse_ns


class SystemClock:
    """A monotonic clock that returns milliseconds since the epoch, as in Kafka's timestamps.

    The wall clock is read once, at the start; after that the time follows the monotonic clock. Changes of the system
    clock therefore neither delay timeouts nor expire open transactions.
    """

    def __init__(self) -> None:
        self._started_ns = _wall_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def now_ms(self) -> int:
        return (self._started_ns + time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1_000_000

    def stopwatch_ms(self) -> float:
        """Return fractional milliseconds since an arbitrary point, for measuring durations."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1_000_000


class SystemEntropy:
    """Random bytes from the operating system."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


# The maximum number of steps of one advance; actions that come due within a step run at its end.
_MOST_STEPS = 1000


class VirtualClock(SystemClock):
    """A clock that starts at the time of its creation, and changes only when advanced."""

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = super().now_ms()

    def now_ms(self) -> int:
        return self._now_ms

    def real_ms(self) -> int:
        return super().now_ms()

    def pass_by(self, duration_ms: int, next_deadline_ms: Callable[[], int], advance: Callable[[], None]) -> None:
        """Advance the time from deadline to deadline, calling `advance` at each."""
        end_ms = self._now_ms + duration_ms
        step_ms = max(1, duration_ms // _MOST_STEPS)
        while self._now_ms < end_ms:
            self._now_ms = min(end_ms, max(next_deadline_ms(), self._now_ms + step_ms))
            advance()


class RealTimePurgatory(Purgatory):
    """A purgatory with deadlines in real time, for a broker with a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, waiting: Waiting) -> None:
        """Add a waiting request; the time to its deadline is the same in real time as in virtual time."""
        expire = waiting.expire
        due_ms = waiting.deadline_ms

        # Pass at least the request's own deadline: virtual time may be unchanged, and the wait must not appear to be 0.
        def expire_then(now_ms: int) -> None:
            expire(max(self._clock.now_ms(), due_ms))

        waiting.deadline_ms += self._clock.real_ms() - self._clock.now_ms()
        waiting.expire = expire_then
        super().wait(waiting)

    def advance(self, now_ms: int) -> None:
        """Expire the requests whose deadline has passed in real time."""
        super().advance(self._clock.real_ms())

    def next_deadline_ms(self) -> int | None:
        """Return the next deadline in virtual time, as if both clocks ran at the same speed."""
        due_ms = super().next_deadline_ms()
        return None if due_ms is None else due_ms - self._clock.real_ms() + self._clock.now_ms()
