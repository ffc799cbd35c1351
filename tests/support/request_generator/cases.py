"""The requests: each API and version once with good arguments, and again with each field set to wrong values.

A good value comes from a table here, by API and field; a field without a row gets a value for its type, so a new API
is covered without a change here. Steps prepare what a request needs, for example a member of a group.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from broker_core.wire.versions import SERVED, ServedApi
from tests.support.raw_session import NOBODY, Identity, record_batch

PRESENT, OPEN, TRIMMED, ALTERED = "present", "open", "trimmed", "altered"
OFFSETS_GROUP, CLASSIC_GROUP, CONSUMER_GROUP = "group-of-offsets", "group-classic", "group-consumer"
COMPLETE_ID, ONGOING_ID = "id-complete", "id-ongoing"
MISSING: Final = "missing-{n}"
TIME_MS: Final = 1_500_000_000_000
UNKNOWN_ID: Final = 1 << 61
UNKNOWN_UUID: Final = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
ZERO_UUID: Final = UUID(int=0)
APIS: Final[Mapping[str, ServedApi]] = {api.name: api for api in SERVED.values()}


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


@dataclass(frozen=True)
class Step:
    """A request with its body, and what to remember of its answer: names to paths in it."""

    api: str
    version: int
    body: Mapping[str, Any]
    remember: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One request whose answers are compared, with the steps before it."""

    number: int
    step: Step
    label: str
    setup: tuple[Step, ...] = ()
    has_rights: bool = True
    may_wait: bool = False

    @property
    def name(self) -> str:
        """Return how the case is called in messages."""
        who = "" if self.has_rights else " without rights"
        return f"{self.step.api} v{self.step.version} {self.label}{who}"


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
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
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
    body = {
        "group_id": group,
        "member_id": "m1",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [PRESENT],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    return Step("ConsumerGroupHeartbeat", 1, body, {"member_epoch": "member_epoch"})


def coordinator(key_type: int, key: str) -> Step:
    """Return the request that makes a broker create the topic of its coordinator."""
    return Step("FindCoordinator", 4, {"key_type": key_type, "coordinator_keys": [key]})


# What all cases may use: it exists before the first and is the same on both brokers.
WORLD: Final = (
    coordinator(0, "any"),
    coordinator(1, "any"),
    topic(PRESENT, 2),
    Step(
        "Metadata",
        12,
        {"topics": [{"name": PRESENT, "topic_id": None}], "allow_auto_topic_creation": False},
        {"present": "topics.0.topic_id"},
    ),
    topic(OPEN),
    topic(TRIMMED),
    topic(ALTERED),
    produce(PRESENT, Batch()),
    producer(COMPLETE_ID),
    add(0, transactional_id=COMPLETE_ID),
    produce(PRESENT, Batch(True, "producer_id"), COMPLETE_ID),
    end(transactional_id=COMPLETE_ID),
    produce(PRESENT, Batch()),
    producer(ONGOING_ID),
    add(0, transactional_id=ONGOING_ID, name=OPEN),
    produce(OPEN, Batch(True, "producer_id"), ONGOING_ID),
    produce(TRIMMED, Batch()),
    commit(OFFSETS_GROUP),
    *join(CLASSIC_GROUP),
    sync(CLASSIC_GROUP),
    consumer_member(CONSUMER_GROUP),
)

# The steps that the requests of an API need. They are sent anew for each case.
_TRANSACTION = (producer(), add())
SETUP: Final[Mapping[str, tuple[Step, ...]]] = {
    "Produce": (producer(None),),
    "AddPartitionsToTxn": (producer(),),
    "AddOffsetsToTxn": (producer(),),
    "EndTxn": _TRANSACTION,
    "TxnOffsetCommit": (
        producer(),
        Step(
            "AddOffsetsToTxn",
            3,
            {
                "transactional_id": "id-{n}",
                "producer_id": Known("producer_id"),
                "producer_epoch": Known("producer_epoch"),
                "group_id": "group-{n}",
            },
        ),
    ),
    "Heartbeat": (*join(), sync()),
    "LeaveGroup": (*join(), sync()),
    "SyncGroup": join(),
    "OffsetCommit": (),
    "DeleteGroups": (commit(),),
    "OffsetDelete": (commit(),),
    "DeleteTopics": (topic("topic-{n}"),),
    "CreatePartitions": (),
}
_GROUPS: Final = {"group_id": OFFSETS_GROUP}
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
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
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
    "ApiVersions": {"client_software_name": "tests", "client_software_version": "1"},
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
    "WriteTxnMarkers": {"producer_id": 1 << 60, "producer_epoch": 0, "coordinator_epoch": 0},
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
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [PRESENT],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": [CONSUMER_GROUP]},
    "SaslAuthenticate": {"auth_bytes": b"\0user\0password"},
}
# The good values of fields in all APIs.
_GOOD_IN_ALL: Final[Mapping[str, Any]] = {
    "topic_id": Known("present"),
    "timeout_ms": 30_000,
    "transaction_timeout_ms": 60_000,
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
_BY_ENTITY: Final[Mapping[str, Any]] = {
    "topicName": PRESENT,
    "groupId": OFFSETS_GROUP,
    "transactionalId": COMPLETE_ID,
    "producerId": UNKNOWN_ID,
    "brokerId": 1,
}
_WRONG_INTEGERS: Final = {
    "int8": (-128, -1, 0, 1, 2, 3, 127),
    "int16": (-2, -1, 0, 1, 32767),
    "uint16": (0, 65535),
    "int32": (-2, -1, 0, 1, 2147483647),
    "int64": (-2, -1, 0, 1, 9223372036854775807),
}
# Further values for fields whose values have meanings.
_OTHER_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
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
    "group_id": (CLASSIC_GROUP, CONSUMER_GROUP),
    "groups_names": ([CLASSIC_GROUP], [CONSUMER_GROUP]),
    "groups": ([CONSUMER_GROUP], [OFFSETS_GROUP]),
    "group_ids": ([CLASSIC_GROUP],),
    "key": ("group:AAAAAAAAAAAAAAAAAAAAAA:0",),
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
    ("AddPartitionsToTxn", "verify_only"): "brokers verify; clients add",
}
# Single values that are not sent, and why.
_RESTART: Final = "Apache Kafka's controller fails and takes over again, which takes seconds; one such value is sent"
_NOT_SENT_VALUES: Final[Mapping[tuple[str, str, str], str]] = {
    ("JoinGroup", "group_id", repr(CLASSIC_GROUP)): "waits for the member that is there",
    **{("IncrementalAlterConfigs", "config_operation", str(value)): _RESTART for value in (-128, -1, 100, 127)},
}
# Requests that a broker does not answer: they wait for their answers at the same time.
_UNANSWERED: Final = frozenset(
    {
        ("Produce", "records", "null"),
        ("JoinGroup", "protocols", "twice"),
        ("AddPartitionsToTxn", "transactions", "empty"),
        ("WriteTxnMarkers", "topics", "twice"),
        ("WriteTxnMarkers", "partition_indexes", "twice"),
    }
)
_LONG: Final = "x" * 250 + "{n}"


