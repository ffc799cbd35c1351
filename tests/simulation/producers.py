"""Transactional producers of both protocols, like Java's: their retries, fencing, and timeouts.

The history has each transaction's outcome as its client knows it: `ok`, `fail` or `info`. A client reports only what it
can be sure of, and the judge compares each such report with what readers saw.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.simulation.client import GROUP, TRANSACTION, Client, GaveUpError
from tests.simulation.history import TXN, key_of
from tests.support.history.format import FAIL, INFO, INVOKE, OK
from tests.support.raw_session import Identity, record_batch

if TYPE_CHECKING:
    from tests.simulation.world import World

E = ErrorCode
CLASSIC, V2 = 1, 2
PRODUCE, END, OFFSETS = {CLASSIC: 11, V2: 12}, {CLASSIC: 4, V2: 5}, {CLASSIC: 4, V2: 5}
FENCING = frozenset({E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING})
NOBODY = Identity(-1, -1)
# Requests that a client of the old protocol takes back when it gives up on them, so that they cannot arrive in its next
# transaction: all its transactions share one epoch. A late EndTxn would end the next transaction, and late offsets
# would be committed with it; the protocol allows that (KIP-890). Other late requests fail a sequence check, or add a
# partition that gets a marker and nothing more.
UNPROTECTED = frozenset({m.EndTxnRequest.API_KEY, m.TxnOffsetCommitRequest.API_KEY})


def recalled(protocol: int, *, verifies: bool) -> frozenset[int]:
    """Return the APIs whose late requests would do harm by design; `verifies`: whether the broker verifies old batches.

    Where it does not, a late batch opens a transaction that no client ends (KIP-890, part 1).
    """
    if protocol != CLASSIC:
        return frozenset()
    return UNPROTECTED if verifies else UNPROTECTED | {m.ProduceRequest.API_KEY}


class FencedError(Exception):
    """Another client owns the id, or the transaction was ended by its coordinator.

    `is_certain`: the transaction cannot have been committed, because the only request for it was refused.
    """

    def __init__(self, text: str, *, is_certain: bool = False) -> None:
        super().__init__(text)
        self.is_certain = is_certain


class AbortableError(Exception):
    """The transaction can only be aborted."""


class TransactionalProducer:
    """One transactional id in one process."""

    def __init__(self, client: Client, transactional_id: str, protocol: int, *, timeout_ms: int) -> None:
        self.client = client
        self.world: World = client.world
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.timeout_ms = timeout_ms
        self.identity = NOBODY
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        self._groups: set[str] = set()
        # A batch without a response may still arrive, so only a new epoch makes the next transaction safe.
        self._is_unsure = False
        self.world.claim(transactional_id)

    def of_another_process(self, client: Client) -> "TransactionalProducer":
        """Make a producer of the same id in another process: a successor, or a rival."""
        return TransactionalProducer(client, self.transactional_id, self.protocol, timeout_ms=self.timeout_ms)

    # Identity

    def init(self) -> None:
        """Initialize the id: abort its open transaction, fence its former owner."""
        self._initialise(NOBODY)

    def _initialise(self, expected: Identity) -> None:
        def initialisation() -> Any:
            return m.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=expected.producer_id,
                producer_epoch=expected.producer_epoch,
            )

        answer, code, _ = self.client.ask_coordinator(
            TRANSACTION, self.transactional_id, initialisation, 4 if self.protocol == CLASSIC else 5
        )
        if code != E.NONE:
            raise FencedError(code.name)
        self._hold(Identity(answer.producer_id, answer.producer_epoch))

    def _hold(self, identity: Identity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity
        self.world.users.setdefault(identity.producer_id, set()).add((self.client.name, self.protocol))
        self._is_unsure = False

    # One transaction

    def begin(self) -> None:
        """Begin a transaction; sends nothing unless requests of the last one may still be under way."""
        self._added.clear()
        self._groups.clear()
        if self._is_unsure:
            # KIP-360: a new epoch refuses what may still arrive.
            self._initialise(self.identity)

    def send(self, topic: str, partition: int, values: list[str]) -> int | None:
        """Write records in one batch and return the first one's offset; None if the broker reports a duplicate."""
        if self.protocol == CLASSIC and (topic, partition) not in self._added:
            self._add(topic, partition)
        sequence = self._sequences.get((topic, partition), 0)
        batch = record_batch(
            [value.encode() for value in values], self.identity, sequence, timestamp_ms=self.world.clock.now_ms()
        )
        form = m.ProduceRequest.TopicProduceData

        def production() -> Any:
            return m.ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=1_000,
                topic_data=[
                    form(name=topic, partition_data=[form.PartitionProduceData(index=partition, records=batch)])
                ],
            )

        try:
            answer, code, _ = self.client.ask_leader(
                topic,
                partition,
                production,
                PRODUCE[self.protocol],
                lambda found: int(found.responses[0].partition_responses[0].error_code),
                patience_ms=8_000,
            )
        except GaveUpError as error:
            self._is_unsure = True
            raise AbortableError(str(error)) from error
        if code == E.DUPLICATE_SEQUENCE_NUMBER:
            self._sequences[topic, partition] = sequence + len(values)
            return None
        self._judge(code)
        self._sequences[topic, partition] = sequence + len(values)
        return int(answer.responses[0].partition_responses[0].base_offset)

    def _add(self, topic: str, partition: int) -> None:
        form = m.AddPartitionsToTxnRequest

        def addition() -> Any:
            return form(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.producer_epoch,
                v3_and_below_topics=[form.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            )

        self._ask(
            addition,
            3,
            lambda found: int(found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
        )
        self._added.add((topic, partition))

    def commit_offsets(
        self, group: str, topic: str, offsets: dict[int, int], member: tuple[str, int] = ("", -1)
    ) -> None:
        """Commit a group's offsets within the transaction, as a member of a generation."""
        if self.protocol == CLASSIC and group not in self._groups:
            self._ask(
                lambda: m.AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.producer_epoch,
                    group_id=group,
                ),
                3,
            )
            self._groups.add(group)
        topics = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic

        def offset_commit() -> Any:
            return m.TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                generation_id_or_member_epoch=member[1],
                member_id=member[0],
                group_instance_id=None,
                topics=[
                    topics(
                        name=topic,
                        partitions=[
                            topics.TxnOffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                            for partition, offset in offsets.items()
                        ],
                    )
                ],
            )

        try:
            _, code, _ = self.client.ask_coordinator(
                GROUP,
                group,
                offset_commit,
                OFFSETS[self.protocol],
                lambda found: max(part.error_code for each in found.topics for part in each.partitions),
                patience_ms=8_000,
            )
        except GaveUpError as error:
            self._is_unsure = True
            raise AbortableError(str(error)) from error
        self._judge(code)

    def _ask(self, make: Callable[[], Any], version: int, code_of: Any = lambda found: int(found.error_code)) -> None:
        try:
            _, code, _ = self.client.ask_coordinator(
                TRANSACTION, self.transactional_id, make, version, code_of, patience_ms=8_000
            )
        except GaveUpError as error:
            self._is_unsure = True
            raise AbortableError(str(error)) from error
        self._judge(code)

    def _judge(self, code: ErrorCode) -> None:
        if code in FENCING:
            raise FencedError(code.name)
        if code != E.NONE:
            self._is_unsure = True
            raise AbortableError(code.name)

    def end(self, *, commit: bool) -> None:
        """End the transaction; raise `FencedError` if it ended otherwise, `GaveUpError` if no response comes."""

        def ending() -> Any:
            return m.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                committed=commit,
            )

        answer, code, unanswered = self.client.ask_coordinator(
            TRANSACTION, self.transactional_id, ending, END[self.protocol]
        )
        if code != E.NONE:
            raise FencedError(code.name, is_certain=unanswered == 0)
        if self.protocol == V2 and answer.producer_id >= 0:
            self._hold(Identity(answer.producer_id, answer.producer_epoch))


