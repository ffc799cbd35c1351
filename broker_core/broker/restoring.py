"""The exchange of a running cluster's files for the files of an earlier moment, while clients stay connected.

Clients reject metadata with an older leader epoch than they know, so the leader epochs of the restored cluster are
higher than those of both. The members of groups are not restored: a member that is still connected would otherwise go
on from its own position and not from the restored offsets, and others would wait for members that are gone. Nor are
the sequence numbers of producers: the numbers of a connected producer count on, and a gap is a fatal error for it.
"""

from collections.abc import Iterable, Iterator

from broker_core.broker.cluster import Cluster
from broker_core.broker.feature_levels import check_supported
from broker_core.broker.journals import MetadataLog
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.stale_broker import rejoin
from broker_core.coordinator.groups.classic.requests import LeaveGroup, LeavingMember
from broker_core.coordinator.groups.consumer.requests import ConsumerHeartbeat
from broker_core.errors import ErrorCode
from broker_core.ports import Storage

_LEAVES = -1


def abandon_answering(cluster: Cluster, now_ms: int) -> None:
    """Answer the requests that wait, members as by a coordinator that moves and fetches with what there is.

    Brokers that are cut off from the others return first. The files are then closed as they are, to be exchanged.
    """
    for broker_id in cluster.brokers:
        rejoin(cluster, broker_id)
    cluster.controller.resign_coordinators()
    cluster.purgatory.expire_all(now_ms)
    cluster.abandon(now_ms)


class RestoredMetadata:
    """The metadata in the files of a snapshot, for any number of restores.

    Their records are read once: with hundreds of topics that takes longer than the rest of a restore.
    """

    def __init__(self, storage: Storage) -> None:
        """Read the files of a cluster that is not open; that may change them, as each open of a log."""
        log = MetadataLog.at(storage, lambda: 0)
        metadata = ClusterMetadata(log.append, ())
        self._records = metadata.load(log.records())
        self._levels = metadata.features

    def check_levels(self, version: str) -> None:
        check_supported(version, self._levels)

    def load(self, before: ClusterMetadata, metadata: ClusterMetadata) -> None:
        """Replay the records; raise the leader epochs to at least the epochs clients know from `before`."""
        for offset, record in self._records:
            metadata.replay(offset, record)
        behind = max(_steps_behind(metadata, before), default=0)
        if behind > 0:
            metadata.raise_leader_epochs(behind)


def _steps_behind(metadata: ClusterMetadata, other: ClusterMetadata) -> Iterator[int]:
    for name in metadata.topics.keys() & other.topics.keys():
        for one, two in zip(metadata.topics[name].partitions, other.topics[name].partitions, strict=False):
            yield two.leader_epoch - one.leader_epoch


def begin_without_clients(cluster: Cluster, away: Iterable[int], now_ms: int) -> None:
    """Remove the members of all groups, and the sequence numbers of producers without an open transaction.

    The brokers that are `away` were not running before, and stay so.
    """
    _remove_members(cluster, now_ms)
    cluster.logs.forget_idle_producers(now_ms)
    for broker_id in away:
        cluster.controller.broker_left(broker_id)


def _remove_members(cluster: Cluster, now_ms: int) -> None:
    for broker in cluster.brokers.values():
        groups = broker.groups
        for listed in groups.list_groups():
            for each in groups.of_features.values():
                each.remove_members(listed.group_id, now_ms)
            described = groups.describe_consumer_group(listed.group_id)
            if described.error is ErrorCode.NONE:
                for consumer in described.members:
                    groups.consumer_heartbeat(ConsumerHeartbeat(listed.group_id, consumer.member_id, _LEAVES), now_ms)
            else:
                members = tuple(LeavingMember(member.member_id) for member in groups.describe(listed.group_id).members)
                if members:
                    groups.leave_group(LeaveGroup(listed.group_id, members), now_ms)
