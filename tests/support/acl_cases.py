"""The responses of each API to a principal with none, some and all of the rights that it needs.

Each case sends one request repeatedly, with one more right each time. The expected responses are those of Apache Kafka.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from tests.support.broker_core.answers import error_codes
from tests.support.guarded_kafka import Stage
from tests.support.messages import consumer_join, filled
from tests.support.raw_session import NOBODY, record_batch
from tests.support.request_generator.cases import APIS, build, good_body
from tests.support.request_generator.values import OFFSETS_GROUP, ONGOING_ID, PRESENT, renamed
from tests.support.waiting import wait_until

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_TYPES = {
    "topic": ResourceType.TOPIC,
    "other": ResourceType.TOPIC,
    "missing": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}

Ask = Callable[[Stage], Any]


class Case(NamedTuple):
    """A request, the rights granted one after another, and the expected response before each and after the last."""

    name: str
    ask: Ask
    rights: tuple[tuple[Operation, str], ...]
    answers: tuple[Any, ...]


CASES: list[Case] = []


def type_of(place: str) -> ResourceType:
    """Return the resource type of a name of the stage."""
    return _TYPES[place]


def case(
    *rights: tuple[Operation, str], answers: tuple[Any, ...], what: str = "", into: list[Case] = CASES
) -> Callable[[Ask], Ask]:
    """Add a case; `rights` are pairs of an operation and the attribute of the stage that names its resource."""
    assert len(answers) == len(rights) + 1, "one answer for each number of rights"

    def listed(ask: Ask) -> Ask:
        into.append(Case(what or ask.__name__, ask, rights, answers))
        return ask

    return listed


def answer_of(stage: Stage, version: int, form: Any, **fields: Any) -> Any:
    """Send the user's request, whose nested parts are dicts, and return the response."""
    return stage.client.send(filled(form, **fields), version)


def asks(
    api: str,
    version: int,
    *rights: tuple[Operation, str],
    answers: tuple[list[int], ...],
    what: str = "",
    topic: str = "topic",
    **changes: Any,
) -> None:
    """Add a case of a generated request with these changes; its answer is the list of all error codes."""

    def ask(stage: Stage) -> list[int]:
        instead = renamed(getattr(stage, topic), stage.group, stage.id)
        fields = {"group_instance_id": None, "timeout_ms": 5000} | changes
        request = build(
            APIS[api], version, good_body(APIS[api], version, fields), lambda value: instead.get(value, value)
        )
        return list(error_codes(stage.client.send(request, version)))

    about = "" if topic == "topic" else f" {topic}"
    case(*rights, answers=answers, what=f"{api} {what}".strip() + about)(ask)


# Rules G.1, row by row

asks("FindCoordinator", 4, (DESCRIBE, "id"), answers=([53], [0]), what="of an id", coordinator_keys=[ONGOING_ID])
asks("FindCoordinator", 3, (DESCRIBE, "group"), answers=([30], [0]), what="of a group", key=OFFSETS_GROUP, key_type=0)
asks("InitProducerId", 5, (WRITE, "id"), answers=([53], [0]))
for _rights, _answers in (
    (((IDEMPOTENT_WRITE, "cluster"),), ([31], [0])),
    (((READ, "topic"), (WRITE, "topic")), ([31], [31], [0])),
):
    asks("InitProducerId", 5, *_rights, answers=_answers, what=f"without an id {_rights[0][1]}", transactional_id=None)
