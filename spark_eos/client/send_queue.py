"""The partitions that have a batch to send: by leader those that can, by time those that wait for another attempt.

Each step costs what it sends, however many partitions there are.
"""

import heapq
from collections import deque

from spark_eos.client.lane import Lane


class SendQueue:
    """Lanes that have a batch waiting and none in flight, each once; the first to come goes first."""

    def __init__(self) -> None:
        self._ready: dict[int, deque[Lane]] = {}
        self._ready_bytes: dict[int, int] = {}
        self._later: list[tuple[float, int, Lane]] = []
        self._added = 0

    def put(self, lane: Lane, leader: int) -> None:
        """Have the head of a lane sent to its leader."""
        lane.is_queued, lane.queued_for = True, leader
        self._ready.setdefault(leader, deque()).append(lane)
        self._ready_bytes[leader] = self._ready_bytes.get(leader, 0) + lane.size_bytes

    def note_growth(self, lane: Lane, size_bytes: int) -> None:
        """Count a batch that has come to a lane since it was put here."""
        if lane.queued_for is not None:
            self._ready_bytes[lane.queued_for] += size_bytes

    def put_off(self, lane: Lane) -> None:
        """Have a lane wait until its `not_before`."""
        lane.is_queued = True
        self._added += 1
        heapq.heappush(self._later, (lane.not_before, self._added, lane))

    def ready_bytes(self, leader: int | None) -> int:
        """Say how much waits in the lanes that are ready for a leader, what is behind their heads included."""
        return self._ready_bytes.get(leader, 0) if leader is not None else 0

    def leaders(self, least_bytes: int) -> list[int]:
        """Name the leaders for which at least so much waits."""
        return [leader for leader, size_bytes in self._ready_bytes.items() if size_bytes >= least_bytes]

    def take_request(self, leader: int, max_bytes: int) -> list[Lane]:
        """Take out lanes of a leader whose heads fill a request together; a larger head has one of its own."""
        lanes = self._ready[leader]
        taken = [lanes.popleft()]
        size_bytes = taken[0].queue[0].size_bytes
        while lanes and size_bytes + lanes[0].queue[0].size_bytes <= max_bytes:
            taken.append(lanes.popleft())
            size_bytes += taken[-1].queue[0].size_bytes
        self._ready_bytes[leader] -= sum(lane.size_bytes for lane in taken)
        if not lanes:
            del self._ready[leader], self._ready_bytes[leader]
        return _released(taken)

    def take_ready(self) -> list[Lane]:
        """Take out all lanes that are ready, as when their leaders may be others."""
        ready = [lane for lanes in self._ready.values() for lane in lanes]
        self._ready.clear()
        self._ready_bytes.clear()
        return _released(ready)

    def take_due(self, now: float) -> list[Lane]:
        """Take out the lanes whose wait is over."""
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heapq.heappop(self._later)[2])
        return _released(due)

    @property
    def next_due(self) -> float | None:
        """Give the time at which the first wait is over."""
        return self._later[0][0] if self._later else None

    def clear(self) -> None:
        """Forget all lanes."""
        self._ready.clear()
        self._ready_bytes.clear()
        self._later.clear()


def _released(lanes: list[Lane]) -> list[Lane]:
    for lane in lanes:
        lane.is_queued, lane.queued_for = False, None
    return lanes