class ProducerActor:
    """A producer that writes transactions one after another until the trouble is over."""

    def __init__(
        self,
        producer: TransactionalProducer,
        name: str,
        topic: str,
        partitions: int,
        count: int,
        *,
        begins_after_ms: int = 0,
        is_hurried: bool = False,
    ) -> None:
        self._begins_after_ms = begins_after_ms
        # A hurried producer begins the next transaction at once and keeps it open, so that late requests arrive in it.
        self._is_hurried = is_hurried
        self.producer = producer
        self.world = producer.world
        self.name = name
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self._random = producer.world.random_of(name)

    def successor(self, name: str, begins_after_ms: int) -> "ProducerActor":
        """Make another process that uses the same id."""
        client = Client(self.world, name, recalled=self.producer.client.recalled)
        producer = self.producer.of_another_process(client)
        return ProducerActor(
            producer,
            name,
            self._topic,
            self._partitions,
            2,
            begins_after_ms=begins_after_ms,
            is_hurried=self._is_hurried,
        )

    def run(self) -> None:
        """Write the transactions."""
        try:
            self.world.fibers.sleep_ms(self._begins_after_ms)
            become_owner(self.producer)
            for number in range(self._count):
                self.world.fibers.sleep_ms(self._random.randint(1, 60 if self._is_hurried else 800))
                if not self._transaction(f"{self.name}.{number}"):
                    if self.world.has_rival(self.producer.transactional_id):
                        # A producer that was replaced stops.
                        break
                    become_owner(self.producer)
        except (FencedError, GaveUpError) as error:
            self.world.scheduler.note(f"{self.name} ends: {error}")
        self.producer.client.close()

    def _transaction(self, txn: str) -> bool:
        """Run one transaction; return whether the producer can continue."""
        random = self._random
        plan = [
            (random.randrange(self._partitions), [f"{txn}:{step}:{place}" for place in range(random.choice((1, 1, 2)))])
            for step in range(random.randint(1, 3))
        ]
        self.world.record(
            self.name,
            INVOKE,
            TXN,
            [["send", key_of(self._topic, partition), value] for partition, values in plan for value in values],
            transaction=txn,
        )
        written: list[Any] = []
        error = None
        wants_commit = random.random() < 0.75
        try:
            self.producer.begin()
            for partition, values in plan:
                first = self.producer.send(self._topic, partition, values)
                written += [
                    ["send", key_of(self._topic, partition), [None if first is None else first + place, value]]
                    for place, value in enumerate(values)
                ]
                if random.random() < (0.9 if self._is_hurried else 0.4):
                    self.world.fibers.sleep_ms(random.randint(1, 1_200))
        except AbortableError as abortable:
            wants_commit, error = False, str(abortable)
        except (FencedError, GaveUpError) as fenced:
            self.world.record(self.name, FAIL, TXN, written, transaction=txn, error=str(fenced))
            return False
        outcome, error, usable = finish(self.producer, wants_commit=wants_commit, error=error)
        self.world.record(self.name, outcome, TXN, written, transaction=txn, error=error)
        return usable


def become_owner(producer: TransactionalProducer) -> None:
    """Initialize the id, with retries until the calm."""
    while True:
        try:
            return producer.init()
        except GaveUpError:
            if producer.world.is_calm:
                raise


def finish(
    producer: TransactionalProducer, *, wants_commit: bool, error: str | None = None
) -> tuple[str, str | None, bool]:
    """End a transaction; return its outcome, the error that led to it, and whether the producer can continue."""
    try:
        producer.end(commit=wants_commit)
    except FencedError as fenced:
        return (INFO if wants_commit and not fenced.is_certain else FAIL), error or str(fenced), False
    except GaveUpError as gave_up:
        return (INFO if wants_commit else FAIL), error or str(gave_up), False
    return (OK if wants_commit else FAIL), error, True
