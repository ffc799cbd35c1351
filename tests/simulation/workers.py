"""Consume, transform, produce: each record of one topic once into another, its offset in the same transaction."""

from typing import TYPE_CHECKING, Any

from tests.simulation.client import Client, GaveUpError
from tests.simulation.history import ASSIGN, COMMITTED, TXN, key_of
from tests.simulation.membership import Member
from tests.simulation.producers import AbortableError, FencedError, TransactionalProducer, become_owner, finish
from tests.simulation.readers import Cursor
from tests.support.history.format import FAIL, INVOKE, OK, READ_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP = "workers"
MARK = "|"
_LARGEST_BATCH = 4


class WorkerActor:
    """A worker that runs until the input has ended and is processed; the one with `is_last` stays for that."""

    def __init__(
        self,
        producer: TransactionalProducer,
        name: str,
        topics: tuple[str, str],
        partitions: int,
        *,
        is_last: bool,
        begins_after_ms: int = 0,
    ) -> None:
        self._begins_after_ms = begins_after_ms
        self.producer = producer
        self.world: World = producer.world
        self.name = name
        self._input, self._output = topics
        self._partitions = partitions
        self._is_last = is_last
        self._client: Client = producer.client
        self._member = Member(self._client, GROUP, self._input, partitions)
        self._random = self.world.random_of(name)
        self._count = 0

    def successor(self, name: str, begins_after_ms: int) -> "WorkerActor":
        """Make another process with the same id and duties."""
        producer = self.producer.of_another_process(Client(self.world, name, recalled=self._client.recalled))
        return WorkerActor(
            producer,
            name,
            (self._input, self._output),
            self._partitions,
            is_last=self._is_last,
            begins_after_ms=begins_after_ms,
        )

    def run(self) -> None:
        """Work until everything is processed."""
        self.world.fibers.sleep_ms(self._begins_after_ms)
        become_owner(self.producer)
        while not self._is_over():
            try:
                self._work_as_member()
            except (GaveUpError, FencedError) as error:
                self.world.scheduler.note(f"{self.name}: {error}")
                self._give_way()
                become_owner(self.producer)
        self._member.leave()
        if self._is_last:
            self.world.flags.add("work is done")
            self.world.record(self.name, INVOKE, COMMITTED)
            offsets = self._member.committed()
            self.world.record(
                self.name,
                OK,
                COMMITTED,
                [["offsets", GROUP, {key_of(self._input, partition): offset for partition, offset in offsets.items()}]],
            )
        self._client.close()

    def _is_over(self) -> bool:
        if not self._is_last:
            return "work is done" in self.world.flags
        if not self.world.is_calm or not self.world.all_done("producer"):
            return False
        committed = self._member.committed()
        return all(self._is_read(partition, committed.get(partition, 0)) for partition in range(self._partitions))

    def _is_read(self, partition: int, offset: int) -> bool:
        cursor = Cursor(self._client, self._input, partition, READ_COMMITTED, offset)
        while True:
            # One fetch ends at its segment's end, and may return no visible record.
            before = cursor.offset
            fetched = cursor.fetch()
            if fetched.records or fetched.next_offset >= fetched.high_watermark:
                return not fetched.records
            if fetched.next_offset == before:
                return False

    def _work_as_member(self) -> None:
        """Work as a member of one generation until it ends."""
        assigned = self._member.join()
        # From here on it reads from the group's offsets, which others may have advanced meanwhile.
        self.world.record(self.name, INVOKE, ASSIGN)
        self.world.record(self.name, OK, ASSIGN)
        committed = self._member.committed()
        cursors = {
            partition: Cursor(self._client, self._input, partition, READ_COMMITTED, committed.get(partition, 0))
            for partition in assigned
        }
        while self._member.is_alive() and not self._is_over():
            for partition, cursor in cursors.items():
                records = cursor.fetch().records[:_LARGEST_BATCH]
                if not records:
                    continue
                cursor.offset = records[-1][0] + 1
                if not self._transaction(partition, records):
                    return
            self.world.fibers.sleep_ms(self._random.randint(200, 2_500))

    def _give_way(self) -> None:
        """Leave the id to its new owner for some time: two processes that fence each other make no progress."""
        if self.world.has_rival(self.producer.transactional_id):
            self.world.fibers.sleep_ms(self._random.randint(1_000, 8_000))

    def _transaction(self, partition: int, records: list[tuple[int, str]]) -> bool:
        """Copy records in a transaction; return whether the membership may continue."""
        self._count += 1
        txn = f"{self.name}.{self._count}"
        key, from_key = key_of(self._output, partition), key_of(self._input, partition)
        values = [f"{txn}{MARK}{value}" for _, value in records]
        next_offset = records[-1][0] + 1
        done: list[Any] = [
            ["poll", {from_key: [list(each) for each in records]}],
            ["offsets", GROUP, {from_key: next_offset}],
        ]
        # With the offsets: a worker that is killed writes no second line, and its transaction may be committed.
        planned = [*done, *(["send", key, value] for value in values)]
        self.world.record(self.name, INVOKE, TXN, planned, transaction=txn)
        wants_commit, error = self._random.random() < 0.85, None
        try:
            self.producer.begin()
            first = self.producer.send(self._output, partition, values)
            done += [["send", key, [None if first is None else first + at, value]] for at, value in enumerate(values)]
            if self._random.random() < 0.3:
                self.world.fibers.sleep_ms(self._random.randint(1, 2_000))
            self.producer.commit_offsets(
                GROUP, self._input, {partition: next_offset}, (self._member.member_id, self._member.generation)
            )
        except AbortableError as abortable:
            wants_commit, error = False, str(abortable)
        except (FencedError, GaveUpError) as fenced:
            self.world.record(self.name, FAIL, TXN, done, transaction=txn, error=str(fenced))
            self._give_way()
            become_owner(self.producer)
            return False
        outcome, error, usable = finish(self.producer, wants_commit=wants_commit, error=error)
        self.world.record(self.name, outcome, TXN, done, transaction=txn, error=error)
        if not usable:
            self._give_way()
            become_owner(self.producer)
        return outcome == OK
