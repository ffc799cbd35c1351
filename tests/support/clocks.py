"""Clocks for tests that do not wait, passed to the tested code as part of its runtime."""

import time
from dataclasses import replace

from spark_eos.runtime import REAL, Clock, Runtime


class AheadClock:
    """The machine's clocks plus an offset that a test sets."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self._stands_at: float | None = None

    def stand(self) -> None:
        """Let the monotonic time advance by the offset only: on a busy machine a test takes longer than its limits."""
        self._stands_at = time.monotonic()

    def monotonic(self) -> float:
        """Return the monotonic time in seconds, plus the offset."""
        return (self._stands_at or time.monotonic()) + self.ahead_seconds

    def time_ns(self) -> int:
        """Return the time of day, plus the offset."""
        return time.time_ns() + int(self.ahead_seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """Sleep for the given time."""
        time.sleep(seconds)


class StandingClock:
    """Clocks that advance only by sleeping or when a test advances them."""

    def __init__(self, now_ms: int = 1_000_000, seconds: float = 0.0) -> None:
        self._began_ms = now_ms
        self.seconds = seconds

    @property
    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return self._began_ms + round(self.seconds * 1_000)

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return self.seconds

    def time_ns(self) -> int:
        """Return the time of day."""
        return self._began_ms * 1_000_000 + round(self.seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """Advance the clock and return at once."""
        self.seconds += seconds


def runtime_by(clock: Clock) -> Runtime:
    """Return a runtime that is real except for its clock."""
    return replace(REAL, clock=clock)
