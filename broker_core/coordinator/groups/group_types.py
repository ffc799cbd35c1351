"""The types of groups that features add; classic groups and consumer groups are the core's own."""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.consumer.requests import GroupDescription
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.modern_records import RecordFormat, RecordKey
from broker_core.coordinator.journal import JournalRecord, Recorder
from broker_core.coordinator.timers import Timers
from broker_core.errors import ErrorCode
from broker_core.installed import parts


class FeatureGroup(Protocol):
    """One group; it has no committed offsets."""

    group_id: str

    @property
    def state(self) -> Enum:
        """Return the state; its value is Kafka's name."""
        ...

    @property
    def members(self) -> Mapping[str, object]: ...

    def tombstones(self) -> list[JournalRecord]: ...

    def replay(self, key: RecordKey[Any], value: Any) -> None:
        """Apply one record; None is a tombstone."""
        ...


class FeatureShard(Recorder, Protocol):
    """A partition of `__consumer_offsets`, as far as the groups of features use it."""

    @property
    def groups(self) -> Mapping[str, object]: ...

    @property
    def consumer_groups(self) -> Mapping[str, object]: ...

    @property
    def of_features(self) -> Mapping[str, Mapping[str, FeatureGroup]]: ...


class FeatureGroups(Protocol):
    """What a group coordinator does with the groups of one type."""

    def describe(self, group_id: str) -> GroupDescription[Any]: ...

    def remove_members(self, group_id: str, now_ms: int) -> None:
        """Let all members of a group leave; no effect for a group of another type."""
        ...

    def forget_topics(self, shards: Iterable[FeatureShard], topic_ids: Collection[UUID], now_ms: int) -> None: ...

    def resume(self, shard: FeatureShard, now_ms: int) -> None:
        """Start the deadlines of a partition that was just loaded."""
        ...

    def abandon(self, shard: FeatureShard) -> None:
        """Cancel the deadlines of a partition that is coordinated elsewhere."""
        ...

    def deadline_passed(self, shard: FeatureShard, group_id: str, member_id: str, now_ms: int) -> None:
        """Do what is due for a member; the deadline is of the kind `TimerKind.FEATURE`."""
        ...


FindShard = Callable[[str], tuple[ErrorCode, FeatureShard | None]]
# The settings of a group, by its id, that differ from the broker's settings.
OwnSettings = Callable[[str], Mapping[str, str]]


class GroupType(NamedTuple):
    """A type of group; `coordinate` makes what handles its groups for one coordinator."""

    name: str
    make: Callable[[str], FeatureGroup]
    records: RecordFormat[Any]
    records_before_4_3: RecordFormat[Any]
    coordinate: Callable[[BrokerConfig, OwnSettings, Timers, Topics, FindShard], FeatureGroups]


@cache
def group_types() -> tuple[GroupType, ...]:
    return tuple(each.GROUP_TYPE for each in parts("group_types"))
