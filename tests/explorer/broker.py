"""broker_core beside the model: each request to the model goes to a broker in a simulated world, too.

The requests go through the sink's own cluster and client. Producer ids, offsets, topic ids and times differ from those
of the model, so they are translated on the way; each answer must then be that of the model. What readers see of the
output topic and what coordinators say of every id is compared after each step.

An answer of a coordinator that is cut off must be one that the broker gave before. An answer that is lost is not asked
for, and its request is sent when the story applies it.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeVar
from unittest.mock import patch
from uuid import UUID

from broker_core.coordinator.groups.offsets.store import OffsetCommit, OffsetToCommit
from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CONSUMER_OFFSETS_TOPIC, AbortedTransaction, ProducerIdentity, TopicPartition
from spark_eos.client.producer import TransactionalProducer
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import EosKafkaError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.sink import sink_options
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.factory import cluster_of
from spark_eos.sink.protocol import answers, asks
from tests.explorer import model as kafka
from tests.explorer import tasks
from tests.explorer.model import DATA, DECISIONS, GROUPS, STRANGER, TIMEOUT_MS, Model, Row
from tests.explorer.process import given_to
from tests.explorer.state import Bounds
from tests.simulation.history import key_of
from tests.simulation.judge import final_view
from tests.simulation.plan import calm
from tests.simulation.world import World, calm_world
from tests.support.history.format import READ_COMMITTED

Result = TypeVar("Result")
# Longer than it takes to write all markers.
_REST_US: Final = 200_000
_HELD_UP: Final = "another-producer"
_FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class DifferenceError(AssertionError):
    """An answer of the broker that is not the model's."""


class Made(NamedTuple):
    """One use of a function of the model, with what it returned."""

    name: str
    arguments: tuple[Any, ...]
    result: Any


