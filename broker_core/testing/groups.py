"""Views of one consumer group: its members, committed offsets and lag."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from broker_core.broker.broker import Broker
from broker_core.broker.cluster import Cluster
from broker_core.broker.monitoring.inspection import record_views
from broker_core.coordinator.groups.consumer.requests import GroupDescription as Described
from broker_core.coordinator.groups.shard import GroupListing
from broker_core.errors import ErrorCode
from broker_core.testing.pausing import wait_until
from broker_core.types import CONSUMER_OFFSETS_TOPIC, IsolationLevel, TopicPartition, counted
from broker_core.wire.local import assigned_partitions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and the partitions it is assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupView:
    """The state of a group at one moment.

    `state` is Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead for a classic group, and
    Empty, Assigning, Reconciling, Stable or Dead for a consumer group (KIP-848); a share group (KIP-932) is Empty,
    Stable or Dead, and has neither committed offsets nor lag here. `committed` has the offset of each
    partition, and `lag` its distance to the high watermark, as in Kafka's tools. A partition that a member is assigned
    and that has no committed offset counts from its log start. `total_lag` is the sum of all partitions.
    """

    group_id: str
    state: str
    members: tuple[GroupMember, ...]
    committed: dict[TopicPartition, int]
    lag: dict[TopicPartition, int]

    @property
    def total_lag(self) -> int:
        """The sum of `lag` over all partitions; KeyError without any, as for a group that does not exist."""
        if not self.lag:
            raise KeyError(
                f"group {self.group_id!r} has no lag: it is {self.state}, with no committed offset and no assigned "
                "partition of a topic that exists, or a share group, which never has one here. Check its id, or call "
                "wait_stable() or wait_caught_up() first"
            )
        return sum(self.lag.values())


class Group:
    """One consumer group; returned by `EmbeddedBroker.group`. Each property returns the state of this moment.

    >>> from broker_core import EmbeddedBroker
    >>> with EmbeddedBroker(topics={"orders": 1}) as kafka:
    ...     kafka.group("billing").state
    'Dead'
    """

    def __init__(self, group_id: str, call: Callable[[Callable[[Cluster], Any]], Any]) -> None:
        self.group_id = group_id
        self._call = call

    def view(self) -> GroupView:
        """Return state, members, offsets and lag of one moment."""
        view: GroupView = self._call(lambda cluster: group_view(cluster, self.group_id))
        return view

    @property
    def state(self) -> str:
        """Kafka's name of the state; "Dead" for a group that does not exist."""
        return self.view().state

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members with their partitions; in a classic group that is not stable, without partitions."""
        return self.view().members

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one."""
        return self.view().committed

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The distance of each committed offset to the high watermark; see `GroupView`."""
        return self.view().lag

    @property
    def total_lag(self) -> int:
        """The sum of `lag` over all partitions; KeyError without any, as for a group that does not exist."""
        return self.view().total_lag

    def wait_stable(self, members: int | None = None, timeout: float = 10) -> GroupView:
        """Wait until the group is stable, with exactly `members` members, or at least one; return its state.

        Raises AssertionError with the last state after `timeout` seconds. The consumers have to poll meanwhile, in
        their own threads or processes: a group cannot become stable while the test's only thread waits here.
        """

        def is_stable(view: GroupView) -> bool:
            count = len(view.members)
            return view.state == "Stable" and (count > 0 if members is None else count == members)

        wanted = "any member" if members is None else counted(members, "member")
        return self._wait(is_stable, timeout, lambda: f"not stable with {wanted}")

    def wait_caught_up(self, timeout: float = 10) -> GroupView:
        """Wait until no record is left to read for the group, according to its committed offsets; return its state.

        Records of open and aborted transactions and markers are not counted, so the lag may remain above 0. Raises
        AssertionError with the remaining numbers after `timeout` seconds. A group without committed offsets and members
        is not caught up. If it has or had members, each partition of their topics counts, from its log start if it has
        no committed offset.
        """
        unread: dict[TopicPartition, int] = {}

        def is_caught_up(view: GroupView) -> bool:
            unread.clear()
            unread.update(self._call(lambda cluster: _unread(cluster, view)))
            return bool(view.lag) and not any(unread.values())

        def what() -> str:
            left = ", ".join(f"{count} of {place}" for place, count in sorted(unread.items()) if count)
            return f"not caught up; records left: {left or 'the group has no offsets and no assignment'}"

        return self._wait(is_caught_up, timeout, what)

    def _wait(self, is_enough: Callable[[GroupView], bool], timeout: float, what: Callable[[], str]) -> GroupView:
        return wait_until(
            self.view,
            is_enough,
            timeout,
            lambda view: (
                f"group {self.group_id!r} is {what()} after {timeout} s: it is {view.state}, with "
                f"{counted(len(view.members), 'member')}"
            ),
        )


def group_ids(cluster: Cluster) -> list[str]:
    return sorted({each.group_id for each in _listings(cluster)})


def _listings(cluster: Cluster) -> Iterator[GroupListing]:
    return (each for broker in cluster.brokers.values() for each in broker.groups.list_groups())


def group_view(cluster: Cluster, group_id: str) -> GroupView:
    """Return the state of a group; a group that does not exist is Dead."""
    broker = _coordinator(cluster, group_id)
    if broker is None:
        return GroupView(group_id, "Dead", (), {}, {})
    described = broker.groups.describe_consumer_group(group_id)
    if described.error is ErrorCode.NONE:
        state, members = described.state, _members(described, cluster.metadata.names)
    else:
        for other in (groups.describe(group_id) for groups in broker.groups.of_features.values()):
            if other.error is ErrorCode.NONE:
                return GroupView(group_id, other.state, _members(other, cluster.metadata.names), {}, {})
        classic = broker.groups.describe(group_id)
        state = classic.state.value
        members = tuple(
            GroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                assigned_partitions(each.assignment),
            )
            for each in classic.members
        )
    offsets = broker.groups.fetch_offsets(group_id, None).offsets
    committed = {place: found.offset for place, found in sorted(offsets.items()) if found.offset >= 0}
    wanted = dict.fromkeys(place for member in members for place in sorted(member.partitions)) | committed
    lag = {}
    for place, offset in sorted(wanted.items()):
        if cluster.metadata.has_partition(place):
            log = cluster.logs.get(place, cluster.now_ms)
            lag[place] = max(0, log.high_watermark - (log.log_start_offset if offset is None else offset))
    return GroupView(group_id, state, members, committed, lag)


def _coordinator(cluster: Cluster, group_id: str) -> Broker | None:
    if CONSUMER_OFFSETS_TOPIC not in cluster.metadata.topics:
        return None
    place = cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, group_id)
    return cluster.brokers.get(cluster.metadata.leadership(place).leader)


def _members(group: Described[Any], names: Mapping[UUID, str]) -> tuple[GroupMember, ...]:
    """Return members with their partitions by name; partitions of topics that were deleted meanwhile are left out."""
    return tuple(
        GroupMember(
            each.member_id,
            getattr(each.subscription, "instance_id", None),
            each.subscription.client_id,
            each.subscription.client_host,
            frozenset(TopicPartition(names[at.topic_id], at.partition) for at in each.assigned if at.topic_id in names),
        )
        for each in group.members
    )


def _unread(cluster: Cluster, view: GroupView) -> dict[TopicPartition, int]:
    places = {place for place in view.lag if cluster.metadata.has_partition(place)}
    # Members are assigned all partitions of a topic in the end. While a group has none, as in a rebalance, only its
    # offsets are known, and it may have none of a partition.
    if any(each.group_id == view.group_id and each.protocol_type for each in _listings(cluster)):
        places |= {place for at in places for place in cluster.metadata.topics[at.topic].topic_partitions()}
    return {
        place: 0
        if view.lag.get(place) == 0
        else len(record_views(cluster, place, IsolationLevel.READ_COMMITTED, view.committed.get(place)))
        for place in places
    }