asks("ListOffsets", 7, (DESCRIBE, "topic"), answers=([29], [0]))
asks("ListOffsets", 7, (DESCRIBE, "missing"), answers=([29], [3]), topic="missing")
asks("OffsetFetch", 8, (DESCRIBE, "group"), (DESCRIBE, "topic"), answers=([30], [29, 0], [0, 0]))
asks("OffsetFetch", 7, (DESCRIBE, "group"), (DESCRIBE, "topic"), answers=([30], [29, 0], [0, 0]), what="in version 7")
asks("DescribeProducers", 0, (DESCRIBE, "topic"), (READ, "topic"), answers=([29], [29], [0]))
asks("Metadata", 9, (DESCRIBE, "topic"), answers=([29], [0, 0]))
asks("Metadata", 9, (DESCRIBE, "missing"), answers=([29], [3]), topic="missing")
asks("DeleteTopics", 6, (DESCRIBE, "missing"), answers=([29], [3]), topic="missing")
asks("CreatePartitions", 3, (DESCRIBE, "topic"), (ALTER, "topic"), answers=([29], [29], [0]))
asks("DeleteRecords", 2, (DESCRIBE, "topic"), (DELETE, "topic"), answers=([29], [29], [0]), offset=0)
asks("DescribeConfigs", 4, (DESCRIBE, "topic"), (DESCRIBE_CONFIGS, "topic"), answers=([29], [29], [0]))
asks("DescribeConfigs", 4, (ALTER_CONFIGS, "topic"), answers=([29], [0]), what="by those who may alter them")
OF_BROKER: dict[str, Any] = {"resource_type": 4, "resource_name": "1", "what": "of a broker"}
asks("DescribeConfigs", 4, (DESCRIBE_CONFIGS, "cluster"), answers=([31], [0]), configuration_keys=None, **OF_BROKER)
asks(
    *("IncrementalAlterConfigs", 1, (DESCRIBE_CONFIGS, "topic"), (ALTER_CONFIGS, "topic")),
    answers=([29], [29], [0]),
    validate_only=True,
)
asks("IncrementalAlterConfigs", 1, answers=([31],), validate_only=True, configs=[], **OF_BROKER)
asks("OffsetForLeaderEpoch", 4, (DESCRIBE, "topic"), answers=([29], [0]), what="for a reader")
asks("OffsetForLeaderEpoch", 4, (CLUSTER_ACTION, "cluster"), answers=([29], [0]), what="for a broker")
asks("JoinGroup", 5, (DESCRIBE, "group"), (READ, "group"), answers=([30], [30], [79]), session_timeout_ms=10_000)
asks("SyncGroup", 5, (READ, "group"), answers=([30], [25]))
NO_PROTOCOL: dict[str, Any] = {"protocol_type": None, "protocol_name": None}
asks("SyncGroup", 5, (READ, "group"), answers=([23], [23]), what="without a protocol", **NO_PROTOCOL)
asks("Heartbeat", 4, (READ, "group"), answers=([30], [25]))
asks("LeaveGroup", 4, (READ, "group"), answers=([30], [0, 25]))
asks("DeleteGroups", 2, (READ, "group"), (DELETE, "group"), answers=([30], [30], [69]))
asks("ConsumerGroupHeartbeat", 1, (READ, "group"), (DESCRIBE, "topic"), answers=([30], [29], [0]))
BY_ALTER = ((DESCRIBE, "cluster"), (ALTER, "cluster"))
asks("UpdateFeatures", 1, *BY_ALTER, answers=([31], [31], [95]), feature="no.such.feature", max_version_level=1)
asks("DescribeAcls", 3, (DESCRIBE, "cluster"), answers=([31], [0]))
asks("CreateAcls", 3, *BY_ALTER, answers=([31], [31], [0]), topic="missing", resource_name=PRESENT)
asks("DeleteAcls", 3, *BY_ALTER, answers=([31], [31], [0]), topic="missing", resource_name_filter=PRESENT)
# Kafka returns an empty response to an unauthorized client that asks for all users.
asks("DescribeUserScramCredentials", 0, (DESCRIBE, "cluster"), answers=([31, 31], [0, 91]))
asks(
    *("AlterUserScramCredentials", 0, *BY_ALTER),
    answers=([31], [31], [91]),
    deletions=[{"name": "stranger", "mechanism": 1}],
    upsertions=[],
)
asks("ElectLeaders", 2, *BY_ALTER, answers=([31, 31], [31, 31], [0, 3]), topic="missing")
asks("AlterPartitionReassignments", 1, *BY_ALTER, answers=([31, 31], [31, 31], [0, 3]), topic="missing")
asks("ListPartitionReassignments", 0, (DESCRIBE, "cluster"), answers=([31], [0]), topics=None)
asks("DescribeLogDirs", 4, (DESCRIBE, "cluster"), answers=([31], [0, 0]), topics=[])
asks("AlterReplicaLogDirs", 2, *BY_ALTER, answers=([31], [31], [57]), topic="missing", path="/nowhere")
METADATA: dict[str, Any] = {"topic_name": "__cluster_metadata", "partition_index": 0}
asks("DescribeQuorum", 2, (DESCRIBE, "cluster"), answers=([31], [0, 0]), **METADATA)
asks("UnregisterBroker", 0, *BY_ALTER, answers=([31], [31], [102]), broker_id=77)


