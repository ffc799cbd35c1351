"""Readers of both isolation levels, with Kafka's own algorithm for aborted records, on kafka-python's batches."""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.record import MemoryRecords

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.simulation.client import RETRIED, Client, GaveUpError
from tests.simulation.history import DRAINED, POLL, READ_UNCOMMITTED, key_of
from tests.support.history.format import INVOKE, OK, READ_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.world import World

LEVEL = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
_MAX_BYTES = 1 << 20
_ABORT = 0


class Fetched(NamedTuple):
    """The result of one fetch of one partition: visible records, and the next offset."""

    records: list[tuple[int, str]]
    next_offset: int
    last_stable_offset: int
    high_watermark: int


class Cursor:
    """A reader of one partition from its start."""

    def __init__(self, client: Client, topic: str, partition: int, isolation: str, offset: int = 0) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._isolation = isolation
        self.offset = offset
        # It sends no leader epoch, so a broker whose log ends earlier cannot detect that it is behind.
        self._retried = RETRIED | {ErrorCode.OFFSET_OUT_OF_RANGE} if client.world.plan.has_stale_brokers else RETRIED

    def fetch(self, *, max_wait_ms: int = 0, patience_ms: int = 30_000) -> Fetched:
        """Fetch once and advance; raise `GaveUpError`."""
        offset = self.offset
        topic = m.FetchRequest.FetchTopic

        def fetching() -> Any:
            return m.FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=_MAX_BYTES,
                isolation_level=LEVEL[self._isolation],
                session_id=0,
                session_epoch=-1,
                forgotten_topics_data=[],
                rack_id="",
                topics=[
                    topic(
                        topic=self._topic,
                        partitions=[
                            topic.FetchPartition(
                                partition=self._partition,
                                current_leader_epoch=-1,
                                fetch_offset=offset,
                                log_start_offset=-1,
                                partition_max_bytes=_MAX_BYTES,
                            )
                        ],
                    )
                ],
            )

        answer, code, _ = self._client.ask_leader(
            self._topic,
            self._partition,
            fetching,
            11,
            lambda found: int(found.error_code or found.responses[0].partitions[0].error_code),
            retried=self._retried,
            patience_ms=patience_ms,
        )
        if code != ErrorCode.NONE:
            raise AssertionError(f"a fetch of {self._topic}-{self._partition} at {offset} was refused: {code.name}")
        part = answer.responses[0].partitions[0]
        aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
        if self._isolation == READ_UNCOMMITTED and part.aborted_transactions:
            raise AssertionError("a read_uncommitted fetch response lists aborted transactions, which would be hidden")
        records, self.offset = visible(bytes(part.records or b""), offset, self._isolation, aborted)
        return Fetched(records, self.offset, part.last_stable_offset, part.high_watermark)


def batches_of(data: bytes) -> Iterator[Any]:
    """Yield the batches in a fetch response."""
    found = MemoryRecords(data)
    while found.has_next():
        yield found.next_batch()


def visible(
    data: bytes, offset: int, isolation: str, aborted: list[tuple[int, int]]
) -> tuple[list[tuple[int, str]], int]:
    """Return the records that a consumer delivers, and its next offset (rules D.2)."""
    heapq.heapify(aborted)
    hidden: set[int] = set()
    records: list[tuple[int, str]] = []
    for batch in batches_of(data):
        if isolation == READ_COMMITTED:
            while aborted and aborted[0][0] <= batch.last_offset:
                hidden.add(heapq.heappop(aborted)[1])
        if batch.is_control_batch:
            if next(iter(batch)).key[2:4] == _ABORT.to_bytes(2, "big"):
                hidden.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in hidden):
            records += [(record.offset, record.value.decode()) for record in batch if record.offset >= offset]
        offset = max(offset, batch.next_offset)
    return records, offset


class ReaderActor:
    """A consumer of all partitions of a topic until the world is quiet."""

    def __init__(self, client: Client, name: str, topic: str, partitions: int, isolation: str) -> None:
        self.world: World = client.world
        self.name = name
        self.isolation = isolation
        self._client = client
        self._cursors = {
            key_of(topic, partition): Cursor(client, topic, partition, isolation) for partition in range(partitions)
        }

    def run(self) -> None:
        """Read."""
        random = self.world.random_of(self.name)
        while not self.world.is_quiet:
            self.poll(max_wait_ms=random.choice((0, 0, 300)))
            low_ms, high_ms = (5_000, 20_000) if self.world.is_calm else (200, 2_500)
            self.world.fibers.sleep_ms(random.randint(low_ms, high_ms))
        while not self.poll():
            pass
        self.world.record(self.name, INVOKE, DRAINED)
        self.world.record(self.name, OK, DRAINED, {key: cursor.offset for key, cursor in self._cursors.items()})
        self._client.close()

    def poll(self, *, max_wait_ms: int = 0) -> bool:
        """Fetch from every partition once; return whether everything was read."""
        self.world.record(self.name, INVOKE, POLL, isolation=self.isolation)
        found: dict[str, Any] = {}
        is_done = True
        for key, cursor in self._cursors.items():
            try:
                fetched = cursor.fetch(max_wait_ms=max_wait_ms, patience_ms=2_000)
            except GaveUpError:
                is_done = False
                continue
            end = fetched.last_stable_offset if self.isolation == READ_COMMITTED else fetched.high_watermark
            is_done &= fetched.next_offset >= end
            if fetched.records:
                found[key] = [list(each) for each in fetched.records]
        self.world.record(self.name, OK, POLL, [["poll", found]], isolation=self.isolation)
        return is_done
