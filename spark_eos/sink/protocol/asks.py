"""What the protocol asks of Kafka and of its process.

The protocol is written as coroutines that await asks. Nothing here performs one: `sink.performing` sends the requests
of a real driver, a test answers from memory, and the explorer tries every answer. An ask for Kafka has the name and the
parameters of a method of the cluster, which waits out retriable errors up to the client's time limits, and raises
`EosKafkaError` for the rest.
"""

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform
from uuid import UUID

from broker_core.types import TopicPartition
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import answers

Answer = TypeVar("Answer", covariant=True)


@dataclass_transform(frozen_default=True)
class Ask(Generic[Answer]):
    """A request, a frozen value; awaiting it returns the answer, or raises the performer's error."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __await__(self) -> Generator["Ask[Any]", Any, Answer]:
        return (yield self)  # type: ignore[no-any-return]


class KafkaAsk(Ask[Answer]):
    """An ask for Kafka: `InitProducerId(name, 60_000)` asks the cluster for `init_producer_id(name, 60_000)`."""

    method: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.method = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def arguments(self) -> list[Any]:
        """Return the arguments of the method; a last one that is None is left to its default."""
        return [value for value in vars(self).values() if value is not None]


class TransactionVersion(KafkaAsk[int]):
    """The finalized `transaction.version`."""


class InitProducerId(KafkaAsk[OpenTransaction]):
    """The ownership of an id, with its next transaction; whatever it had open is aborted."""

    transactional_id: str
    timeout_ms: int


class DescribeTransactions(KafkaAsk[Mapping[str, answers.Description]]):
    """The descriptions of ids; one that its coordinator does not know is left out."""

    transactional_ids: Collection[str]
    wait_ms: int | None = None


class ForgetCoordinators(KafkaAsk[None]):
    """A look-up of the coordinators of these ids, and of the group, before the next request."""

    transactional_ids: Collection[str]
    group_id: str | None = None


class AgreeOnCoordinator(KafkaAsk[None]):
    """The certainty that no broker names another coordinator of the group; raises `UnansweredError` otherwise."""

    group_id: str


class OpenTransactions(KafkaAsk[Sequence[str]]):
    """The ids that begin with `id_prefix` and have an open transaction.

    Every broker must respond; with `wait_ms`, brokers that do not respond in that time are left out.
    """

    id_prefix: str
    wait_ms: int | None = None


class UsedIds(KafkaAsk[Mapping[TaskId, bool]]):
    """The ids of the tasks of all writes of a query, under any prefix, and how their last transactions ended.

    False is for an open transaction and True for a committed one; other ids are left out.

    Every broker must respond; with `wait_ms`, brokers that do not respond in that time are left out.
    """

    query: str
    wait_ms: int | None = None


class LeaderlessPartitions(KafkaAsk[Mapping[str, Collection[int]]]):
    """The partitions without a leader, of each topic, by a response of at most this age.

    None, if that is not known quickly.
    """

    topics: Collection[str]
    max_age_ms: int = 1_000


class EndTransactions(KafkaAsk[Mapping[str, EndAnswer]]):
    """The ends of transactions, each by the protocol it was begun with, and the answers by transactional id.

    They are sent in parallel, and each is repeated until there is a response or the time is up.
    """

    opened: Collection[OpenTransaction]
    commit: bool
    wait_ms: int | None = None


class Views(KafkaAsk[Mapping[TopicPartition, answers.CommittedView | None]]):
    """A view of one place in each of many partitions, all at once; None if it no longer exists.

    A partition whose leader does not respond within the time is left out.
    """

    offsets: Mapping[TopicPartition, int]
    wait_ms: int


class UnstableEnds(KafkaAsk[Mapping[int, bool]]):
    """Which producers' transactions are committed and which are aborted, by their markers.

    This is for offsets that committed readers cannot reach yet. Each producer comes with the last offset of its
    transaction; one whose marker is not found within the time is left out.
    """

    topic_partition: TopicPartition
    offsets: Mapping[int, int]
    wait_ms: int


class CommittedOffsets(KafkaAsk[Sequence[answers.CommittedOffset]]):
    """All offsets of a group, in any topic.

    Raises `UnstableOffsetsError` if a pending one is not ended in time, and `TopicError` if the decision topic does not
    exist.
    """

    group_id: str
    wait_ms: int


class LastOffsets(KafkaAsk[Sequence[answers.CommittedOffset]]):
    """All offsets of a group, by one request; a pending one is left out."""

    group_id: str


class ReadRecords(KafkaAsk[Sequence[answers.KeyedRecord]]):
    """Up to `count` records from an offset, committed or not, without control records."""

    topic_partition: TopicPartition
    offset: int
    count: int


class FindRecords(KafkaAsk[answers.FoundRecords]):
    """Records by key in partitions, each from an offset (None: from its beginning) to its current end.

    `is_wanted` is called with a record's key and its time in milliseconds. Open transactions of other producers do not
    block this. Raises `TopicError` if a partition does not exist.
    """

    starts: Mapping[TopicPartition, int | None]
    is_wanted: Callable[[bytes, int], bool]


class BeginsWith(KafkaAsk[bool]):
    """Whether a record of this key is among the first of a partition."""

    topic_partition: TopicPartition
    key: bytes


class PartitionCount(KafkaAsk[int]):
    """The number of a topic's partitions; raises `TopicError` when it does not exist."""

    topic: str