def _identity(stage: Stage) -> Any:
    if "identity" not in stage.notes:
        stage.notes["identity"] = stage.root_session.init_until_done()
    return stage.notes["identity"]


def _add_partitions(stage: Stage, *names: str) -> list[int]:
    """Add a partition of each topic and return the error codes in the order of the topics."""
    identity = _identity(stage)
    answer = answer_of(
        stage,
        3,
        m.AddPartitionsToTxnRequest,
        v3_and_below_transactional_id=stage.id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names],
    )
    topics = {topic.name: topic.results_by_partition for topic in answer.results_by_topic_v3_and_below}
    return [part.partition_error_code for name in names for part in topics[name]]


@case((WRITE, "id"), (WRITE, "topic"), (WRITE, "other"), answers=([53, 53], [29, 29], [55, 29], [0, 0]))
def add_partitions(stage: Stage) -> list[int]:
    return _add_partitions(stage, stage.topic, stage.other)


@case((WRITE, "id"), (WRITE, "topic"), answers=([53, 53, 53], [29, 29, 29], [55, 29, 29]))
def add_partitions_of_internal_and_missing_topics(stage: Stage) -> list[int]:
    return _add_partitions(stage, stage.topic, "__consumer_offsets", stage.missing)


@case((CLUSTER_ACTION, "cluster"), answers=((31, []), (0, [0])))
def add_partitions_as_a_broker(stage: Stage) -> tuple[int, list[int]]:
    identity = _identity(stage)
    transaction = {
        "transactional_id": stage.id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "verify_only": False,
        "topics": [{"name": stage.topic, "partitions": [0]}],
    }
    answer = answer_of(stage, 5, m.AddPartitionsToTxnRequest, transactions=[transaction])
    return answer.error_code, [
        part.partition_error_code
        for each in answer.results_by_transaction
        for topic in each.topic_results
        for part in topic.results_by_partition
    ]


@case((WRITE, "id"), (READ, "group"), answers=(53, 30, 0))
def add_offsets(stage: Stage) -> int:
    return stage.session.add_offsets(_identity(stage), stage.group)


@case((WRITE, "id"), (READ, "group"), (READ, "topic"), answers=(53, 30, 29, 0))
def commit_offsets_in_a_transaction(stage: Stage) -> int:
    return stage.session.commit_in_transaction(_identity(stage), stage.group, stage.topic, 1, version=5)


@case((DESCRIBE, "id"), (WRITE, "id"), answers=(53, 53, 0))
def end_a_transaction(stage: Stage) -> int:
    # An abort without a transaction returns a new producer epoch, which later requests use.
    code, identity = stage.session.end_until_done(_identity(stage), commit=False, version=5)
    if code == 0:
        stage.notes["identity"] = identity
    return code


