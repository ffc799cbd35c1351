"""The scheduler of a simulation: one queue of events in virtual time, one seed, one trace.

All events of a simulation are ordered by its scheduler. Equal seeds therefore give equal traces, also in another
process and with another hash seed. If two traces differ, the code uses time or randomness from another source.
"""

import hashlib
import heapq
from collections.abc import Callable
from random import Random

Action = Callable[[], None]
US_PER_MS = 1_000


class ScheduledEvent:
    """An action that will run at its time unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Prevent the action from running; no effect if it has run."""
        self.action = None


class Scheduler:
    """A queue of events, run in the order of their times; events of the same time run in the order of scheduling."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.now_us = 0
        self.random = Random(seed)
        self.event_count = 0
        self.lines: list[str] | None = [] if keep_trace else None
        self._queue: list[tuple[int, int, ScheduledEvent]] = []
        self._put_count = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def at(self, time_us: int, action: Action) -> ScheduledEvent:
        """Run `action` at a time, or at the current time if it has passed."""
        event = ScheduledEvent(action)
        self._put_count += 1
        heapq.heappush(self._queue, (max(time_us, self.now_us), self._put_count, event))
        return event

    def after(self, delay_us: int, action: Action) -> ScheduledEvent:
        return self.at(self.now_us + delay_us, action)

    def step(self, until_us: int) -> bool:
        """Run the next event if it is due by `until_us`; return whether there was one."""
        while self._queue and self._queue[0][0] <= until_us:
            time_us, _, event = heapq.heappop(self._queue)
            if event.action is not None:
                self.now_us = time_us
                self.event_count += 1
                event.action()
                return True
        return False

    def run(self, until_us: int) -> None:
        """Run all events up to a time, and advance the clock to that time."""
        while self.step(until_us):
            pass
        self.now_us = max(self.now_us, until_us)

    def chance(self, probability: float) -> bool:
        """Return True with a probability; use no random number if it is 0 or 1."""
        return probability > 0 and (probability >= 1 or self.random.random() < probability)

    def note(self, text: str) -> None:
        line = f"{self.now_us} {text}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """A digest of the trace so far; equal traces have equal digests."""
        return self._digest.hexdigest()