@contextlib.contextmanager
def recorded() -> Iterator[list[Made]]:
    """Note each call of the model's functions from outside of the model."""
    made: list[Made] = []
    within: list[str] = []

    def noting(name: str, right: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if within:
                return right(*arguments)
            # A task initializes its id by a request of its own.
            within.extend([name] if name != _WRITE else [])
            try:
                result = right(*arguments)
            finally:
                within.clear()
            made.append(Made(name, arguments, result))
            return result

        return noted

    with contextlib.ExitStack() as patches:
        for name in _OF_THE_MODEL:
            patches.enter_context(patch.object(kafka, name, noting(name, getattr(kafka, name))))
        patches.enter_context(patch.object(tasks, _WRITE, noting(_WRITE, getattr(tasks, _WRITE))))
        yield made


_WRITE: Final = "prepared_by_task"
_OF_THE_MODEL: Final = [
    "initialized",
    "started",
    "appended",
    "ended",
    "timed_out",
    "forgotten",
    "moved_back",
    "with_level",
    "with_new_topic",
    "held_up",
    "let_go",
    "leader_left",
    "leader_returned",
    "read",
]


@contextlib.contextmanager
def broker_beside(bounds: Bounds) -> Iterator["BrokerBeside"]:
    """Start a broker in a simulated world, for the worlds of some bounds."""
    partitions = bounds.tasks + bounds.has_empty
    settings = {"transaction.version": str(bounds.level), **_NOTHING_TIMES_OUT}
    with calm_world(calm(DATA, partitions, DECISIONS.topic, min(GROUPS.values()), settings)) as world:
        yield BrokerBeside(world, partitions)


# The story says what times out.
_NOTHING_TIMES_OUT: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000000000"}


class BrokerBeside:
    """The broker, and what of it stands for what of the model."""

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self._partitions = partitions
        self._options = sink_options(
            {
                "kafka.bootstrap.servers": "broker1:9092",
                "topic": DATA,
                "transactionalIdPrefix": kafka.PREFIXES[0],
                "decisionTopic": DECISIONS.topic,
            }
        )
        # By what the model has.
        self._producers: dict[int, int] = {}
        self._topics: dict[UUID, UUID] = {}
        self._offsets: dict[TopicPartition, list[int]] = {}
        # The process of each driver that writes a decision, by its identity.
        self._writers: dict[ProducerIdentity, int] = {}
        self._names: dict[str, None] = {}
        # What coordinators have said so far, of ids and of groups' pointers.
        self._said: set[tuple[Any, ...]] = {(group,) for group in GROUPS.values()}
        self._process = world.new_process_id()
        self._learn_topic(0)

    def make(self, made: Made) -> None:
        """Ask the broker what the model was asked, and compare the answers."""
        getattr(self, f"_{made.name}")(made.result, *made.arguments[1:])
        self._world.scheduler.run(self._world.scheduler.now_us + _REST_US)
        if made.name not in ("read", _WRITE):
            self._listen()

    def compare(self, model: Model) -> None:
        """Compare what readers see of the output topic, and what coordinators say, with the model."""
        said = self._listen()
        _same("the coordinators", {name: (each.state, each.identity) for name, each in model.ids}, said)
        seen = final_view(self._world, READ_COMMITTED)
        for partition, rows in enumerate(model.data):
            shown = [value for _, value in seen[key_of(DATA, partition)]]
            _same(
                f"partition {partition} of the output", [_text(row) for row in _stable(rows) if row.is_committed], shown
            )

    # What changes Kafka

    def _initialized(self, result: tuple[Model, OpenTransaction], name: str) -> None:
        expected = result[1]
        found = self._do(lambda cluster: cluster.init_producer_id(name, TIMEOUT_MS))
        self._names[name] = None
        self._producers.setdefault(expected.producer.producer_id, found.producer.producer_id)
        _same(f"InitProducerId of {name}", expected, found._replace(producer=self._modelled(found.producer)))

    def _started(self, result: tuple[Model, answers.Appended], write: answers.DecisionWrite, _: int) -> None:
        process = self._writers.setdefault(write.transaction.producer, self._world.new_process_id())
        first = self._end_of(DECISIONS)
        found = self._do(lambda cluster: cluster.start_decision(self._write(write)), process)
        _same("the beginning of a decision", result[1].code in _FENCED, found.code in _FENCED)
        if len(result[0].decisions) > len(self._offsets.setdefault(DECISIONS, [])):
            self._offsets[DECISIONS] += range(first, first + len(write.records))

    def _appended(self, result: tuple[Model, answers.Appended], write: answers.DecisionWrite) -> None:
        process = self._writers[write.transaction.producer]
        found = self._do(lambda cluster: cluster.append_decision(self._write(write)), process)
        _same("the acceptance of a decision", result[1].code in _FENCED, found.code in _FENCED)
        _same("the pointer before a decision", result[1].offsets, tuple(map(self._pointer, found.offsets)))

    def _ended(self, result: tuple[Model, EndAnswer], ending: kafka.Ending) -> None:
        opened = ending.opened._replace(producer=self._real(ending.opened.producer))
        found = self._do(lambda cluster: cluster.end_transactions([opened], ending.commit))[opened.transactional_id]
        following = None if found.next_identity is None else self._modelled(found.next_identity)
        _same(f"EndTxn of {opened.transactional_id}", result[1], EndAnswer(found.code, following))

    def _timed_out(self, _: Model, name: str) -> None:
        def time_out(cluster: Any) -> None:
            coordinator = cluster.brokers[1].transactions
            coordinator.completion.abort_ongoing(coordinator.store.find(name), self._world.clock.now_ms())

        self._world.server.act(time_out)

    def _forgotten(self, _: Model, name: str) -> None:
        def forget(cluster: Any) -> None:
            store = cluster.brokers[1].transactions.store
            store.remove(store.partition_for(name), [name], self._world.clock.now_ms())

        self._world.server.act(forget)

    def _moved_back(self, _: Model, group: str, earlier: answers.CommittedOffset | None) -> None:
        def move_back(cluster: Any) -> None:
            coordinator, now_ms = cluster.brokers[1].groups, self._world.clock.now_ms()
            if earlier is None:
                coordinator.delete_offsets(group, [DECISIONS], now_ms)
            else:
                offset = OffsetToCommit(self._offset(DECISIONS, earlier.offset), metadata=earlier.metadata)
                coordinator.commit_offsets(OffsetCommit(group, {DECISIONS: offset}), now_ms)

        self._world.server.act(move_back)

    def _with_level(self, _: Model, level: int) -> None:
        self._world.server.act(lambda cluster: cluster.metadata.set_feature("transaction.version", level))
        # A new process opens new connections, which tell the level.
        self._process = self._world.new_process_id()

    def _with_new_topic(self, result: Model) -> None:
        def make_again(cluster: Any) -> None:
            cluster.controller.delete_topic(DATA)
            cluster.controller.create_topic(DATA, self._partitions)

        self._world.server.act(make_again)
        self._offsets = {DECISIONS: self._offsets.get(DECISIONS, [])}
        self._learn_topic(result.remade)

    def _prepared_by_task(self, result: tuple[Model, Any], _run: int, split: int, *_: Any) -> None:
        self._append_row(result[1].opened, split, result[0].data[split][-1])

    def _held_up(self, result: Model) -> None:
        found = self._do(lambda cluster: cluster.init_producer_id(_HELD_UP, TIMEOUT_MS))
        self._producers[STRANGER.producer_id] = found.producer.producer_id
        opened = OpenTransaction(_HELD_UP, STRANGER, found.transaction_version)
        self._append_row(opened, 0, result.data[0][0])

    def _let_go(self, result: Model) -> None:
        opened = OpenTransaction(_HELD_UP, self._real(STRANGER), min(result.level, 2))
        self._do(lambda cluster: cluster.end_transactions([opened], True))

    def _leader_left(self, _: Model) -> None:
        self._world.server.act(lambda cluster: cluster.controller.lose_leader(TopicPartition(DATA, 0)))

    def _leader_returned(self, _: Model) -> None:
        self._world.server.act(lambda cluster: cluster.controller.elect(TopicPartition(DATA, 0), 1))

    def _append_row(self, opened: OpenTransaction, split: int, row: Row) -> None:
        place = TopicPartition(DATA, split)
        batch = build_batch([NewRecord(None, _text(row).encode(), timestamp_ms=0)])

        def append(cluster: KafkaCluster) -> int:
            producer = TransactionalProducer(cluster.client)
            producer.begin(opened._replace(producer=self._real(opened.producer)))
            producer.send(place, [EncodedBatch(bytearray(batch), 1)])
            return producer.flush()[place].first_offset

        self._offsets.setdefault(place, []).append(self._do(append))

    # What reads

    def _read(self, result: Any, ask: asks.KafkaAsk[Any], past: kafka.Past) -> None:
        if past != kafka.Past():
            self._check_said(past)
            return
        try:
            found = self._do(lambda cluster: getattr(cluster, ask.method)(*self._real_ask(ask).arguments()))
        except EosKafkaError as error:
            _same(type(ask).__name__, result, ("raise", _ERRORS.get(type(error).__name__, str(error))))
            return
        is_error = isinstance(result, tuple) and result[:1] == ("raise",)
        expected = result if is_error else self._comparable(ask, given_to(ask, result))
        _same(type(ask).__name__, expected, self._comparable(ask, self._modelled_answer(ask, found)))

    def _check_said(self, past: kafka.Past) -> None:
        """Check that a coordinator that was cut off at some time would give an answer."""
        # Each id was unknown once.
        wanted: list[tuple[Any, ...]] = [(name, each.state, each.identity) for name, each in past.ids if each]
        wanted += [(group,) if pointer is None else (group, pointer) for group, pointer in past.pointers]
        for each in wanted:
            if each not in self._said:
                raise DifferenceError(f"No coordinator ever said {each}")

    def _listen(self) -> dict[str, tuple[Any, ...]]:
        """Note what coordinators say now; return the state and the identity of each id."""
        described = self._do(lambda cluster: cluster.describe_transactions(list(self._names)) if self._names else {})
        said = {name: (each.state, self._modelled(each.producer)) for name, each in described.items()}
        self._said |= {(name, *each) for name, each in said.items()}
        pointers = self._do(lambda cluster: [(group, cluster.last_offsets(group)) for group in GROUPS.values()])
        self._said |= {(group, *map(self._pointer, found)) for group, found in pointers}
        return said

    # Translations

    def _real_ask(self, ask: Any) -> asks.KafkaAsk[Any]:
        match ask:
            case asks.Views():
                return replace(ask, offsets={place: self._offset(place, at) for place, at in ask.offsets.items()})
            case asks.UnstableEnds():
                place = ask.topic_partition
                offsets = {self._producers[each]: self._offset(place, at) for each, at in ask.offsets.items()}
                return replace(ask, offsets=offsets)
            case asks.ReadRecords():
                return replace(ask, offset=self._offset(ask.topic_partition, ask.offset))
            case asks.FindRecords():
                starts = {place: at and self._offset(place, at) for place, at in ask.starts.items()}
                return replace(ask, starts=starts)
            case asks.ReplacedTopics():
                return replace(
                    ask, written={name: {self._topics[id] for id in ids} for name, ids in ask.written.items()}
                )
        return ask

    def _modelled_answer(self, ask: asks.KafkaAsk[Any], found: Any) -> Any:
        match ask:
            case asks.DescribeTransactions():
                return {name: each._replace(producer=self._modelled(each.producer)) for name, each in found.items()}
            case asks.CommittedOffsets() | asks.LastOffsets():
                return tuple(map(self._pointer, found))
            case asks.ReadRecords():
                return tuple(self._record(ask.topic_partition, each) for each in found)
            case asks.FindRecords():
                return answers.FoundRecords(
                    tuple((place, self._record(place, each)) for place, each in found.records),
                    tuple((place, self._record(place, each)) for place, each in found.unended),
                    {place: self._index(place, end) for place, end in found.ends.items()},
                )
            case asks.Views():
                return {place: self._view(place, each) for place, each in found.items()}
            case asks.UnstableEnds():
                numbers = {real: number for number, real in self._producers.items()}
                return {numbers[each]: is_commit for each, is_commit in found.items()}
        return found

    @staticmethod
    def _comparable(ask: asks.KafkaAsk[Any], answer: Any) -> Any:
        """Return what of an answer the model determines: not the times, nor the order of ids."""
        match ask:
            case asks.DescribeTransactions():
                return {
                    name: (
                        each.state,
                        each.producer,
                        {p for p in each.topic_partitions if p.topic != CONSUMER_OFFSETS_TOPIC},
                    )
                    for name, each in answer.items()
                }
            case asks.Views():
                # A fetch may return fewer batches, and aborted transactions that began before its offset.
                at = ask.offsets
                return {
                    place: each
                    and each._replace(
                        batches=each.batches[:1],
                        aborted=tuple(a for a in each.aborted if a.first_offset == at[place]),
                    )
                    for place, each in answer.items()
                }
            case asks.OpenTransactions() | asks.ReplacedTopics():
                return set(answer)
        return answer

    def _view(self, place: TopicPartition, view: answers.CommittedView) -> answers.CommittedView:
        return answers.CommittedView(
            self._index(place, view.last_stable_offset),
            tuple(
                each._replace(
                    first_offset=self._index(place, each.first_offset),
                    last_offset=self._index(place, each.last_offset),
                    producer=self._modelled(each.producer),
                )
                for each in view.batches
            ),
            tuple(
                AbortedTransaction(
                    self._modelled(ProducerIdentity(each.producer_id, 0)).producer_id,
                    self._index(place, each.first_offset),
                )
                for each in view.aborted
            ),
        )

    def _record(self, place: TopicPartition, record: answers.KeyedRecord) -> answers.KeyedRecord:
        producer = record.producer and self._modelled(record.producer)
        return record._replace(offset=self._index(place, record.offset), producer=producer)

    def _pointer(self, found: answers.CommittedOffset) -> answers.CommittedOffset:
        return found._replace(offset=self._index(found.topic_partition, found.offset))

    def _write(self, write: answers.DecisionWrite) -> answers.DecisionWrite:
        """Return what a driver writes; the time that is left is the model's."""
        transaction = write.transaction._replace(producer=self._real(write.transaction.producer))
        return write._replace(transaction=transaction, decide_by_ms=None)

    def _real(self, identity: ProducerIdentity) -> ProducerIdentity:
        return identity._replace(producer_id=self._producers[identity.producer_id])

    def _modelled(self, identity: ProducerIdentity) -> ProducerIdentity:
        numbers = {real: number for number, real in self._producers.items()}
        return identity._replace(producer_id=numbers[identity.producer_id])

    def _offset(self, place: TopicPartition, index: int) -> int:
        offsets = self._offsets.get(place, [])
        return offsets[index] if index < len(offsets) else self._end_of(place)

    def _index(self, place: TopicPartition, offset: int) -> int:
        """Return how many records are before an offset."""
        return bisect_left(self._offsets.get(place, []), offset)

    def _end_of(self, place: TopicPartition) -> int:
        return self._world.server.cluster.logs.get(place, self._world.clock.now_ms()).log_end_offset

    def _learn_topic(self, remade: int) -> None:
        self._topics[UUID(int=remade + 1)] = self._world.server.cluster.metadata.topics[DATA].topic_id

    def _do(self, work: Callable[[KafkaCluster], Result], process: int | None = None) -> Result:
        """Do something in a process of the sink, with its cluster."""
        processes = self._world.processes
        at = self._process if process is None else process
        return self._world.do(lambda: work(cluster_of(processes.current, self._options)), at)


_ERRORS: Final = {"UnstableOffsetsError": "unstable"}


def _stable(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows before the first open transaction."""
    return takewhile(lambda row: row.is_committed is not None, rows)


def _text(row: Row) -> str:
    return f"micro-batch {row.micro_batch}, rows {row.kind}, {row.identity}"


def _same(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise DifferenceError(f"{what}: the broker answers {found}, and the model {expected}")
