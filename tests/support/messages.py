"""Kafka's messages from plain values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker_core.wire import messages as m

# The kinds of changes of features.
UPGRADE, SAFE, UNSAFE = 1, 2, 3
# The fields of a filter that every ACL matches.
EVERY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def filled(form: Any, /, **fields: Any) -> Any:
    """Return a message; what is nested in it may be dicts: `filled(m.MetadataRequest, topics=[{"name": "t"}])`."""
    return form(**{name: _objects(form, name, value) for name, value in fields.items()})


def _objects(form: Any, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_objects(form, name, each) for each in value]
    return filled(form.fields[name].data_class, **value) if isinstance(value, dict) else value


def creation(
    *names: str,
    assignments: Iterable[tuple[int, list[int]]] = (),
    config: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
    **sizes: int,
) -> Any:
    """Return a CreateTopics for topics of one partition with one replica, or of other sizes."""
    topic = {
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [{"partition_index": at, "broker_ids": brokers} for at, brokers in assignments],
        "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        **sizes,
    }
    topics = [{"name": name, **topic} for name in names]
    return filled(m.CreateTopicsRequest, topics=topics, timeout_ms=30_000, validate_only=validate_only)


def levels_request(*updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    """Return an UpdateFeatures for the version: the name of each feature, its level, and the kind of the change."""
    wanted = [
        {"feature": name, "max_version_level": level}
        | ({"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE})
        for name, level, kind in updates
    ]
    return filled(m.UpdateFeaturesRequest, timeout_ms=10_000, validate_only=validate_only, feature_updates=wanted)


def offsets_request(
    *topics: str,
    timestamp: int = -1,
    partitions: Sequence[int] = (0,),
    isolation: int = 0,
    leader_epoch: int = -1,
    replica_id: int = -1,
) -> Any:
    """Return a ListOffsets for one timestamp in partitions of each topic; -1 asks for the end."""
    parts = [
        {"partition_index": number, "current_leader_epoch": leader_epoch, "timestamp": timestamp}
        for number in partitions
    ]
    named = [{"name": topic, "partitions": parts} for topic in topics]
    return filled(m.ListOffsetsRequest, replica_id=replica_id, isolation_level=isolation, topics=named)


def consumer_join(group: str, *topics: str, member_id: str = "x", **fields: Any) -> Any:
    """Return the first ConsumerGroupHeartbeat of a member that has no partitions yet."""
    usual = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    fields = {**usual, "subscribed_topic_names": list(topics), **fields}
    return m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, **fields)


def epoch_end_request(topic: str, leader_epoch: int) -> Any:
    """Return the request, of version 4, for the end of a leader epoch of partition 0, whatever epoch is current."""
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
    return filled(m.OffsetForLeaderEpochRequest, replica_id=-1, topics=[{"topic": topic, "partitions": [part]}])
