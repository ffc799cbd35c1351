"""The requests that prepare others, and what all cases use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.request_generator.values import (
    ALTERED,
    CLASSIC_GROUP,
    COMPLETE_ID,
    CONSUMER_GROUP,
    FETCHED_GROUP,
    GOOD,
    OFFSETS_GROUP,
    ONGOING_ID,
    OPEN,
    PRESENT,
    SHARE_GROUP,
    SHARE_MEMBER,
    SHARED,
    TRIMMED,
    Batch,
    Known,
)


@dataclass(frozen=True)
class Step:
    """A request with its body, and what to remember of its answer: names to paths in it."""

    api: str
    version: int
    body: Mapping[str, Any]
    remember: Mapping[str, str] = field(default_factory=dict)


# Requests that prepare others. `{n}` stands for the number of the case.


def topic(name: str, partitions: int = 1) -> Step:
    """Return the request that creates a topic."""
    body = {
        "topics": [
            {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        ],
        "timeout_ms": 30_000,
        "validate_only": False,
    }
    return Step("CreateTopics", 7, body, {"topic_id": "topics.0.topic_id"})


def producer(transactional_id: str | None = "id-{n}") -> Step:
    """Return the request for a producer id."""
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 600_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return Step("InitProducerId", 4, body, {"producer_id": "producer_id", "producer_epoch": "producer_epoch"})


def add(*partitions: int, transactional_id: str = "id-{n}", name: str = PRESENT) -> Step:
    """Return the request that adds partitions to a transaction."""
    body = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": Known("producer_id"),
        "v3_and_below_producer_epoch": Known("producer_epoch"),
        "v3_and_below_topics": [{"name": name, "partitions": list(partitions or (0,))}],
    }
    return Step("AddPartitionsToTxn", 3, body)


def add_offsets(group: str = "group-{n}") -> Step:
    """Return the request that adds the offsets of a group to a transaction."""
    body = {
        "transactional_id": "id-{n}",
        "producer_id": Known("producer_id"),
        "producer_epoch": Known("producer_epoch"),
        "group_id": group,
    }
    return Step("AddOffsetsToTxn", 3, body)


def end(*, transactional_id: str = "id-{n}", commit: bool = True) -> Step:
    """Return the request that ends a transaction."""
    body = {
        "transactional_id": transactional_id,
        "producer_id": Known("producer_id"),
        "producer_epoch": Known("producer_epoch"),
        "committed": commit,
    }
    return Step("EndTxn", 3, body)


def produce(name: str, batch: Batch, transactional_id: str | None = None, partition: int = 0) -> Step:
    """Return the request that writes a batch."""
    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": name, "partition_data": [{"index": partition, "records": batch}]}],
    }
    return Step("Produce", 11, body)


def join(group: str = "group-{n}") -> tuple[Step, ...]:
    """Return the requests that make a member of a classic group and its leader."""
    body = {
        "group_id": group,
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}],
    }
    remember = {"member_id": "member_id", "generation_id": "generation_id"}
    return (
        Step("JoinGroup", 5, body, remember),
        Step("JoinGroup", 5, body | {"member_id": Known("member_id")}, remember),
    )


def sync(group: str = "group-{n}") -> Step:
    """Return the request with which the leader gives out the assignment."""
    body = {
        "group_id": group,
        "generation_id": Known("generation_id"),
        "member_id": Known("member_id"),
        "group_instance_id": None,
        "assignments": [{"member_id": Known("member_id"), "assignment": b"\0\0\0\0\0\0\xff\xff\xff\xff"}],
    }
    return Step("SyncGroup", 3, body)


def commit(group: str = "group-{n}", name: str = PRESENT) -> Step:
    """Return the request that commits an offset outside of transactions."""
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 2,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "m",
                    }
                ],
            }
        ],
    }
    return Step("OffsetCommit", 8, body)


def consumer_member(group: str = "group-{n}") -> Step:
    """Return the request with which a member joins a consumer group."""
    body = {**GOOD["ConsumerGroupHeartbeat"], "group_id": group}
    return Step("ConsumerGroupHeartbeat", 1, body, {"member_epoch": "member_epoch"})


def share_member(group: str = "group-{n}", epoch: int = 0) -> Step:
    """Return the request with which a member joins a share group; with epoch -1 it leaves."""
    return Step("ShareGroupHeartbeat", 1, {**GOOD["ShareGroupHeartbeat"], "group_id": group, "member_epoch": epoch})


def share_session(group: str = "group-{n}", partition: int = 0, member: str = SHARE_MEMBER) -> Step:
    """Return the request with which a member of a share group begins its session and acquires records."""
    partitions = [{"partition_index": partition, "acknowledgement_batches": []}]
    body = {**GOOD["ShareFetch"], "group_id": group, "member_id": member, "max_wait_ms": 3_000}
    return Step("ShareFetch", 1, {**body, "topics": [{"topic_id": Known("shared"), "partitions": partitions}]})


def share_offsets() -> Step:
    """Return the request that sets the offset of an empty share group."""
    topics = [{"topic_name": PRESENT, "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    return Step("AlterShareGroupOffsets", 0, {"group_id": "group-{n}", "topics": topics})


def share_state(group: str = "group-{n}", partition: int = 0, topic_id: str = "present") -> Step:
    """Return the request that begins the state of a share group."""
    partitions = [{"partition": partition, "state_epoch": 0, "start_offset": 0}]
    topics = [{"topic_id": Known(topic_id), "partitions": partitions}]
    return Step("InitializeShareGroupState", 0, {"group_id": group, "topics": topics})


def coordinator(key_type: int, key: str) -> Step:
    """Return the request that makes a broker create the topic of its coordinator."""
    return Step("FindCoordinator", 6, {"key_type": key_type, "coordinator_keys": [key]})


# What all cases may use: it exists before the first and is the same on both brokers.
_SHARE_KEY: Final = "group:AAAAAAAAAAAAAAAAAAAAAA:0"
WORLD: Final = (
    coordinator(0, "any"),
    coordinator(1, "any"),
    coordinator(2, _SHARE_KEY),
    topic(PRESENT, 2),
    Step(
        "Metadata",
        12,
        {"topics": [{"name": PRESENT, "topic_id": None}], "allow_auto_topic_creation": False},
        {"present": "topics.0.topic_id"},
    ),
    topic(SHARED, 2),
    Step(
        "Metadata",
        12,
        {"topics": [{"name": SHARED, "topic_id": None}], "allow_auto_topic_creation": False},
        {"shared": "topics.0.topic_id"},
    ),
    produce(SHARED, Batch()),
    topic(OPEN),
    topic(TRIMMED),
    topic(ALTERED),
    produce(PRESENT, Batch()),
    producer(COMPLETE_ID),
    add(0, transactional_id=COMPLETE_ID),
    produce(PRESENT, Batch(True, "producer_id"), COMPLETE_ID),
    end(transactional_id=COMPLETE_ID),
    # Answered when the marker is written.
    producer(COMPLETE_ID),
    produce(PRESENT, Batch()),
    producer(ONGOING_ID),
    add(0, transactional_id=ONGOING_ID, name=OPEN),
    produce(OPEN, Batch(True, "producer_id"), ONGOING_ID),
    produce(TRIMMED, Batch()),
    commit(OFFSETS_GROUP),
    *join(CLASSIC_GROUP),
    sync(CLASSIC_GROUP),
    consumer_member(CONSUMER_GROUP),
    share_member(SHARE_GROUP),
    # Its partition has no records, so this waits until it is loaded, and later fetches are answered at once.
    share_state(FETCHED_GROUP, 1, "shared"),
    share_session(FETCHED_GROUP, 1),
)


@dataclass(frozen=True)
class Other:
    """A request that differs from the good one in several fields, and has steps of its own."""

    label: str
    changes: Mapping[str, Any]
    setup: tuple[Step, ...] = ()


_CLUSTER: Final = Step("DescribeCluster", 0, {}, {"cluster": "cluster_id"})
OTHERS: Final[Mapping[str, tuple[Other, ...]]] = {
    "ApiVersions": tuple(
        Other(label, {"cluster_id": cluster, "node_id": node}, (_CLUSTER,))
        for label, cluster, node in (
            ("expects this node", Known("cluster"), 1),
            ("expects another node", Known("cluster"), 2),
            ("expects another cluster", "another", 1),
        )
    ),
    "TxnOffsetCommit": tuple(
        Other(
            f"member epoch {epoch}",
            {"group_id": CONSUMER_GROUP, "member_id": "m1", "generation_id_or_member_epoch": epoch},
            (producer(), add_offsets(CONSUMER_GROUP)),
        )
        for epoch in (0, 9)
    ),
    "Produce": tuple(
        Other(label, {"transactional_id": "id-{n}", "records": Batch(True, "producer_id")}, (producer(), *setup))
        for label, setup in (("in no transaction", ()), ("in a transaction", (add(),)))
    ),
    "FindCoordinator": (
        Other("a key of share groups", {"key_type": 2, "key": _SHARE_KEY, "coordinator_keys": [_SHARE_KEY]}),
    ),
    "ShareFetch": (
        Other(
            "with records",
            {"group_id": "group-{n}", "partition_index": 0, "max_wait_ms": 3_000},
            (share_state(topic_id="shared"),),
        ),
    ),
}
_LEFT_SHARE: Final = (share_member(), share_member(epoch=-1))
# The steps that the requests of an API need. They are sent for each case.
_TRANSACTION = (producer(), add())
SETUP: Final[Mapping[str, tuple[Step, ...]]] = {
    "Produce": (producer(None),),
    "AddPartitionsToTxn": (producer(),),
    "AddOffsetsToTxn": (producer(),),
    "EndTxn": _TRANSACTION,
    "TxnOffsetCommit": (producer(), add_offsets()),
    "Heartbeat": (*join(), sync()),
    "LeaveGroup": (*join(), sync()),
    "SyncGroup": join(),
    "OffsetCommit": (),
    "DeleteGroups": (commit(),),
    "OffsetDelete": (commit(),),
    "DeleteTopics": (topic("topic-{n}"),),
    "CreatePartitions": (),
    "ShareAcknowledge": (share_state(topic_id="shared"), share_session()),
    "ReadShareGroupState": (share_state(),),
    "WriteShareGroupState": (share_state(),),
    "DeleteShareGroupState": (share_state(),),
    "ReadShareGroupStateSummary": (share_state(),),
    "AlterShareGroupOffsets": _LEFT_SHARE,
    "DeleteShareGroupOffsets": (*_LEFT_SHARE, share_offsets()),
}
