"""Clients written as plain blocking code, run one at a time in virtual time.

A fiber runs until it waits; only the scheduler decides which one continues. A fiber can be paused, which it does not
notice, and killed, which it cannot catch: any later request to the world, even in a `finally`, kills it again.
"""

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from tests.support.simulated.scheduler import US_PER_MS, ScheduledEvent, Scheduler


class KilledError(BaseException):
    """The end of a killed fiber."""


class Fiber:
    """One thread of a client, on a machine with its own clock."""

    def __init__(self, fibers: "Fibers", name: str, work: Callable[[], Any]) -> None:
        self.name = name
        # The machine it runs on, for the network, and the process it belongs to.
        self.host = name
        self.process_id = 0
        self.clock_offset_ms = 0
        self.is_killed = False
        self.is_done = False
        self._fibers = fibers
        self._work = work
        self._greenlet = greenlet(self._run)
        self.is_paused = False
        self._is_due = False
        self._wake_up: ScheduledEvent | None = None

    def _run(self) -> None:
        try:
            self._work()
        except KilledError:
            pass
        except Exception as error:
            self._fibers.failures.append((self.name, error))
            self._fibers.scheduler.note(f"{self.name} failed: {type(error).__name__}: {error}")
        self.is_done = True

    def resume(self) -> None:
        """Continue, now or when the fiber is no longer paused."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        if self.is_paused:
            self._is_due = True
        elif not self.is_done:
            self._fibers.switch_to(self._greenlet)

    def sleep_until(self, time_us: int | None) -> None:
        """Wait until a time or until another fiber or event calls `resume`; only for the fiber itself."""
        if self.is_killed:
            raise KilledError
        if time_us is not None:
            self._wake_up = self._fibers.scheduler.at(time_us, self._time_is_up)
        self._fibers.hub.switch()
        if self.is_killed:
            raise KilledError

    def _time_is_up(self) -> None:
        self._wake_up = None
        self.resume()

    def pause(self) -> None:
        """Stop the fiber where it waits."""
        self.is_paused = True

    def go_on(self) -> None:
        """End the pause."""
        self.is_paused = False
        if self._is_due:
            self._is_due = False
            self._fibers.scheduler.after(0, self.resume)

    def kill(self) -> None:
        """End the fiber where it waits."""
        if not self.is_done:
            self.is_killed = True
            self.is_paused = False
            self._fibers.scheduler.after(0, self.resume)


class Fibers:
    """The fibers of one world."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.hub = getcurrent()
        self.all: list[Fiber] = []
        self.failures: list[tuple[str, Exception]] = []
        self._by_greenlet: dict[greenlet, Fiber] = {}

    def spawn(self, name: str, work: Callable[[], Any]) -> Fiber:
        """Start a fiber; it runs as soon as the scheduler gets to it."""
        fiber = Fiber(self, name, work)
        self.all.append(fiber)
        self._by_greenlet[fiber._greenlet] = fiber
        self.scheduler.after(0, fiber.resume)
        return fiber

    def switch_to(self, target: greenlet) -> None:
        """Run a fiber until it waits."""
        assert getcurrent() is self.hub, "only the scheduler resumes fibers"
        target.switch()

    @property
    def current(self) -> Fiber:
        """Return the fiber that runs."""
        return self._by_greenlet[getcurrent()]

    def sleep_ms(self, duration_ms: float) -> None:
        """Let the running fiber wait."""
        until_us = self.scheduler.now_us + max(1, int(duration_ms * US_PER_MS))
        while self.scheduler.now_us < until_us:
            self.current.sleep_until(until_us)

    def close(self) -> None:
        """End all remaining fibers, outside of time."""
        for fiber in self.all:
            fiber.is_killed = True
            fiber.is_paused = False
            while not fiber.is_done and fiber._greenlet:
                fiber._greenlet.switch()
            fiber.is_done = True
