"""What brokers say of their cluster: brokers and topics (Metadata), finalized feature levels (ApiVersions, KIP-584)."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.protocol.metadata import MetadataRequest

from broker_core.errors import ErrorCode
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError
from spark_eos.runtime import Clock

# The first version that says whether topics may be created.
FIRST_METADATA_VERSION: Final = 4
# Troubles that end by themselves while a topic is made or a leader is elected.
WAITED_FOR: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
# Longer than anything is asked for; topics come and go while a query runs, and are not to be kept for ever.
_LONGEST_USE_SECONDS: Final = 300.0
# How old the last answer may be when a transaction begins: one small request in that time for each client, whatever
# the number of tasks. Brokers serve both protocols at every level, so that a level not noticed yet harms nothing.
FEATURES_MAX_AGE_SECONDS: Final = 10.0
_UNKNOWN_METADATA_EPOCH: Final = -1


class BrokerAddress(NamedTuple):
    """The address of one broker."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and its leader; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    error_code: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as it was when asked; `topic_id` is None on brokers older than 2.8."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    error_code: int
    partitions: Mapping[int, PartitionMetadata]

    @property
    def partition_count(self) -> int:
        """Count the partitions, with and without a leader."""
        return len(self.partitions)


class RecentTopics:
    """What was answered about topics a moment ago, for what can do with that; older answers are dropped."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, TopicMetadata]] = {}

    def __len__(self) -> int:
        """Count the topics remembered."""
        return len(self._found)

    def note(self, topics: Mapping[str, TopicMetadata], now: float) -> None:
        """Remember topics as they are at `now`, in seconds."""
        kept = {name: each for name, each in self._found.items() if now - each[0] < _LONGEST_USE_SECONDS}
        self._found = kept | {name: (now, topic) for name, topic in topics.items()}

    def forget_leader(self, node_id: int) -> None:
        """Drop the topics that a broker is said to lead a partition of."""
        self._found = {
            name: each
            for name, each in self._found.items()
            if all(partition.leader != node_id for partition in each[1].partitions.values())
        }

    def since(self, topics: Collection[str], earliest: float) -> dict[str, TopicMetadata] | None:
        """Give the topics where all of them were usable when asked for at `earliest` or later."""
        found = {name: self._found[name] for name in topics if name in self._found}
        if len(found) < len(topics) or any(
            noted < earliest or problem_with(topic, False) is not ErrorCode.NONE for noted, topic in found.values()
        ):
            return None
        return {name: topic for name, (_, topic) in found.items()}


class FinalizedFeatures:
    """The newest finalized levels that any broker has named.

    Every connection begins with ApiVersions, so most of this costs nothing. An answer carries the epoch of the metadata
    it was made from: the one with the largest is the newest, and a broker that lags behind changes nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = _UNKNOWN_METADATA_EPOCH
        self._levels: dict[str, int] = {}
        self._heard_at: float | None = None

    def note(self, response: Any) -> None:
        """Take an ApiVersions answer; one of before version 3, or of a broker without features, names no level."""
        if response.error_code != ErrorCode.NONE:
            return
        if self._heard_at is None or response.finalized_features_epoch > self._epoch:
            self._epoch = response.finalized_features_epoch
            self._levels = {each.name: each.max_version_level for each in response.finalized_features or ()}
        self._heard_at = self._clock.monotonic()

    def level(self, name: str) -> int:
        """Give the finalized level of a feature; one that no broker names is at 0."""
        return self._levels.get(name, 0)

    @property
    def is_fresh(self) -> bool:
        """Say whether a broker has named its features lately, and nothing has cast doubt on them since."""
        return self._heard_at is not None and self._clock.monotonic() - self._heard_at < FEATURES_MAX_AGE_SECONDS

    def doubt(self) -> None:
        """Take the next answer for the newest whatever its epoch, as of a cluster that was set up again."""
        self._heard_at = None

    def go_on(self) -> None:
        """Keep what is known although it could not be refreshed, so that not every transaction waits for an answer."""
        self._heard_at = self._clock.monotonic()


def metadata_request(topics: Collection[str] | None, *, allow_auto_topic_creation: bool = False) -> Any:
    """Make the request for the brokers and some topics (None: all of them)."""
    return MetadataRequest(
        topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def topics_of(response: Any) -> dict[str, TopicMetadata]:
    """Read the topics out of a MetadataResponse."""
    return {topic.name: _topic(topic) for topic in response.topics if topic.name is not None}


def _topic(topic: Any) -> TopicMetadata:
    topic_id = topic.topic_id
    return TopicMetadata(
        name=topic.name,
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
    """Say what keeps a topic from being used; NONE when nothing does."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.error_code != ErrorCode.NONE:
        return known_code(topic.error_code)
    if not topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if need_leaders and any(each.leader < 0 for each in topic.partitions.values()):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


def known_code(code: int) -> ErrorCode:
    """Name a code; one that this version does not know is an unknown server error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def topic_error(bad: Mapping[str, ErrorCode], addresses: str) -> EosKafkaError:
    """Word the trouble with the first of some topics."""
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