@case((ALTER, "cluster"), answers=(31, 0), what="write_markers_as_an_administrator")
@case((CLUSTER_ACTION, "cluster"), answers=(31, 0), what="write_markers_as_a_broker")
def _write_markers(stage: Stage) -> int:
    return stage.session.write_marker(stage.topic, _identity(stage), commit=False, coordinator_epoch=0)


@case((WRITE, "id"), (WRITE, "topic"), answers=(53, 29, 0))
def produce_in_a_transaction(stage: Stage) -> int:
    batch = record_batch([b"v"], _identity(stage), 0)
    return stage.session.produce(stage.topic, batch, version=12)[0]


@case((DESCRIBE, "topic"), (WRITE, "topic"), answers=(29, 29, 0))
def produce(stage: Stage) -> int:
    return stage.session.produce(stage.topic, record_batch([b"v"], NOBODY, -1, transactional=False), version=9)[0]


@case((WRITE, "missing"), answers=(29, 3))
def produce_to_a_missing_topic(stage: Stage) -> int:
    return stage.session.produce(stage.missing, record_batch([b"v"], NOBODY, -1, transactional=False), version=9)[0]


@case((DESCRIBE, "topic"), (READ, "topic"), answers=(29, 29, 0))
def fetch(stage: Stage) -> int:
    return stage.session.fetch(stage.topic, 0, isolation=1).error_code


@case((READ, "missing"), answers=(29, 3))
def fetch_from_a_missing_topic(stage: Stage) -> int:
    return stage.session.fetch(stage.missing, 0, isolation=1).error_code


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, []), (0, []), (0, [0])))
def fetch_all_offsets(stage: Stage) -> tuple[int, list[int]]:
    stage.root_session.commit_plainly(stage.group, stage.topic, 1)
    groups = [{"group_id": stage.group, "topics": None}]
    [group] = answer_of(stage, 8, m.OffsetFetchRequest, groups=groups).groups
    return group.error_code, [part.error_code for topic in group.topics for part in topic.partitions]


@case((DESCRIBE, "id"), (DESCRIBE, "topic"), answers=((53, []), (0, []), (0, [True])))
def describe_transactions(stage: Stage) -> tuple[int, list[bool]]:
    _open_transaction(stage)
    found = stage.session.describe()
    return found.error_code, [topic.topic == stage.topic for topic in found.topics]


@case((DESCRIBE, "id"), answers=(False, True))
def list_transactions(stage: Stage) -> bool:
    _open_transaction(stage)
    return stage.id in stage.session.list()


def _open_transaction(stage: Stage) -> None:
    if "open" not in stage.notes:
        stage.root_session.add_until_done(_identity(stage), stage.topic)
        stage.notes["open"] = True


# Metadata, topics, settings


def _metadata(stage: Stage, name: str, **options: Any) -> Any:
    fields = {"allow_auto_topic_creation": False} | options
    [topic] = answer_of(stage, 9, m.MetadataRequest, topics=[{"name": name}], **fields).topics
    return topic


@case((DESCRIBE, "missing"), (CREATE, "missing"), answers=(29, 29, 0), what="metadata_makes_a_topic_by_its_own_right")
@case((DESCRIBE, "missing"), (CREATE, "cluster"), answers=(29, 29, 0), what="metadata_makes_a_topic_by_the_clusters")
def _metadata_with_creation(stage: Stage) -> int:
    return _metadata(stage, stage.missing, allow_auto_topic_creation=True).error_code


@case((DESCRIBE, "topic"), answers=(False, True))
def metadata_of_all_topics(stage: Stage) -> bool:
    # The topic is made before it is looked for.
    fields = {"topics": None, "allow_auto_topic_creation": False}
    return stage.topic in {topic.name for topic in answer_of(stage, 9, m.MetadataRequest, **fields).topics}