def batch_bytes(batch: Batch, identity: Identity) -> bytes:
    """Build three records with fixed times."""
    return record_batch(
        [b"a", b"b", b"c"],
        identity if batch.producer else NOBODY,
        batch.sequence if batch.producer else -1,
        transactional=batch.transactional,
        timestamp_ms=TIME_MS,
    )


def build(api: ServedApi, version: int, body: Mapping[str, Any], resolve: Callable[[Any], Any]) -> Any:
    """Return kafka-python's message for a body; fields that the body leaves out have their defaults."""
    return _container(api.request, api.request._struct, version, body, resolve)


def _container(
    form: Any, struct_field: Any, version: int, body: Mapping[str, Any], resolve: Callable[[Any], Any]
) -> Any:
    values = {}
    for each in _fields(struct_field, version):
        if each.name not in body:
            continue
        value = body[each.name]
        if value is not None and each.is_struct_array():
            inner = getattr(form, each.type_str)
            value = [_container(inner, each, version, item, resolve) for item in value]
        elif value is not None and each.is_struct():
            value = _container(getattr(form, each.type_str), each, version, value, resolve)
        else:
            value = [resolve(item) for item in value] if isinstance(value, list) else resolve(value)
        values[each.name] = value
    return form(**values)


def _fields(struct_field: Any, version: int) -> Iterator[Any]:
    return (each for each in struct_field._fields if each.for_version_q(version))


def good_body(api: ServedApi, version: int) -> dict[str, Any]:
    """Return a body with a good value in each field."""
    return _good_struct(api, api.request._struct, version, ())


def _good_struct(api: ServedApi, struct_field: Any, version: int, path: tuple[str, ...]) -> dict[str, Any]:
    return {
        each.name: _good(api, each, version, (*path, each.name))
        for each in _fields(struct_field, version)
        # Tagged fields are sent only when one is the subject of a case.
        if not each.tagged_field_q(version)
    }


