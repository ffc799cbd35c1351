"""Wall clocks that show virtual time and may jump."""

from tests.support.simulated.scheduler import US_PER_MS, Scheduler

# A realistic date, so that timestamps look like timestamps.
START_MS = 1_700_000_000_000


class SimulatedClock:
    """The wall clock of one machine, `offset_ms` ahead of the scheduler's time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.offset_ms + self._scheduler.now_us // US_PER_MS

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms

    def when_us(self, time_ms: int) -> int:
        """Return the scheduler's time at which this clock will show `time_ms` if it does not jump."""
        return (time_ms - START_MS - self.offset_ms) * US_PER_MS
