"""Decide what happens next: one queue of events in virtual time, one seed, one trace.

Nothing else in a simulated world may order events. Equal seeds therefore give equal traces, in another process and
under another hash seed too, and a trace that differs names the first place where chance came in by another door.
"""

import hashlib
import heapq
from collections.abc import Callable
from random import Random

Action = Callable[[], None]
US_PER_MS = 1_000


class ScheduledEvent:
    """Be one thing that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Keep it from happening; does nothing when it has."""
        self.action = None


class Scheduler:
    """Run events in the order of their times, those of one time in the order they were put."""

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
        """Let `action` happen at a time, now if that has passed."""
        event = ScheduledEvent(action)
        self._put_count += 1
        heapq.heappush(self._queue, (max(time_us, self.now_us), self._put_count, event))
        return event

    def after(self, delay_us: int, action: Action) -> ScheduledEvent:
        """Let `action` happen after some time."""
        return self.at(self.now_us + delay_us, action)

    def step(self, until_us: int) -> bool:
        """Let the next event happen if it is due by then; say whether there was one."""
        while self._queue and self._queue[0][0] <= until_us:
            time_us, _, event = heapq.heappop(self._queue)
            if event.action is not None:
                self.now_us = time_us
                self.event_count += 1
                event.action()
                return True
        return False

    def run(self, until_us: int) -> None:
        """Let all events up to a time happen; it is that time afterwards."""
        while self.step(until_us):
            pass
        self.now_us = max(self.now_us, until_us)

    def chance(self, probability: float) -> bool:
        """Say yes with a probability; draws nothing where the answer is certain."""
        return probability > 0 and (probability >= 1 or self.random.random() < probability)

    def note(self, text: str) -> None:
        """Write one line of the trace."""
        line = f"{self.now_us} {text}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """Return a short name for the trace so far: equal traces, equal names."""
        return self._digest.hexdigest()
