"""The cluster's metadata: brokers and topics (Metadata), finalized feature levels (ApiVersions, KIP-584)."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER_EPOCH
from spark_eos.client.error_table import known_code
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError
from spark_eos.runtime import Clock

Key = TypeVar("Key")
Item = TypeVar("Item")

# The first version that says whether topics may be created.
FIRST_METADATA_VERSION: Final = 4
# Errors that pass while a topic is created or a leader is elected.
WAITED_FOR: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE}
)
# Some brokers may not know a topic that was just created; one that stays unknown this long does not exist.
MISSING_TOPIC_GRACE_SECONDS: Final = 2.0
# How long what can be shown in part waits for the rest: an election takes no longer.
ELECTION_MS: Final = 10_000
# Metadata omits a topic that the principal has no right on, as if it did not exist.
HIDDEN_TOPIC: Final = (
    "Correct the topic name or the partition number. A topic is also hidden from a principal without rights on it: "
    "Grant the principal READ on the topic"
)
# Longer than anything needs; topics come and go while a query runs, and must not be kept forever.
_LONGEST_USE_SECONDS: Final = 300.0
# How old the last response may be when a transaction begins: one small request in that time for each client, whatever
# the number of tasks. Brokers support both protocols at every level, so a level change that is not noticed yet does no
# harm.
FEATURES_MAX_AGE_SECONDS: Final = 10.0
_UNKNOWN_METADATA_EPOCH: Final = -1
TRANSACTION_FEATURE: Final = "transaction.version"
# The first versions of transactions V2 (KIP-890).
FIRST_TV2_PRODUCE, FIRST_TV2_END_TXN, FIRST_TV2_TXN_OFFSET_COMMIT = 12, 5, 5
_FIRST_OF_TV2: Final = {0: FIRST_TV2_PRODUCE, 26: FIRST_TV2_END_TXN, 28: FIRST_TV2_TXN_OFFSET_COMMIT}


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the second items of pairs by the first ones, such as what to ask by the topic or the broker.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


class Doubt:
    """A run of answers that something is missing or refused, of which none is believed for the first two seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: float | None = None

    def lasts(self) -> bool:
        """Note such an answer; return whether it is too early to believe it."""
        if self._until is None:
            self._until = self._monotonic() + MISSING_TOPIC_GRACE_SECONDS
        return self._monotonic() < self._until

    def ends(self) -> None:
        self._until = None


class BrokerAddress(NamedTuple):
    """The address of one broker."""

    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    """A partition and its leader; `leader` is -1 if there is none. A tuple, because a topic may have thousands."""

    partition: int
    leader: int
    leader_epoch: int
    error_code: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic at the time of the request; `topic_id` is None on brokers older than 2.8."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    error_code: int
    partitions: Mapping[int, PartitionMetadata]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def completed(self, known: "TopicMetadata | None") -> "TopicMetadata":
        """Return this answer with what an earlier answer about the same topic knew and this one lacks.

        A topic keeps its partitions for as long as it exists, and the epochs of their leaders only rise: a broker that
        lacks some, or names an earlier leader, lags behind or is cut off. Only some brokers, or proxies, may state
        topic ids. If none has stated one, nothing shows that it is the same topic.
        """
        if known is None or known.topic_id is None or is_other_topic(known.topic_id, self.topic_id) or self.error_code:
            return self
        kept = {
            number: each
            for number, each in known.partitions.items()
            if (now := self.partitions.get(number)) is None or is_earlier(now.leader_epoch, each.leader_epoch)
        }
        if not kept and self.topic_id is not None:
            return self
        return replace(self, topic_id=known.topic_id, partitions={**known.partitions, **self.partitions, **kept})


def is_other_topic(known: uuid.UUID | None, topic_id: uuid.UUID | None) -> bool:
    """Return whether two known ids differ: the topic was then deleted and created again under its name."""
    return None not in (known, topic_id) and known != topic_id


def is_earlier(epoch: int, known: int) -> bool:
    """Return whether a leader epoch lies before one that is known; an answer without an epoch does not show that."""
    return NO_LEADER_EPOCH < epoch < known


