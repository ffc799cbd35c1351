"""The requests of share groups (KIP-932) and their answers as plain values, and the checks that need no group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition
from broker_core.coordinator.groups.consumer.requests import ConsumerHeartbeatResult, refuse_if
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.groups.records import Subscription

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A request to join (member epoch 0), to stay, or to leave (-1); `topics` is None if they have not changed."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None

    def updated(self, before: Subscription) -> Subscription:
        return Subscription(
            before.rack_id if self.rack_id is None else self.rack_id,
            self.client_id,
            self.client_host,
            before.topics if self.topics is None else tuple(sorted(set(self.topics))),
        )


class Initialization(NamedTuple):
    """The state that the share coordinator has to initialize for a group: a start offset for each partition."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[TopicIdPartition, int]


@dataclass(frozen=True, slots=True)
class ShareHeartbeatResult(ConsumerHeartbeatResult):
    """The answer to a heartbeat; `assigned` is None if it has not changed.

    `initialization` is to be carried out by the caller, whatever the answer is.
    """

    error: ErrorCode = ErrorCode.NONE
    initialization: Initialization | None = None


class Deletion(NamedTuple):
    """The partitions whose state the share coordinator has to delete for a group."""

    group_id: str
    partitions: Partitions

    @property
    def topic_ids(self) -> frozenset[UUID]:
        return frozenset(partition.topic_id for partition in self.partitions)


def check_heartbeat(request: ShareHeartbeat) -> None:
    refuse_if(not request.member_id, "MemberId can't be empty.")
    refuse_if(not request.group_id, "GroupId can't be empty.")
    refuse_if(request.rack_id == "", "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        refuse_if(not request.topics, "SubscribedTopicNames must be set in first request.")
    else:
        refuse_if(request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")
