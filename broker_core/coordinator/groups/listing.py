"""The list of groups, of all protocols."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from broker_core.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from broker_core.coordinator.groups.consumer.requests import CONSUMER_GROUP_TYPE
from broker_core.coordinator.groups.shard import GroupShard

CLASSIC_GROUP_TYPE: str = "classic"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in the list of groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_GROUP_TYPE


@dataclass(frozen=True, slots=True)
class ListGroups:
    """A filter for the list of groups; an empty filter matches all, names are compared without case."""

    states: Collection[str] = ()
    types: Collection[str] = ()


def listed(shards: Iterable[GroupShard], request: ListGroups) -> list[GroupListing]:
    """List the groups of some partitions: classic groups, then consumer groups, then the types of features."""
    states = {state.lower() for state in request.states}
    types = {group_type.lower() for group_type in request.types}
    classic, consumer, of_features = [], [], []
    for shard in shards:
        classic += [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value)
            for group in shard.groups.values()
        ]
        consumer += [
            GroupListing(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_GROUP_TYPE)
            for group in shard.consumer_groups.values()
        ]
        of_features += [
            GroupListing(group.group_id, name, group.state.value, name)
            for name, groups in shard.of_features.items()
            for group in groups.values()
        ]
    return [
        group
        for group in (*classic, *consumer, *of_features)
        if (not types or group.group_type in types) and (not states or group.state.lower() in states)
    ]