class RecentTopics:
    """The recent responses about topics, for callers that accept those; older responses are dropped."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, TopicMetadata]] = {}

    def note(self, topics: Mapping[str, TopicMetadata], now: float) -> dict[str, TopicMetadata]:
        kept = {name: each for name, each in self._found.items() if now - each[0] < _LONGEST_USE_SECONDS}
        noted = {}
        for name, topic in topics.items():
            known = kept[name][1] if name in kept else topic
            completed = topic.completed(known)
            # An id that this answer lacks is as old as the one before.
            noted[name] = replace(completed, topic_id=topic.topic_id)
            # A row with an error takes nothing from what is known, and makes it unusable until the next one.
            kept[name] = now, replace(known, error_code=topic.error_code) if topic.error_code else completed
        self._found = kept
        return noted

    def forget_leader(self, node_id: int) -> None:
        """Make the topics unusable of which a broker is the leader of a partition; they keep their partitions."""
        for name, (noted, topic) in self._found.items():
            if any(partition.leader == node_id for partition in topic.partitions.values()):
                self._found[name] = noted, replace(topic, error_code=ErrorCode.LEADER_NOT_AVAILABLE)

    def forget_other(self, name: str, topic_id: uuid.UUID) -> None:
        """Drop a topic that has another id: it was deleted and created again."""
        if name in self._found and self._found[name][1].topic_id != topic_id:
            del self._found[name]

    def since(self, topics: Collection[str], earliest: float) -> dict[str, TopicMetadata] | None:
        """Return the topics if all of them were usable in a response at `earliest` or later."""
        found = {name: self._found[name] for name in topics if name in self._found}
        if len(found) < len(topics) or any(
            noted < earliest or problem_with(topic, False) is not ErrorCode.NONE for noted, topic in found.values()
        ):
            return None
        return {name: topic for name, (_, topic) in found.items()}


class FinalizedFeatures:
    """The newest finalized levels that any broker has reported.

    Every connection begins with ApiVersions, so most of this costs nothing. A response includes the epoch of the
    metadata it is based on: the one with the largest is the newest, and a broker that lags behind changes nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = _UNKNOWN_METADATA_EPOCH
        self._levels: dict[str, int] = {}
        self._heard_at: float | None = None
        self.serves_tv2 = True

    def note(self, response: ApiVersionsResponse) -> None:
        """Process an ApiVersions response; one before version 3, or of a broker without features, has no level."""
        if response.error_code != ErrorCode.NONE:
            return
        if self._heard_at is None or response.finalized_features_epoch > self._epoch:
            self._epoch = response.finalized_features_epoch
            self._levels = {each.name: each.max_version_level for each in response.finalized_features or ()}
            # A proxy that limits the versions of APIs may pass on the features of the brokers behind it.
            self.serves_tv2 = not any(
                each.max_version < _FIRST_OF_TV2.get(each.api_key, 0) for each in response.api_keys
            )
        self._heard_at = self._clock.monotonic()

    def level(self, name: str) -> int:
        return self._levels.get(name, 0)

    @property
    def transaction_version(self) -> int:
        """The level by which transactions can begin: at most 1 where the requests of transactions V2 are not served."""
        level = self.level(TRANSACTION_FEATURE)
        return level if self.serves_tv2 else min(level, 1)

    @property
    def is_fresh(self) -> bool:
        """Return whether a broker has reported its features recently, and nothing has put them in doubt since."""
        return self._heard_at is not None and self._clock.monotonic() - self._heard_at < FEATURES_MAX_AGE_SECONDS

    def doubt(self) -> None:
        """Treat the next response as the newest whatever its epoch, as of a cluster that was set up again."""
        self._heard_at = None

    def go_on(self) -> None:
        """Keep what is known although it could not be refreshed, so that not every transaction waits for a response."""
        self._heard_at = self._clock.monotonic()


def metadata_request(
    topics: Collection[str] | None, *, min_version: int = FIRST_METADATA_VERSION, with_operations: bool = False
) -> MetadataRequest:
    return MetadataRequest(
        topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=with_operations,
        min_version=min_version,
    )


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="spark-eos", client_software_version="1")


def topics_of(response: MetadataResponse) -> dict[str, TopicMetadata]:
    return {topic.name: _topic(topic.name, topic) for topic in response.topics if topic.name is not None}


def _topic(name: str, topic: MetadataResponse.MetadataResponseTopic) -> TopicMetadata:
    topic_id = topic.topic_id
    return TopicMetadata(
        name=name,
        topic_id=topic_id if isinstance(topic_id, uuid.UUID) and topic_id.int != 0 else None,
        is_internal=bool(topic.is_internal),
        error_code=topic.error_code,
        partitions={
            each.partition_index: PartitionMetadata(
                partition=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                error_code=each.error_code,
                replicas=tuple(each.replica_nodes or ()),
                in_sync_replicas=tuple(each.isr_nodes or ()),
            )
            for each in sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
        },
    )


def problem_with(topic: TopicMetadata | None, need_leaders: bool) -> ErrorCode:
    """Return the error that prevents a topic from being used, or NONE."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.error_code != ErrorCode.NONE:
        return known_code(topic.error_code)
    if not topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if need_leaders and any(each.leader < 0 for each in topic.partitions.values()):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


def leader_of(topic: TopicMetadata | None, number: int) -> tuple[int, int]:
    """Return the leader of a partition, or -1 and the code why none is known."""
    partition = None if topic is None else topic.partitions.get(number)
    if partition is not None:
        has_leader = partition.leader >= 0
        return (
            partition.leader,
            ErrorCode.NONE if has_leader else partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE,
        )
    return -1, (ErrorCode.NONE if topic is None else topic.error_code) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic_error(bad: Mapping[str, ErrorCode], addresses: str) -> EosKafkaError:
    name, code = next(iter(bad.items()))
    checked = f"Metadata response from {addresses}: {code.name}"
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationError(
            f"The principal is not allowed to describe topic '{name}'",
            checked=checked,
            error_code=code,
            remedy="Grant the principal READ or WRITE on the topic, as needed; either implies DESCRIBE",
        )
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return TopicError(
            f"Topic '{name}' does not exist", checked=checked, remedy="Create it, or correct its name", error_code=code
        )
    if code is ErrorCode.LEADER_NOT_AVAILABLE:
        return TopicError(
            f"Topic '{name}' has a partition without a leader",
            checked=checked,
            remedy="Restart the brokers that have its replicas",
            error_code=code,
        )
    return TopicError(f"Topic '{name}' cannot be used", checked=checked, error_code=code)
