"""Let time stand until a test moves it; what waits for a client's patience goes by real time all the same.

Logs, coordinators and sessions live in virtual time: transactions and members time out, segments grow old when the
test says so. A fetch that waits for data, a pause between two tries or a delay before a refusal is a matter between
the broker and a client whose clock is real; in standing time it would never end.
"""

from collections.abc import Callable
from typing import Protocol

from broker_core.broker.purgatory import Purgatory, Waiting
from broker_core.server.clock import SystemClock

# However far time is moved, in no more steps than this; what comes due in between happens at the end of its step.
_MOST_STEPS = 1000


class Clock(Protocol):
    """Tell the time, and how long something takes."""

    def now_ms(self) -> int:
        """Return the time in milliseconds."""
        ...

    def stopwatch_ms(self) -> float:
        """Return milliseconds, in fractions, of which only differences mean anything."""
        ...


class VirtualClock(SystemClock):
    """Show the time at which it was made, or to which it was set."""

    def __init__(self, start_ms: int | None = None) -> None:
        super().__init__()
        self._now_ms = super().now_ms() if start_ms is None else start_ms

    def now_ms(self) -> int:
        """Return the time in milliseconds."""
        return self._now_ms

    def real_ms(self) -> int:
        """Return the time outside, of which only differences mean anything here."""
        return super().now_ms()

    def pass_by(self, duration_ms: int, next_deadline_ms: Callable[[], int], advance: Callable[[], None]) -> None:
        """Let time pass from deadline to deadline, so that each finds its own time."""
        end_ms = self._now_ms + duration_ms
        step_ms = max(1, duration_ms // _MOST_STEPS)
        while self._now_ms < end_ms:
            self._now_ms = min(end_ms, max(next_deadline_ms(), self._now_ms + step_ms))
            advance()


class RealTimePurgatory(Purgatory):
    """Let requests wait as long as their clients do, while the broker's own time stands."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, waiting: Waiting) -> None:
        """Let a request wait; its deadline is so far off as it is in virtual time now."""
        expire = waiting.expire
        due_ms = waiting.deadline_ms

        # It is told the time at which it wanted to be called: how long it has waited must not be nothing.
        def expire_then(now_ms: int) -> None:
            expire(max(self._clock.now_ms(), due_ms))

        waiting.deadline_ms += self._clock.real_ms() - self._clock.now_ms()
        waiting.expire = expire_then
        super().wait(waiting)

    def advance(self, now_ms: int) -> None:
        """Expire what has waited long enough outside."""
        super().advance(self._clock.real_ms())

    def next_deadline_ms(self) -> int | None:
        """Return when, if virtual time went on as time does outside."""
        due_ms = super().next_deadline_ms()
        return None if due_ms is None else due_ms - self._clock.real_ms() + self._clock.now_ms()
