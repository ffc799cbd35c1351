"""The queue of partitions that have a batch to send: ready ones by leader, waiting ones by time.

Each step costs what it sends, however many partitions there are.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

from broker_core.types import NO_LEADER_EPOCH, TopicPartition, next_sequence
from spark_eos.codec.encoded_batch import EncodedBatch, seal
from spark_eos.open_transaction import OpenTransaction


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What a transaction wrote to one partition; offsets of other producers may lie between first and last.

    `leader_epoch` belongs to the leader to which the first batch was sent, or is an earlier one.
    `next_sequence` follows the last record.
    """

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    leader_epoch: int = NO_LEADER_EPOCH
    next_sequence: int = 0


@dataclass(slots=True)
class PartitionQueue:
    """The batches of a transaction for one partition, which are numbered when they are sent.

    One request is in flight for each partition, so batches arrive in order, a repeated batch is always the last one the
    leader knows, and a refused batch was certainly not followed by a later one: its records may be split and numbered
    again.
    """

    topic_partition: TopicPartition
    sequence: int = 0
    batches: deque[EncodedBatch] = field(default_factory=deque)
    in_flight: bool = False
    # In the send queue: for a leader, or for later if there is none.
    is_queued: bool = False
    queued_for: int | None = None
    size_bytes: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    attempts: int = 0
    # How many of the attempts were sent and got no response.
    unanswered: int = 0
    unsure: bool = False
    first_attempt_at: float = 0.0
    not_before: float = 0.0
    last_trouble: str = ""
    result: PartitionResult | None = None
    _sealed: bool = False

    def append(self, batch: EncodedBatch) -> None:
        self.batches.append(batch)
        self.size_bytes += batch.size_bytes

    def take(self, identity: OpenTransaction, now: float) -> bytearray:
        """Seal the head (its CRC is computed here, once for each numbering) and mark it as in flight."""
        head = self.batches[0]
        if not self._sealed:
            seal(
                head,
                producer_id=identity.producer.producer_id,
                producer_epoch=identity.producer.producer_epoch,
                base_sequence=self.sequence,
            )
            self._sealed = True
        if self.attempts == 0:
            self.first_attempt_at = now
        self.attempts += 1
        self.in_flight = True
        return head.data

    def acknowledge(self, base_offset: int) -> int:
        head = self.batches.popleft()
        self.size_bytes -= head.size_bytes
        last_offset = base_offset + head.record_count - 1
        before = self.result
        self.sequence = next_sequence(self.sequence, head.record_count)
        self.result = PartitionResult(
            first_offset=base_offset if before is None else before.first_offset,
            last_offset=last_offset,
            record_count=head.record_count + (0 if before is None else before.record_count),
            size_bytes=head.size_bytes + (0 if before is None else before.size_bytes),
            leader_epoch=self.leader_epoch if before is None else before.leader_epoch,
            next_sequence=self.sequence,
        )
        self._start_over()
        return head.size_bytes

    def split_head(self) -> int:
        head = self.batches.popleft()
        # Imported here, because hardly any batch is too large.
        from spark_eos.codec.encode import split

        halves = split(head)
        self.batches.extendleft(reversed(halves))
        self._start_over()
        grown_bytes = sum(half.size_bytes for half in halves) - head.size_bytes
        self.size_bytes += grown_bytes
        return grown_bytes

    def retry_later(self, not_before: float, trouble: str, *, unsure: bool) -> None:
        """Keep the head as it is, numbers included, for another attempt."""
        self.in_flight = False
        self.not_before = not_before
        self.last_trouble = trouble
        self.unsure = self.unsure or unsure

    def _start_over(self) -> None:
        self.in_flight = False
        self.attempts = self.unanswered = 0
        self.unsure = False
        self.not_before = 0.0
        self.last_trouble = ""
        self._sealed = False


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
