"""The exchange of a running cluster's files for those of an earlier moment, while clients stay connected.

Clients reject metadata with an older leader epoch than they know, so the leader epochs of the restored cluster are
higher than those of both. The members of groups are not restored: a member that is still connected would otherwise go
on from its own position and not from the restored offsets, and others would wait for members that are gone. Nor are
the sequence numbers of producers: those of a connected producer count on, and a gap is a fatal error for it.
"""

from collections.abc import Iterable, Mapping

from broker_core.broker.cluster import Cluster
from broker_core.broker.features import check_supported
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_log import MetadataLog
from broker_core.broker.stale_broker import rejoin
from broker_core.coordinator.groups.classic.requests import LeaveGroup, LeavingMember
from broker_core.coordinator.groups.consumer.requests import ConsumerHeartbeat
from broker_core.coordinator.groups.listing import ListGroups
from broker_core.coordinator.groups.share.requests import ShareHeartbeat
from broker_core.errors import ErrorCode
from broker_core.ports import Storage
from broker_core.types import TopicPartition

_LEAVES = -1


def close_answering(cluster: Cluster, now_ms: int) -> None:
    """Answer the requests that wait, members as by a coordinator that moves and fetches with what there is, and close.

    Brokers that are cut off from the others return first.
    """
    for broker_id in cluster.brokers:
        rejoin(cluster, broker_id)
    cluster.controller.resign_coordinators()
    cluster.purgatory.expire_all(now_ms)
    cluster.close(now_ms)


def leader_epochs(cluster: Cluster) -> dict[TopicPartition, int]:
    """Return the leader epoch of each partition."""
    return {
        place: leadership.leader_epoch
        for topic in cluster.metadata.topics.values()
        for place, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True)
    }


def check_levels(storage: Storage, version: str) -> None:
    """Raise `ConfigError` if the files are of a cluster that the version of Kafka cannot open."""
    check_supported(version, _read(storage, 0)[1].features)


def raise_leader_epochs(storage: Storage, least: Mapping[TopicPartition, int], now_ms: int) -> None:
    """Raise the leader epochs in the files of a cluster that is not open to at least the given ones."""
    log, metadata = _read(storage, now_ms)
    for topic in list(metadata.topics.values()):
        metadata.raise_leader_epochs(topic.name, [least.get(place, 0) for place in topic.topic_partitions()])
    log.close(now_ms)


def _read(storage: Storage, now_ms: int) -> tuple[MetadataLog, ClusterMetadata]:
    log = MetadataLog(storage, lambda: now_ms)
    metadata = ClusterMetadata(log.append, ())
    metadata.load(log.records())
    return log, metadata


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
        for listed in groups.list_groups(ListGroups()):
            for member in groups.share.describe(listed.group_id).members:
                groups.share.heartbeat(ShareHeartbeat(listed.group_id, member.member_id, _LEAVES), now_ms)
            described = groups.describe_consumer_group(listed.group_id)
            if described.error is ErrorCode.NONE:
                for consumer in described.members:
                    groups.consumer_heartbeat(ConsumerHeartbeat(listed.group_id, consumer.member_id, _LEAVES), now_ms)
            else:
                members = tuple(LeavingMember(each.member_id) for each in groups.describe(listed.group_id).members)
                if members:
                    groups.leave_group(LeaveGroup(listed.group_id, members), now_ms)
