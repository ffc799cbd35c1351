"""The queue of partitions that have a batch to send: ready ones by leader, waiting ones by time.

Each step costs what it sends, however many partitions there are.
"""

import heapq
from collections import deque

from spark_eos.client.partition_queue import PartitionQueue


class SendQueue:
    """Partition queues that have a batch waiting and none in flight, each once; first in, first out."""

    def __init__(self) -> None:
        self._ready: dict[int, deque[PartitionQueue]] = {}
        self._ready_bytes: dict[int, int] = {}
        self._later: list[tuple[float, int, PartitionQueue]] = []
        self._added = 0

    def put(self, queue: PartitionQueue, leader: int) -> None:
        queue.is_queued, queue.queued_for = True, leader
        self._ready.setdefault(leader, deque()).append(queue)
        self._ready_bytes[leader] = self._ready_bytes.get(leader, 0) + queue.size_bytes

    def note_growth(self, queue: PartitionQueue, size_bytes: int) -> None:
        """Count a batch that was added to a queue after it was put here."""
        if queue.queued_for is not None:
            self._ready_bytes[queue.queued_for] += size_bytes

    def put_off(self, queue: PartitionQueue) -> None:
        queue.is_queued = True
        self._added += 1
        heapq.heappush(self._later, (queue.not_before, self._added, queue))

    def ready_bytes(self, leader: int | None) -> int:
        """Return how many bytes are in the queues that are ready for a leader, not only in their heads."""
        return self._ready_bytes.get(leader, 0) if leader is not None else 0

    def leaders(self, least_bytes: int) -> list[int]:
        return [leader for leader, size_bytes in self._ready_bytes.items() if size_bytes >= least_bytes]

    def take_request(self, leader: int, max_bytes: int) -> list[PartitionQueue]:
        """Remove queues of a leader whose heads fill one request; a larger head has a request of its own."""
        queues = self._ready[leader]
        taken = [queues.popleft()]
        size_bytes = taken[0].batches[0].size_bytes
        while queues and size_bytes + queues[0].batches[0].size_bytes <= max_bytes:
            taken.append(queues.popleft())
            size_bytes += taken[-1].batches[0].size_bytes
        self._ready_bytes[leader] -= sum(queue.size_bytes for queue in taken)
        if not queues:
            del self._ready[leader], self._ready_bytes[leader]
        return _released(taken)

    def take_ready(self) -> list[PartitionQueue]:
        ready = [queue for queues in self._ready.values() for queue in queues]
        self._ready.clear()
        self._ready_bytes.clear()
        return _released(ready)

    def take_due(self, now: float) -> list[PartitionQueue]:
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heapq.heappop(self._later)[2])
        return _released(due)

    @property
    def next_due(self) -> float | None:
        return self._later[0][0] if self._later else None

    def clear(self) -> None:
        self._ready.clear()
        self._ready_bytes.clear()
        self._later.clear()


def _released(queues: list[PartitionQueue]) -> list[PartitionQueue]:
    for queue in queues:
        queue.is_queued, queue.queued_for = False, None
    return queues
