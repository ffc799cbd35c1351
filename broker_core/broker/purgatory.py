"""Waiting requests: each waits until a partition changes or its deadline passes, whichever is first.

Kafka's name for this is purgatory. A waiting request is retried when one of its partitions changes and at
its deadline, when it must answer with the data there is. Timers are the same without partitions.
"""

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass

from broker_core.types import TopicPartition


@dataclass(eq=False, slots=True)
class Waiting:
    """One waiting request.

    `attempt(now_ms)` answers and returns True, or returns False to keep waiting; `expire(now_ms)` must answer. Both
    are guarded by their request's context: an exception would stop the broker.
    """

    keys: Collection[TopicPartition]
    deadline_ms: int
    attempt: Callable[[int], bool]
    expire: Callable[[int], object]
    done: bool = False


# The heap is rebuilt when it contains more finished requests than this.
_SOME = 100


def _answered(_now_ms: int) -> bool:
    """Do nothing: the request is already answered."""
    return True


class Purgatory:
    """The waiting requests, indexed by partition and by deadline."""

    def __init__(self) -> None:
        # In order of arrival, so that a simulation with the same seed wakes them in the same order.
        self._by_key: dict[TopicPartition, dict[Waiting, None]] = {}
        self._deadlines: list[tuple[int, int, Waiting]] = []
        self._count = 0
        self._done_count = 0

    @property
    def waiting_count(self) -> int:
        """Return the number of waiting requests, timers included."""
        return sum(not waiting.done for _, _, waiting in self._deadlines)

    def wait(self, waiting: Waiting) -> None:
        """Add a waiting request; the caller has tried it once already."""
        for key in waiting.keys:
            self._by_key.setdefault(key, {})[waiting] = None
        self._count += 1
        heapq.heappush(self._deadlines, (waiting.deadline_ms, self._count, waiting))

    def at(self, time_ms: int, action: Callable[[int], object]) -> None:
        self.wait(Waiting((), time_ms, lambda _now_ms: False, action))

    def wake(self, keys: Collection[TopicPartition], now_ms: int) -> None:
        waited_for = self._by_key.keys() & keys
        if not waited_for:
            return
        woken = dict.fromkeys(waiting for key in sorted(waited_for) for waiting in self._by_key[key])
        for waiting in sorted(woken, key=lambda w: w.deadline_ms):
            # An attempt that raised has closed its connection, which cancels the request.
            if not waiting.done and waiting.attempt(now_ms) and not waiting.done:
                self._remove(waiting)

    def cancel(self, waiting: Waiting) -> None:
        """Remove a request without an answer: its client is gone."""
        if not waiting.done:
            self._remove(waiting)

    def advance(self, now_ms: int) -> None:
        while self._deadlines and (self._deadlines[0][2].done or self._deadlines[0][0] <= now_ms):
            _, _, waiting = heapq.heappop(self._deadlines)
            self._expire(waiting, now_ms)

    def expire_all(self, now_ms: int) -> None:
        """Expire all requests that wait now, as if their deadlines had passed."""
        for _, _, waiting in sorted(self._deadlines, key=lambda entry: entry[:2]):
            self._expire(waiting, now_ms)

    def _expire(self, waiting: Waiting, now_ms: int) -> None:
        if not waiting.done:
            expire = waiting.expire
            self._remove(waiting)
            expire(now_ms)

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _remove(self, waiting: Waiting) -> None:
        waiting.done = True
        # The request's memory must be released before its deadline, which may be days away.
        waiting.attempt = waiting.expire = _answered
        self._done_count += 1
        if self._done_count > _SOME and self._done_count > len(self._deadlines) // 2:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
            self._done_count = 0
        for key in waiting.keys:
            waiters = self._by_key.get(key)
            if waiters is not None:
                waiters.pop(waiting, None)
                if not waiters:
                    del self._by_key[key]
