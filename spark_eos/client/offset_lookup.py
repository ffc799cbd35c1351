"""The look-up of partitions, and of the offsets for a time or for an end of the log."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER_EPOCH, IsolationLevel, TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient, answers_to_compare
from spark_eos.client.metadata import Doubt, TopicMetadata, grouped, is_earlier, is_other_topic
from spark_eos.client.response_decoders import FilteredMetadataRequest
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnsupportedError,
)
from spark_eos.options.positions import EARLIEST, LATEST

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiRequest

ResponseT = TypeVar("ResponseT")
logger = logging.getLogger(__name__)
# Leaders move, starting leaders do not know their high watermark yet, and metadata lags behind both.
STALE_LEADER: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND,
})  # fmt: skip
# Kafka returns UNKNOWN_SERVER_ERROR for an index or a remote segment that it cannot read now; its own consumer retries.
ANSWERED_LATER: Final = STALE_LEADER | {ErrorCode.UNKNOWN_SERVER_ERROR}
_ABSENT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
_FIRST_VERSION_WITH_ISOLATION: Final = 2
# The first version in which a leader refuses to respond for an epoch that is not its own.
_FIRST_FENCED_VERSION: Final = 2
_Answers = dict[TopicPartition, int | None]


class LogPoint(NamedTuple):
    """A point that the log of the leader of one epoch has reached."""

    leader_epoch: int = NO_LEADER_EPOCH
    offset: int = 0

    def survives(self, end_offset: int | None) -> bool:
        """Return whether a log where the epoch ended at `end_offset` (None: no such epoch) reaches this point."""
        return end_offset is not None and end_offset >= self.offset


class LeaderEpochCheck:
    """The furthest point known of a log, and the newest leader epoch whose log is known to agree (KIP-320).

    A leader that lagged behind can be elected if all others are lost (or `unclean.leader.election.enable` is set). It
    truncates the log to what it has, and new records take the same offsets: a reader that continues by offsets alone
    reads a log that never existed. Every record batch has the epoch of the leader that appended it, so a newer leader
    can be asked where, in its log, the epoch that the reader knows has ended.
    """

    def __init__(self, planned: LogPoint) -> None:
        self._point = planned
        self._is_plan = planned.leader_epoch > NO_LEADER_EPOCH
        self._agreed_epoch = planned.leader_epoch

    def doubted_by(self, leader_epoch: int) -> LogPoint | None:
        nothing_known = self._point.leader_epoch <= NO_LEADER_EPOCH
        return None if nothing_known or leader_epoch <= self._agreed_epoch else self._point

    def agree(self, leader_epoch: int) -> None:
        self._agreed_epoch = leader_epoch

    def extend(self, batch_epoch: int, next_offset: int, leader_epoch: int) -> None:
        self._agreed_epoch = max(self._agreed_epoch, leader_epoch)
        if not self._is_plan and batch_epoch > NO_LEADER_EPOCH:
            self._point = LogPoint(batch_epoch, next_offset)

    def forget(self) -> None:
        self._point, self._is_plan = LogPoint(), False


class PartitionPlace(NamedTuple):
    """The topic id and the leader of a partition, as far as they are known."""

    topic_id: UUID | None = None
    leader_id: int = -1
    leader_epoch: int = NO_LEADER_EPOCH

    def completed(self, known: "PartitionPlace | None") -> "PartitionPlace":
        """Return this place with what it lacks of a known one of the same topic; see `TopicMetadata.completed`."""
        if known is None or known.topic_id is None or is_other_topic(known.topic_id, self.topic_id):
            return self
        return known if is_earlier(self.leader_epoch, known.leader_epoch) else self._replace(topic_id=known.topic_id)


class Word(Enum):
    """A broker has the partition, has none of this name, has another topic of this name, or it does not say."""

    HERE = "here"
    ABSENT = "absent"
    OTHER = "other"
    UNSURE = "unsure"


def word_of(answer: Mapping[str, TopicMetadata] | None, tp: TopicPartition, topic_id: UUID | None) -> Word:
    """Return what an answer (None: there is none) says of a partition of the topic with this id, if it is known."""
    topic = None if answer is None else answer.get(tp.topic)
    if topic is None:
        return Word.UNSURE
    if is_other_topic(topic_id, topic.topic_id):
        return Word.OTHER
    if tp.partition in topic.partitions:
        return Word.HERE
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Word.ABSENT
    if topic.error_code != ErrorCode.NONE:
        return Word.UNSURE
    # A topic keeps its partitions as long as it exists, so the answer is old if the ids are known and the same.
    return Word.UNSURE if None not in (topic_id, topic.topic_id) else Word.ABSENT


class OffsetLookup:
    """The look-ups of partitions and offsets for one query, with retries when leaders move.

    `places` are known already.
    """

    def __init__(self, client: KafkaClient, places: Mapping[TopicPartition, PartitionPlace] | None = None) -> None:
        self._client = client
        self.clock = client.runtime.clock
        self._places: dict[TopicPartition, PartitionPlace] = dict(places or {})
        self._answered_epochs: dict[TopicPartition, int] = {}
        self._has_compared = False

    def places_matching(self, wanted: Callable[[str], bool]) -> dict[TopicPartition, PartitionPlace]:
        """Return the partitions of all topics whose names are wanted and that are not internal to Kafka."""
        found = self._look(None, wanted, compare=True)
        self._remember(dict(found))
        return found

    def places(self, topics: Collection[str], *, compare: bool = False) -> dict[TopicPartition, PartitionPlace]:
        """Return the partitions of topics; topics that do not exist are left out.

        With `compare`, other brokers complete the first response.
        """
        asked = set(topics)
        found = self._look(asked, asked.__contains__, compare=compare) if asked else {}
        self._remember({tp: place for tp, place in self._places.items() if tp.topic not in asked} | found)
        return found

    def _look(
        self, asked: Collection[str] | None, wanted: Callable[[str], bool], *, compare: bool
    ) -> dict[TopicPartition, PartitionPlace]:
        def places_in(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, PartitionPlace]:
            return places_of(topic for topic in topics if asked is not None or not topic.is_internal)

        make = partial(FilteredMetadataRequest.of, asked, wanted)
        answer = self._client.ask_metadata(make)
        self._client.transport.cluster.update_metadata(answer.cluster)
        found = places_in(described(answer.topics.values()))
        if compare and not self._has_compared:
            self._has_compared = len(self._client.brokers()) > 1
            for other in answers_to_compare(self._client, make):
                found = _completed(found, places_in(other.topics.values()))
        return {tp: place.completed(self._places.get(tp)) for tp, place in found.items()}

    def newest_places(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionPlace]:
        """Return the newest leaders that any broker names, without partitions that the last response left out."""
        known = {tp: self._places[tp].topic_id for tp in partitions if tp in self._places}
        self.at_all_brokers(known)
        return {tp: self._places[tp] for tp in known}

    def at_all_brokers(
        self, partitions: Mapping[TopicPartition, UUID | None]
    ) -> dict[TopicPartition, PartitionPlace | None]:
        """Ask all brokers and return the newest leader of each partition. None means: no broker knows the partition.

        The partitions come with the ids of their topics, if those are known. The result leaves out a partition that
        no broker names while at least one broker gives no clear answer.
        """
        answers = self.from_each_broker(sorted({tp.topic for tp in partitions}))
        named = [places_of((each or {}).values()) for each in answers]
        found: dict[TopicPartition, PartitionPlace | None] = {}
        for tp, topic_id in partitions.items():
            words = [word_of(each, tp, topic_id) for each in answers]
            here = [each[tp] for each, word in zip(named, words, strict=True) if word is Word.HERE]
            if here:
                newest = max(here, key=attrgetter("leader_epoch"))
                found[tp] = self._places[tp] = newest.completed(self._places.get(tp))
            elif words and Word.UNSURE not in words:
                found[tp] = None
        return found

    def _remember(self, places: dict[TopicPartition, PartitionPlace]) -> None:
        # Topics come and go while a query runs.
        self._places = places
        self._answered_epochs = {tp: epoch for tp, epoch in self._answered_epochs.items() if tp in places}

    def from_each_broker(self, topics: Collection[str]) -> Sequence[Mapping[str, TopicMetadata] | None]:
        """Return what each broker says of topics, by name; None for a broker that has not answered."""
        return list(self._client.topics_by_broker(topics).values())

    def offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], isolation: IsolationLevel, patience_ms: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time, or an end of the log (-1 latest, -2 earliest).

        None means that no record is that young; a partition that no broker has any more is left out. With
        `patience_ms`, one whose leader has not responded by then is left out as well, instead of an error.
        """
        return self._look_up(
            timestamps_ms,
            lambda partitions: _request(partitions, timestamps_ms, isolation),
            partial(self._collect, timestamps_ms),
            patience_ms,
        )

    def answered_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the epoch of the leader that returned the last offset of a partition; metadata may lag behind it."""
        return self._answered_epochs.get(topic_partition, NO_LEADER_EPOCH)

    def epoch_ends(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return where leader epochs ended in the current logs, or None if the leader has no trace of one (KIP-320).

        Nothing is returned if brokers do not support the request: as Java's consumer, the source does not compare then.
        """

        def current(topic_partition: TopicPartition) -> int:
            # A broker that does not know the newest leader must not respond for it.
            return max(self._places[topic_partition].leader_epoch, self.answered_epoch(topic_partition))

        try:
            return self._look_up(
                leader_epochs,
                lambda partitions: epoch_end_request({tp: (current(tp), leader_epochs[tp]) for tp in partitions}),
                _collect_epoch_ends,
            )
        except UnsupportedError as error:
            logger.info("cannot compare the logs of new leaders with those before: %s", error)
            return {}

    def _look_up(
        self,
        asked: Collection[TopicPartition],
        request: "Callable[[list[TopicPartition]], ApiRequest[ResponseT]]",
        collect: Callable[[ResponseT, _Answers], str],
        patience_ms: float | None = None,
    ) -> _Answers:
        """Query the leaders until each has responded; a partition that no broker has any more is left out."""
        answers: _Answers = {}
        wanted = set(asked)
        now = self._client.runtime.clock.monotonic
        missing, refused = Doubt(now), Doubt(now)
        attempt, trouble = 0, ""
        deadline = self._client.deadline(patience_ms)
        for attempt in self._client.attempts(deadline):
            if attempt > 0 or not wanted <= self._places.keys():
                named = self.places({tp.topic for tp in wanted}).keys()
                # A broker may not know a topic yet.
                found = {} if wanted <= named else self.at_all_brokers(dict.fromkeys(wanted - named))
                gone = {tp for tp, place in found.items() if place is None}
                if not gone:
                    missing.ends()
                elif not missing.lasts():
                    wanted -= gone
            try:
                trouble = self._ask(wanted & self._places.keys(), request, collect, answers, deadline)
            except AuthorizationError as error:
                # A right can be taken away and given back, and brokers learn of that one after the other.
                if not refused.lasts():
                    raise
                trouble = error.happened
            wanted -= answers.keys()
            if not wanted:
                return answers
        if patience_ms is not None:
            return answers
        raise UnansweredError(
            f"The offsets of {counted(len(wanted), 'partition')} could not be looked up, among them {min(wanted)}",
            checked=f"Asked their leaders {counted(attempt + 1, 'time')}; last response: "
            + (trouble or "it leaves out the partition"),
            remedy="Check that every partition has a leader",
        )

    def _ask(
        self,
        wanted: Iterable[TopicPartition],
        request: "Callable[[list[TopicPartition]], ApiRequest[ResponseT]]",
        collect: Callable[[ResponseT, _Answers], str],
        answers: _Answers,
        deadline: float,
    ) -> str:
        asked = sorted(wanted)
        by_leader = grouped((self._places[tp].leader_id, tp) for tp in asked)
        trouble = "no leader" if by_leader.pop(-1, None) else ""
        requests = [(leader, request(partitions)) for leader, partitions in by_leader.items()]
        for response in self._client.send_all(requests, timeout_ms=self._client.remaining_ms(deadline)):
            if isinstance(response, UnansweredError):
                trouble = response.happened
            elif isinstance(response, EosKafkaError):
                raise response
            else:
                found: _Answers = {}
                trouble = collect(response, found) or trouble
                answers |= {tp: found[tp] for tp in asked if tp in found}
        return trouble

    def _collect(
        self, timestamps_ms: Mapping[TopicPartition, int], response: ListOffsetsResponse, answers: _Answers
    ) -> str:
        trouble = ""
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code != ErrorCode.NONE:
                    trouble = _passing_trouble(tp, partition.error_code, "looking up offsets")
                elif partition.offset < 0 and timestamps_ms.get(tp) in (EARLIEST, LATEST):
                    # Each log has both ends. Of a time, this says that no record is that young.
                    trouble = f"{tp}: an answer without an offset"
                else:
                    answers[tp] = partition.offset if partition.offset >= 0 else None
                    self._answered_epochs[tp] = partition.leader_epoch
        return trouble