@case((DESCRIBE, "topic"), answers=((29, False), (0, True)))
def metadata_by_id(stage: Stage) -> tuple[int, bool]:
    topics = [{"name": None, "topic_id": _topic_id(stage)}]
    [topic] = answer_of(stage, 12, m.MetadataRequest, topics=topics).topics
    return topic.error_code, topic.name == stage.topic


def _topic_id(stage: Stage) -> Any:
    return stage.root.send(filled(m.MetadataRequest, topics=[{"name": stage.topic}]), 12).topics[0].topic_id


def _operations(code: int, operations: list[int] | None) -> tuple[int, set[int] | None]:
    return code, None if operations is None else set(operations)


def _operations_on(stage: Stage, name: str) -> tuple[int, set[int] | None]:
    topic = _metadata(stage, name, include_topic_authorized_operations=True)
    return _operations(topic.error_code, topic.authorized_operations)


@case(
    (ALTER_CONFIGS, "topic"),
    (READ, "topic"),
    (DELETE, "topic"),
    answers=((29, None), (29, None), (0, {3, 8, 10, 11}), (0, {3, 6, 8, 10, 11})),
)
def operations_on_a_topic(stage: Stage) -> tuple[int, set[int] | None]:
    return _operations_on(stage, stage.topic)


@case((DESCRIBE, "missing"), answers=((29, None), (3, {8})))
def operations_on_a_missing_topic(stage: Stage) -> tuple[int, set[int] | None]:
    return _operations_on(stage, stage.missing)


@case(
    (CREATE, "cluster"),
    (ALTER, "cluster"),
    (IDEMPOTENT_WRITE, "cluster"),
    answers=(set(), set(), {5, 7, 8}, {5, 7, 8, 12}),
)
def operations_on_the_cluster(stage: Stage) -> set[int]:
    answer = answer_of(stage, 1, m.DescribeClusterRequest, include_cluster_authorized_operations=True)
    return set(answer.authorized_operations)


@case((CREATE, "cluster"), (DESCRIBE, "cluster"), answers=(set(), set(), {5, 8}))
def operations_on_the_cluster_by_metadata(stage: Stage) -> set[int]:
    answer = answer_of(stage, 10, m.MetadataRequest, topics=[], include_cluster_authorized_operations=True)
    return set(answer.authorized_operations)


_CREATED = ((29, 0, -1, False), (0, 29, -1, False), (0, 0, 2, True))