def _row(table: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Return the key of the most specific row for a field."""
    for start in range(len(path)):
        key = ".".join(path[start:])
        if key in table:
            return key
    return None


def _good(api: ServedApi, each: Any, version: int, path: tuple[str, ...]) -> Any:
    for table in (GOOD.get(api.name, {}), _GOOD_IN_ALL):
        row = _row(table, path)
        if row is not None and not (each.is_struct_array() and table[row] and not isinstance(table[row][0], Mapping)):
            return table[row]
    entity = _BY_ENTITY.get(each._entity_type or "")
    if each.is_struct_array():
        return [_good_struct(api, each, version, path)]
    if each.is_struct():
        return _good_struct(api, each, version, path)
    if each.is_array():
        item = entity if entity is not None else _plain(each.array_of.type_str)
        return [item]
    return entity if entity is not None else _plain(each.type_str, each.default)


def _plain(kind: str, default: Any = None) -> Any:
    if default is not None and default != "":
        return default
    return {"string": "text", "bool": False, "uuid": ZERO_UUID, "bytes": b"bytes", "records": b"", "float64": 1.0}.get(
        kind, 0
    )


def _wrong_values(
    api: ServedApi, each: Any, version: int, path: tuple[str, ...], good: Any
) -> Iterator[tuple[str, Any]]:
    nullable = each.nullable_for_version_q(version)
    if each.is_array():
        yield "empty", []
        yield "null", None
        if good:
            yield "twice", [*good, *good]
            if each._entity_type and each.type_str != "int64":
                yield "missing", [MISSING if isinstance(good[0], str) else 9]
            if isinstance(good[0], str):
                yield "of an empty string", [""]
                yield "more", [*good, MISSING]
            elif isinstance(good[0], int):
                yield "negative", [-1]
                yield "large", [2147483647]
                yield "more", [*good, 7]
    elif each.is_struct():
        if nullable:
            yield "null", None
    elif each.type_str == "string":
        yield "empty", ""
        yield "null", None
        yield "missing", MISSING
        yield "long", _LONG
        yield "with a slash", "a/{n}"
    elif each.type_str in _WRONG_INTEGERS:
        wrong: Sequence[int] = _WRONG_INTEGERS[each.type_str]
        if each._entity_type == "producerId":
            wrong = (-2, -1, UNKNOWN_ID, 9223372036854775807)
        elif each._entity_type == "brokerId":
            wrong = (-2, -1, 9)
        elif each.name == "acks":
            # A request with acks of 0 has no answer.
            wrong = (-2, 1, 2)
        yield from ((str(value), value) for value in wrong)
    elif each.type_str == "bool":
        yield str(not good), not good
    elif each.type_str == "uuid":
        yield "zero", ZERO_UUID
        yield "unknown", UNKNOWN_UUID
    elif each.type_str == "float64":
        yield from ((str(value), value) for value in (-1.0, 0.0, float("nan")))
    else:
        yield "empty", b""
        yield "null", None
        yield "short", b"\xff"
    row = _row(_OTHER_VALUES, path)
    if row is not None:
        yield from ((repr(value), value) for value in _OTHER_VALUES[row])


def _variants(api: ServedApi, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the good body, and each body that differs from it in one field."""
    body = good_body(api, version)
    yield "good", body
    yield from _struct_variants(api, api.request._struct, version, (), body)


def _struct_variants(
    api: ServedApi, struct_field: Any, version: int, path: tuple[str, ...], body: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in _fields(struct_field, version):
        if (api.name, each.name) in NOT_SENT or each.tagged_field_q(version):
            continue
        good, here = body[each.name], (*path, each.name)
        for label, value in _wrong_values(api, each, version, here, good):
            is_sent = (api.name, each.name, label) not in _NOT_SENT_VALUES
            if is_sent and (value != good or type(value) is not type(good)):
                yield f"{'.'.join(here)}={label}", {**body, each.name: value}
        if each.is_struct_array() and good:
            for label, item in _struct_variants(api, each, version, here, good[0]):
                yield label, {**body, each.name: [item, *good[1:]]}
        elif each.is_struct() and good is not None:
            for label, inner in _struct_variants(api, each, version, here, good):
                yield label, {**body, each.name: inner}


# The answers to these name all that exists, so they are compared before other cases change it.
_FIRST: Final = (
    "ApiVersions",
    "ListGroups",
    "ListTransactions",
    "Metadata",
    "DescribeAcls",
    "DescribeUserScramCredentials",
    "DescribeLogDirs",
)


def cases(versions: Mapping[str, tuple[int, int]], every: int = 1) -> list[Case]:
    """Return all cases for the APIs that are given with their versions, in the order of their sending.

    The newest version gets all cases. An older one gets the good request, and every so many of the others.
    """
    names = sorted(versions, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), APIS[name].key))
    found: list[Case] = []
    for name in names:
        low, high = versions[name]
        for version in range(high, low - 1, -1):
            for index, (label, body) in enumerate(_variants(APIS[name], version)):
                if version == high or not index or not (index + version) % every:
                    path, _, value = label.partition("=")
                    may_wait = (name, path.rpartition(".")[2], value) in _UNANSWERED
                    step = Step(name, version, body)
                    found.append(Case(len(found), step, label, SETUP.get(name, ()), may_wait=may_wait))
    for name in names:
        low, high = versions[name]
        for version in range(low, high + 1):
            step = Step(name, version, good_body(APIS[name], version))
            found.append(Case(len(found), step, "good", SETUP.get(name, ()), has_rights=False))
    return found