def _request(
    partitions: Iterable[TopicPartition], timestamps_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> ListOffsetsRequest:
    form = ListOffsetsRequest.ListOffsetsTopic
    topics = grouped(
        (
            tp.topic,
            form.ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=NO_LEADER_EPOCH, timestamp=timestamps_ms[tp]
            ),
        )
        for tp in partitions
    )
    return ListOffsetsRequest(
        isolation_level=int(isolation),
        topics=[form(name=name, partitions=each) for name, each in topics.items()],
        min_version=_FIRST_VERSION_WITH_ISOLATION,
    )


def epoch_end_request(epochs: Mapping[TopicPartition, tuple[int, int]]) -> OffsetForLeaderEpochRequest:
    """Make the request for where leader epochs ended; each partition has the leader's epoch and the one in question."""
    form = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = grouped(
        (
            tp.topic,
            form.OffsetForLeaderPartition(partition=tp.partition, current_leader_epoch=current, leader_epoch=asked),
        )
        for tp, (current, asked) in epochs.items()
    )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[form(topic=name, partitions=each) for name, each in topics.items()],
        min_version=_FIRST_FENCED_VERSION,
    )


def _collect_epoch_ends(response: OffsetForLeaderEpochResponse, answers: _Answers) -> str:
    trouble = ""
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            if partition.error_code == ErrorCode.NONE:
                answers[tp] = partition.end_offset if partition.end_offset >= 0 else None
            else:
                trouble = _passing_trouble(tp, partition.error_code, "looking up where a leader epoch ended")
    return trouble


