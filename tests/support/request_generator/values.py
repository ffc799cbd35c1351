"""The arguments of the generated requests: a good value for each field, and wrong ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests.support.raw_session import NOBODY, Identity, record_batch

PRESENT, OPEN, TRIMMED, ALTERED = "present", "open", "trimmed", "altered"
OFFSETS_GROUP, CLASSIC_GROUP, CONSUMER_GROUP = "group-of-offsets", "group-classic", "group-consumer"
SHARED: Final = "shared"
SHARE_GROUP, FETCHED_GROUP = "group-share", "group-fetched"
SHARE_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
COMPLETE_ID, ONGOING_ID = "id-complete", "id-ongoing"
MISSING: Final = "missing-{n}"
TIME_MS: Final = 1_500_000_000_000
UNKNOWN_ID: Final = 1 << 61
# The producer id of markers without a transaction.
MARKED_ID: Final = 1 << 60
UNKNOWN_UUID: Final = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
ZERO_UUID: Final = UUID(int=0)


@dataclass(frozen=True)
class Known:
    """A value that the broker gives out, remembered under a name by an earlier answer."""

    name: str


@dataclass(frozen=True)
class Batch:
    """A batch of records of a producer whose identity is known only when it is sent."""

    transactional: bool = False
    producer: str | None = None
    sequence: int = 0


def batch_bytes(batch: Batch, identity: Identity) -> bytes:
    """Build three records with fixed times."""
    return record_batch(
        [b"a", b"b", b"c"],
        identity if batch.producer else NOBODY,
        batch.sequence if batch.producer else -1,
        transactional=batch.transactional,
        timestamp_ms=TIME_MS,
    )


def renamed(topic: str, group: str, transactional_id: str) -> dict[Any, Any]:
    """Return what stands for good values in requests about another topic, group and id, and about no member."""
    return {
        **dict.fromkeys((PRESENT, ALTERED, TRIMMED, "topic-{n}"), topic),
        **dict.fromkeys((OFFSETS_GROUP, CLASSIC_GROUP, CONSUMER_GROUP, "group-{n}"), group),
        **dict.fromkeys((ONGOING_ID, "id-{n}"), transactional_id),
        Known("generation_id"): 1,
        Known("member_id"): "stranger",
    }


_MEMBER: Final = {
    "group_id": "group-{n}",
    "generation_id": Known("generation_id"),
    "member_id": Known("member_id"),
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocol_name": "range",
}
_IDENTITY: Final = {
    "transactional_id": "id-{n}",
    "v3_and_below_transactional_id": "id-{n}",
    "producer_id": Known("producer_id"),
    "v3_and_below_producer_id": Known("producer_id"),
    "producer_epoch": Known("producer_epoch"),
    "v3_and_below_producer_epoch": Known("producer_epoch"),
    "group_id": "group-{n}",
}
_SHARE_SESSION: Final = {"group_id": "group-{n}", "member_id": SHARE_MEMBER}
_SHARE_STATE: Final = {"group_id": "group-{n}", "state_epoch": 0, "start_offset": 0}
_ACL_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "of-acls",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
# The good value of a field: by API, then by the path of the field or its name.
GOOD: Final[Mapping[str, Mapping[str, Any]]] = {
    "Produce": {"acks": -1, "records": Batch(producer="producer_id"), "transactional_id": None},
    "Fetch": {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_epoch": -1,
        "partition_max_bytes": 1 << 20,
        "forgotten_topics_data": [],
    },
    "ListOffsets": {"replica_id": -1, "timestamp": -1},
    "Metadata": {"allow_auto_topic_creation": False, "topic_id": ZERO_UUID},
    "OffsetCommit": {
        "group_id": "group-{n}",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "committed_offset": 1,
        "retention_time_ms": -1,
    },
    "OffsetFetch": {"group_id": OFFSETS_GROUP, "member_id": None, "member_epoch": -1},
    "FindCoordinator": {"key": "any", "coordinator_keys": ["any"], "key_type": 1},
    "JoinGroup": {
        "group_id": "group-{n}",
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols.name": "range",
        "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff",
    },
    "Heartbeat": _MEMBER,
    "LeaveGroup": _MEMBER,
    "SyncGroup": _MEMBER,
    "DescribeGroups": {"groups": [CLASSIC_GROUP]},
    "ListGroups": {"states_filter": [], "types_filter": []},
    "ApiVersions": {
        "client_software_name": "tests",
        "client_software_version": "1",
        "cluster_id": None,
        "node_id": -1,
    },
    "SaslHandshake": {"mechanism": "PLAIN"},
    "CreateTopics": {
        "name": "topic-{n}",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "5"}],
        "validate_only": True,
    },
    "DeleteTopics": {"topics.name": "topic-{n}", "topic_id": ZERO_UUID, "topic_names": ["topic-{n}"]},
    "DeleteRecords": {"name": TRIMMED, "offset": 1},
    "InitProducerId": {"transactional_id": "id-{n}", "producer_id": -1, "producer_epoch": -1},
    "OffsetForLeaderEpoch": {"replica_id": -2, "leader_epoch": 0},
    "AddPartitionsToTxn": _IDENTITY,
    "AddOffsetsToTxn": _IDENTITY,
    "EndTxn": _IDENTITY,
    "TxnOffsetCommit": _IDENTITY | {"committed_offset": 1},
    "WriteTxnMarkers": {"name": ALTERED, "producer_id": MARKED_ID, "producer_epoch": 0, "coordinator_epoch": 0},
    "DescribeAcls": _ACL_FILTER,
    "DeleteAcls": _ACL_FILTER,
    "CreateAcls": {
        "resource_type": 2,
        "resource_name": "of-acls",
        "resource_pattern_type": 3,
        "principal": "User:acl",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    },
    "DescribeConfigs": {"resource_type": 2, "resource_name": ALTERED, "configuration_keys": ["retention.ms"]},
    "AlterConfigs": {"resource_type": 2, "resource_name": ALTERED, "configs.name": "retention.ms", "value": "5"},
    "IncrementalAlterConfigs": {
        "resource_type": 2,
        "resource_name": ALTERED,
        "configs.name": "retention.ms",
        "config_operation": 0,
        "value": "5",
    },
    "CreatePartitions": {"name": ALTERED, "count": 3, "assignments": None, "validate_only": True},
    "DeleteGroups": {"groups_names": ["group-{n}"]},
    "OffsetDelete": {"group_id": "group-{n}"},
    "DescribeUserScramCredentials": {"users.name": "user-of-scram"},
    "AlterUserScramCredentials": {
        "deletions": [],
        "upsertions.name": "user-{n}",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"0123456789abcdef",
        "salted_password": b"p" * 32,
    },
    "UpdateFeatures": {
        "feature": "transaction.version",
        "max_version_level": 2,
        "upgrade_type": 1,
        "validate_only": True,
    },
    # A broker that does not exist: the one that runs would leave the cluster.
    "UnregisterBroker": {"broker_id": 9},
    "DescribeCluster": {"endpoint_type": 1},
    "DescribeTransactions": {"transactional_ids": [ONGOING_ID]},
    "ListTransactions": {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    },
    "ConsumerGroupHeartbeat": {
        "group_id": "group-{n}",
        "member_id": "m1",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 600_000,
        "subscribed_topic_names": [PRESENT],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": [CONSUMER_GROUP]},
    "ShareGroupHeartbeat": {
        "group_id": "group-{n}",
        "member_id": SHARE_MEMBER,
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": [PRESENT],
    },
    "ShareGroupDescribe": {"group_ids": [SHARE_GROUP]},
    "ShareFetch": _SHARE_SESSION
    | {
        "group_id": FETCHED_GROUP,
        "topic_id": Known("shared"),
        "partition_index": 1,
        "share_session_epoch": 0,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_records": 500,
        "batch_size": 500,
        "acknowledgement_batches": [],
        "forgotten_topics_data": [],
    },
    "ShareAcknowledge": _SHARE_SESSION
    | {"share_session_epoch": 1, "topic_id": Known("shared"), "last_offset": 1, "acknowledge_types": [1]},
    "InitializeShareGroupState": _SHARE_STATE,
    "ReadShareGroupState": _SHARE_STATE | {"leader_epoch": 0},
    "WriteShareGroupState": _SHARE_STATE
    | {"leader_epoch": 0, "delivery_complete_count": 1, "delivery_state": 2, "delivery_count": 1},
    "DeleteShareGroupState": _SHARE_STATE,
    "ReadShareGroupStateSummary": _SHARE_STATE | {"leader_epoch": 0},
    "DescribeShareGroupOffsets": {"group_id": SHARE_GROUP},
    "AlterShareGroupOffsets": {"group_id": "group-{n}", "start_offset": 1},
    "DeleteShareGroupOffsets": {"group_id": "group-{n}"},
    "SaslAuthenticate": {"auth_bytes": b"\0user\0password"},
}
# The good values of fields in all APIs.
GOOD_IN_ALL: Final[Mapping[str, Any]] = {
    "topic_id": Known("present"),
    "timeout_ms": 30_000,
    "transaction_timeout_ms": 600_000,
    "current_leader_epoch": -1,
    "committed_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "generation_id": -1,
    "partition_indexes": [0],
    "partitions": [0],
    "broker_id": 1,
    "resource_type": 2,
    "resource_name": PRESENT,
}
BY_ENTITY: Final[Mapping[str, Any]] = {
    "topicName": PRESENT,
    "groupId": OFFSETS_GROUP,
    "transactionalId": COMPLETE_ID,
    "producerId": UNKNOWN_ID,
    "brokerId": 1,
}
WRONG_INTEGERS: Final = {
    "int8": (-128, -1, 0, 1, 2, 3, 127),
    "int16": (-2, -1, 0, 1, 32767),
    "uint16": (0, 65535),
    "int32": (-2, -1, 0, 1, 2147483647),
    "int64": (-2, -1, 0, 1, 9223372036854775807),
}
# Further values for fields whose values have meanings.
OTHER_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "timestamp": (-3, -4, -5, -6, TIME_MS, TIME_MS + 1, 1 << 50),
    "resource_type": (4, 8, 16, 32),
    "resource_type_filter": (4, 5, 6, 7),
    "resource_pattern_type": (4,),
    "operation": (4, 7, 8, 12, 14, 15),
    "states_filter": (["Stable"], ["stable", "Empty"], ["wrong"]),
    "types_filter": (["Classic"], ["consumer"], ["wrong"]),
    "state_filters": (["Ongoing"], ["wrong"]),
    "transactional_id_pattern": ("id-o.*", "("),
    "duration_filter": (1 << 40,),
    "replication_factor": (2,),
    "num_partitions": (10_001,),
    "count": (2, 10_001),
    "assignments": (
        [{"partition_index": 0, "broker_ids": [1]}],
        [{"partition_index": 0, "broker_ids": [9]}],
        [{"partition_index": 0, "broker_ids": [1, 1]}],
        [{"partition_index": 0, "broker_ids": []}],
    ),
    "config_operation": (4, 100),
    "configs.name": ("cleanup.policy", "segment.bytes", "wrong.key"),
    "configs": (
        [{"name": "wrong.key", "value": "1", "config_operation": 0}],
        [{"name": "retention.ms", "value": "abc", "config_operation": 0}],
        [{"name": "retention.ms", "value": "-2", "config_operation": 0}],
        [{"name": "cleanup.policy", "value": "wrong", "config_operation": 0}],
        [{"name": "compression.type", "value": "wrong", "config_operation": 0}],
        [{"name": "preallocate", "value": "wrong", "config_operation": 0}],
        [{"name": "min.cleanable.dirty.ratio", "value": "2", "config_operation": 0}],
        [{"name": "segment.bytes", "value": "99999999999", "config_operation": 0}],
        [{"name": "retention.ms", "value": None, "config_operation": 0}],
        [{"name": "retention.ms", "value": None, "config_operation": 1}],
        [{"name": "cleanup.policy", "value": "compact", "config_operation": 2}],
        [{"name": "retention.ms", "value": "5", "config_operation": 2}],
        [{"name": "cleanup.policy", "value": "delete", "config_operation": 3}],
    ),
    "feature": ("group.version", "kraft.version", "wrong"),
    "subscribed_topic_regex": ("pre.*", "("),
    "server_assignor": ("range", "wrong"),
    "mechanism": (2,),
    "iterations": (4095, 16384, 16385),
    "salt": (b"0",),
    "endpoint_type": (2, 3),
    "member_id": ("wrong",),
    "protocol_type": ("wrong",),
    "protocol_name": ("wrong",),
    "principal": ("wrong", "User:*", "User:"),
    "committed_metadata": ("x" * 4097,),
    "group_id": (CLASSIC_GROUP, CONSUMER_GROUP, SHARE_GROUP),
    "groups_names": ([CLASSIC_GROUP], [CONSUMER_GROUP], [SHARE_GROUP]),
    "groups": ([CONSUMER_GROUP], [OFFSETS_GROUP], [SHARE_GROUP]),
    "group_ids": ([CLASSIC_GROUP], [CONSUMER_GROUP], [SHARE_GROUP]),
    "configuration_keys": (["wrong.key"], ["retention.ms", "cleanup.policy"]),
    "topic_names": ([PRESENT + "-" + MISSING],),
    "records": (
        Batch(transactional=True, producer="producer_id"),
        Batch(),
        Batch(producer="producer_id", sequence=5),
        b"\0" * 61,
    ),
}
# Fields with values that are not sent, and why.
NOT_SENT: Final[Mapping[tuple[str, str], str]] = {
    ("Fetch", "replica_id"): "only brokers fetch as replicas",
    ("Fetch", "replica_state"): "only brokers fetch as replicas",
    ("Fetch", "replica_directory_id"): "only brokers fetch as replicas",
    ("Fetch", "high_watermark"): "only brokers fetch as replicas",
    ("Fetch", "cluster_id"): "only brokers fetch as replicas",
    ("UnregisterBroker", "broker_id"): "the broker would leave the cluster",
    ("AddPartitionsToTxn", "verify_only"): "brokers verify; clients add",
}
# Single values that are not sent, and why.
_RESTART: Final = "Apache Kafka's controller fails and takes over again, which takes seconds; one such value is sent"
NOT_SENT_VALUES: Final[Mapping[tuple[str, str, str], str]] = {
    ("JoinGroup", "group_id", repr(CLASSIC_GROUP)): "waits for the member that is there",
    **{("IncrementalAlterConfigs", "config_operation", str(value)): _RESTART for value in (-128, -1, 100, 127)},
}
# Requests that a broker does not answer: they wait for their answers at the same time.
UNANSWERED: Final = frozenset(
    {
        ("Produce", "records", "null"),
        ("JoinGroup", "protocols", "twice"),
        ("AddPartitionsToTxn", "transactions", "empty"),
        ("ShareFetch", "max_wait_ms", "2147483647"),
        ("DescribeShareGroupOffsets", "partitions", "large"),
        ("DescribeShareGroupOffsets", "partitions", "more"),
        ("WriteTxnMarkers", "topics", "twice"),
        ("WriteTxnMarkers", "partition_indexes", "twice"),
    }
)
LONG: Final = "x" * 250 + "{n}"