@case((CREATE, "missing"), (DESCRIBE_CONFIGS, "missing"), answers=_CREATED, what="create_topics_by_the_topics_right")
@case((CREATE, "cluster"), (DESCRIBE_CONFIGS, "missing"), answers=_CREATED, what="create_topics_by_the_clusters_right")
def _create_topics(stage: Stage) -> tuple[int, int, int, bool]:
    wanted = {"name": stage.missing, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    answer = answer_of(stage, 7, m.CreateTopicsRequest, timeout_ms=30_000, validate_only=True, topics=[wanted])
    [topic] = answer.topics
    return topic.error_code, topic.topic_config_error_code, topic.num_partitions, bool(topic.configs)


def _delete_topic(stage: Stage, **topic: Any) -> tuple[int, str | None]:
    [result] = answer_of(stage, 6, m.DeleteTopicsRequest, timeout_ms=30_000, topics=[topic]).responses
    return result.error_code, result.name


@case((DESCRIBE, "topic"), (DELETE, "topic"), answers=(29, 29, 0), what="delete_a_topic_by_the_topics_right")
@case((DELETE, "cluster"), answers=(29, 0), what="delete_a_topic_by_the_clusters_right")
def _delete_topic_by_name(stage: Stage) -> int:
    return _delete_topic(stage, name=stage.topic, topic_id=m.NULL_UUID)[0]


@case((DESCRIBE, "topic"), (DELETE, "topic"), answers=((29, False), (29, True), (0, True)))
def delete_a_topic_by_id(stage: Stage) -> tuple[int, bool]:
    if "topic_id" not in stage.notes:
        stage.notes["topic_id"] = _topic_id(stage)
    code, name = _delete_topic(stage, name=None, topic_id=stage.notes["topic_id"])
    return code, name == stage.topic


# Groups


@case((READ, "group"), (READ, "topic"), answers=(30, 29, 0))
def commit_offsets(stage: Stage) -> int:
    return stage.session.commit_plainly(stage.group, stage.topic, 1)


@case((READ, "group"), (READ, "missing"), answers=(30, 29, 3))
def commit_offsets_of_a_missing_topic(stage: Stage) -> int:
    return stage.session.commit_plainly(stage.group, stage.missing, 1)


@case((DELETE, "group"), (READ, "topic"), answers=((30, []), (0, [29]), (0, [0])))
def delete_offsets(stage: Stage) -> tuple[int, list[int]]:
    stage.root_session.commit_plainly(stage.group, stage.topic, 1)
    topics = [{"name": stage.topic, "partitions": [{"partition_index": 0}]}]
    answer = answer_of(stage, 0, m.OffsetDeleteRequest, group_id=stage.group, topics=topics)
    return answer.error_code, [part.error_code for topic in answer.topics for part in topic.partitions]


@case((DESCRIBE, "group"), answers=((30, None), (0, {8})), what="describe_a_group")
@case(
    (READ, "group"), (DELETE, "group"), answers=((30, None), (0, {3, 8}), (0, {3, 6, 8})), what="operations_on_a_group"
)
def _describe_group(stage: Stage) -> tuple[int, set[int] | None]:
    stage.root_session.commit_plainly(stage.group, stage.topic, 1)
    fields = {"groups": [stage.group], "include_authorized_operations": True}
    [group] = answer_of(stage, 5, m.DescribeGroupsRequest, **fields).groups
    return _operations(group.error_code, group.authorized_operations)


@case((DESCRIBE, "group"), answers=(False, True), what="list_groups_by_the_groups_right")
@case((DESCRIBE, "cluster"), answers=(False, True), what="list_groups_by_the_clusters_right")
def _list_groups(stage: Stage) -> bool:
    stage.root_session.commit_plainly(stage.group, stage.topic, 1)
    return stage.group in {group.group_id for group in stage.client.send(m.ListGroupsRequest(), 0).groups}


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, None), (29, None), (0, 1 << 8)))
def describe_a_consumer_group(stage: Stage) -> tuple[int, int | None]:
    if "joined" not in stage.notes:

        def has_partitions() -> bool:
            assignment = stage.root.send(consumer_join(stage.group, stage.topic), 1).assignment
            return assignment is not None and bool(assignment.topic_partitions)

        wait_until(has_partitions, "an assignment")
        stage.notes["joined"] = True
    fields = {"group_ids": [stage.group], "include_authorized_operations": True}
    [group] = answer_of(stage, 1, m.ConsumerGroupDescribeRequest, **fields).groups
    operations = group.authorized_operations
    return group.error_code, None if operations == -(2**31) else operations


# Topics, leaders, folders of logs and the quorum


def _described_topics(stage: Stage, limit: int, *topics: dict[str, Any]) -> Any:
    fields = {"topics": list(topics), "response_partition_limit": limit, "cursor": None}
    return answer_of(stage, 0, m.DescribeTopicPartitionsRequest, **fields).topics


@case((DESCRIBE, "topic"), answers=((29, -(2**31)), (0, 1 << DESCRIBE)))
def describe_topic_partitions(stage: Stage) -> tuple[int, int]:
    [topic] = _described_topics(stage, 10, {"name": stage.topic})
    return topic.error_code, topic.topic_authorized_operations


@case((DESCRIBE, "topic"), answers=(False, True))
def describe_all_topic_partitions(stage: Stage) -> bool:
    # The topic is made before it is looked for.
    return stage.topic in {found.name for found in _described_topics(stage, 2000)}