def _passing_trouble(topic_partition: TopicPartition, error_code: int, doing: str) -> str:
    if error_code in ANSWERED_LATER:
        return f"{topic_partition}: {ErrorCode(error_code).name}"
    raise partition_error(topic_partition, error_code, doing)


def _completed(
    found: Mapping[TopicPartition, PartitionPlace], others: Mapping[TopicPartition, PartitionPlace]
) -> dict[TopicPartition, PartitionPlace]:
    """Complete what one broker says with what another one does.

    One that lags behind, or is cut off, lacks topics and partitions and names leaders that have been replaced, and
    nothing in its response shows that. What the other one says of a topic with another id is left out.
    """
    ids = {tp.topic: place.topic_id for tp, place in found.items()}
    added = {
        tp: place
        for tp, place in others.items()
        if tp.topic not in ids or (tp not in found and ids[tp.topic] == place.topic_id is not None)
    }
    return {tp: place.completed(others.get(tp)) for tp, place in found.items()} | added


def described(topics: Iterable[TopicMetadata]) -> list[TopicMetadata]:
    """Return the topics; raise for the first that brokers refuse to describe, as one that the principal may not see."""
    found = list(topics)
    for topic in found:
        if topic.error_code != ErrorCode.NONE and topic.error_code not in _ABSENT:
            raise partition_error(topic.name, topic.error_code, "requesting metadata")
    return found


def places_of(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, PartitionPlace]:
    return {
        TopicPartition(topic.name, number): PartitionPlace(topic.topic_id, each.leader, each.leader_epoch)
        for topic in topics
        for number, each in topic.partitions.items()
    }


def partition_error(where: object, error_code: int, doing: str) -> EosKafkaError:
    known = error_code in tuple(ErrorCode)
    happened = f"{where}: {ErrorCode(error_code).name if known else f'error {error_code}'} while {doing}"
    if error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationError(
            happened, remedy="Grant the principal DESCRIBE and READ on the topic", error_code=error_code
        )
    if error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return TopicError(happened, remedy="Correct the name of the topic", error_code=error_code)
    return BrokerError(happened, remedy="See the broker's log", error_code=error_code)