class PartitionCounts(KafkaAsk[Mapping[str, int]]):
    """The numbers of topics' partitions, by the brokers that know most: one that has just started may lack some."""

    topics: Collection[str]


class ReplacedTopics(KafkaAsk[Collection[str]]):
    """The topics that were deleted and created again since tasks wrote to them.

    `transactional_ids` belong to the tasks. Raises `TopicError` if a topic does not exist.
    """

    written: Mapping[str, Collection[UUID]]
    transactional_ids: Collection[str]


class LostRanges(KafkaAsk[Sequence[answers.LostRange]]):
    """What transactions have written and the logs do not have, of partitions with a leader that was elected since.

    Raises `UnansweredError` if such a leader is away.
    """

    written: Sequence[PreparedTransaction]


class StartDecision(KafkaAsk[answers.Appended]):
    """The sending of a decision's records; what follows runs beside it. The answer may be that the driver is fenced."""

    write: answers.DecisionWrite


class AppendDecision(KafkaAsk[answers.Appended]):
    """The acceptance of a started decision's records and offset; its transaction stays open, also after an error."""

    write: answers.DecisionWrite


class EndDecision(KafkaAsk[EndAnswer]):
    """The end of a started decision's transaction: the commit point. An abort is attempted once and raises nothing."""

    write: answers.DecisionWrite
    commit: bool


class Now(Ask[int]):
    """The time of day in milliseconds since 1970."""


class Monotonic(Ask[float]):
    """The seconds of a clock that never goes back."""


class Sleep(Ask[None]):
    """A pause."""

    seconds: float


class Tell(Ask[None]):
    """A line for the log, and its level by the numbers of `logging`."""

    level: int
    message: str


class Count(Ask[None]):
    """An addition to a counter of the sink's metrics."""

    name: str
    number: int = 1


class Gauge(Ask[None]):
    """A value of the sink's metrics."""

    name: str
    value: int


class Reach(Ask[None]):
    """A point at which a crash test may stop the process."""

    point: str
    micro_batch: int | None = None


class StepsOf(Ask[bool]):
    """Whether a crash test stops the process within the step that has this point."""

    point: str


class Compared(Ask[bool]):
    """Whether a run has compared a decision of another run, in any process of its driver; see `NoteCompared`."""

    name: str


class NoteCompared(Ask[None]):
    """A note for all processes of this driver that a run has compared a decision of another run."""

    name: str


class Ended(Ask[None]):
    """The end of a step that is timed."""

    step: str
    micro_batch: int
    seconds: float


class Step:
    """A timed step: `async with Step("verify", 7): ...`; one that fails is not reported."""

    def __init__(self, name: str, micro_batch: int) -> None:
        self._name, self._micro_batch, self._began = name, micro_batch, 0.0

    async def __aenter__(self) -> None:
        self._began = await Monotonic()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await Ended(self._name, self._micro_batch, await Monotonic() - self._began)


def info(message: str) -> Tell:
    return Tell(20, message)


def warn(message: str) -> Tell:
    return Tell(30, message)
