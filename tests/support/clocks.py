"""Clocks for tests that must not wait, given to what is tested as part of its runtime."""

import time
from dataclasses import replace

from spark_eos.runtime import REAL, Clock, Runtime


class AheadClock:
    """The machine's clocks, ahead of time by as much as a test says."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        """Return seconds, later than they are."""
        return time.monotonic() + self.ahead_seconds

    def time_ns(self) -> int:
        """Return the time of day, later than it is."""
        return time.time_ns() + int(self.ahead_seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """Wait as long as asked to."""
        time.sleep(seconds)


class StandingClock:
    """Clocks on which time passes only where something sleeps, or a test lets it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._began_ms = now_ms
        self.seconds = 0.0

    @property
    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return self._began_ms + round(self.seconds * 1_000)

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self.seconds

    def time_ns(self) -> int:
        """Return the time of day."""
        return self._began_ms * 1_000_000 + round(self.seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let time pass, at once."""
        self.seconds += seconds


def runtime_by(clock: Clock) -> Runtime:
    """Make a runtime that is real but for its clock."""
    return replace(REAL, clock=clock)
