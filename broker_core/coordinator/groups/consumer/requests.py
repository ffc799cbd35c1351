"""The requests of consumer groups (KIP-848) and their answers as plain values, and the checks that need no group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.consumer.assignors import ASSIGNORS
from broker_core.coordinator.groups.consumer.records import Partitions, Subscription, TopicIdPartition
from broker_core.coordinator.groups.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from broker_core.coordinator.patterns import NamePattern
from broker_core.errors import ErrorCode, KafkaError

CONSUMER_GROUP_TYPE = "consumer"
UNCHANGED = -1
MemberT = TypeVar("MemberT")


class ConsumerGroupSettings(NamedTuple):
    """The settings in force for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, kind: str, own: Mapping[str, str], config: BrokerConfig) -> Self:
        """Return the settings of a group of a kind: its own, or the broker's."""
        found = ((f"{kind}.{name.replace('_', '.')}", getattr(config, f"group_{kind}_{name}")) for name in cls._fields)
        return cls(*(int(own.get(key, value)) for key, value in found))


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A request to join (member epoch 0), to stay, or to leave (-1, and -2 for a static member that will be back).

    Fields that have not changed since the last heartbeat are None, or -1 for the timeout. `member_id` may be empty only
    if `may_lack_member_id` is set: from version 1 on the client generates it (KIP-1082). `may_see` decides which
    topics the client's expression may match; None allows all.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    may_lack_member_id: bool = False
    may_see: Callable[[str], bool] | None = None

    @property
    def is_full(self) -> bool:
        """Return whether the request is complete, as when a member joins or missed a response."""
        tells_topics = self.topics is not None or self.regex is not None
        tells_all = self.rebalance_timeout_ms != UNCHANGED and tells_topics and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or tells_all

    def updated(self, before: Subscription) -> Subscription:
        return Subscription(
            before.instance_id if self.instance_id is None else self.instance_id,
            before.rack_id if self.rack_id is None else self.rack_id,
            self.client_id,
            self.client_host,
            before.topics if self.topics is None else tuple(sorted(set(self.topics))),
            before.regex if self.regex is None else self.regex,
            before.rebalance_timeout_ms if self.rebalance_timeout_ms == UNCHANGED else self.rebalance_timeout_ms,
            before.server_assignor if self.server_assignor is None else self.server_assignor,
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """The answer to a heartbeat; `assigned` is None if it has not changed."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """One member as administrators see it; `assigned` includes partitions it has yet to revoke."""

    member_id: str
    member_epoch: int
    subscription: Subscription
    assigned: Partitions
    target: Partitions


# Without slots: a generic class that is called by an alias of one of its forms would set an attribute.
@dataclass(frozen=True)
class GroupDescription(Generic[MemberT]):
    """One group of members of a kind, as administrators see it."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[MemberT, ...] = ()


ConsumerGroupDescription: TypeAlias = GroupDescription[DescribedConsumer]


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Raise INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION, in Kafka's order."""
    refuse_if(request.group_id == "", "GroupId can't be empty.")
    refuse_if(request.instance_id == "", "InstanceId can't be empty.")
    refuse_if(request.rack_id == "", "RackId can't be empty.")
    if not request.may_lack_member_id or request.member_epoch != JOIN_EPOCH:
        refuse_if(request.member_id == "", "MemberId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        refuse_if(request.rebalance_timeout_ms == UNCHANGED, "RebalanceTimeoutMs must be provided in first request.")
        refuse_if(request.owned is None or bool(request.owned), "TopicPartitions must be empty when (re-)joining.")
        refuse_if(
            request.topics is None and request.regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        refuse_if(request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def check_expression(request: ConsumerHeartbeat, before: Subscription) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for a new expression that is invalid."""
    if request.regex and request.regex != before.regex:
        try:
            NamePattern(request.regex)
        except KafkaError as error:
            message = f"SubscribedTopicRegex `{request.regex}` is not a valid regular expression: {error.message}."
            raise KafkaError(error.code, message) from error


def refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
