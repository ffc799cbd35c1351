"""The responses of each API to a principal with none, some and all of the rights that it needs.

Each case sends one request repeatedly, with one more right each time. The expected responses are those of Apache Kafka.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from tests.support.guarded_kafka import Stage
from tests.support.messages import EVERY_ACL, epoch_end_request, filled
from tests.support.raw_session import NOBODY, record_batch
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


# Rules G.1, row by row


@case((DESCRIBE, "id"), answers=(53, 0))
def find_transaction_coordinator(stage: Stage) -> int:
    answer = answer_of(stage, 4, m.FindCoordinatorRequest, key_type=1, coordinator_keys=[stage.id])
    return answer.coordinators[0].error_code


@case((DESCRIBE, "group"), answers=(30, 0))
def find_group_coordinator(stage: Stage) -> int:
    return answer_of(stage, 3, m.FindCoordinatorRequest, key_type=0, key=stage.group).error_code


@case((WRITE, "id"), answers=(53, 0))
def init_producer_id(stage: Stage) -> int:
    return stage.session.init()[0]


@case((IDEMPOTENT_WRITE, "cluster"), answers=(31, 0), what="init_producer_id_without_an_id_by_the_cluster")
@case((READ, "topic"), (WRITE, "topic"), answers=(31, 31, 0), what="init_producer_id_without_an_id_by_a_topic")
def _init_without_id(stage: Stage) -> int:
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return answer_of(stage, 5, m.InitProducerIdRequest, **fields).error_code


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


@case((DESCRIBE, "topic"), answers=(29, 0))
def list_offsets(stage: Stage) -> int:
    return _list_offsets(stage, stage.topic)


@case((DESCRIBE, "missing"), answers=(29, 3))
def list_offsets_of_a_missing_topic(stage: Stage) -> int:
    return _list_offsets(stage, stage.missing)


def _list_offsets(stage: Stage, name: str) -> int:
    topic = {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    answer = answer_of(stage, 7, m.ListOffsetsRequest, replica_id=-1, isolation_level=1, topics=[topic])
    return answer.topics[0].partitions[0].error_code


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, []), (0, [29]), (0, [0])))
def fetch_offsets(stage: Stage) -> tuple[int, list[int]]:
    return _fetch_offsets(stage, [{"name": stage.topic, "partition_indexes": [0]}])


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, []), (0, []), (0, [0])))
def fetch_all_offsets(stage: Stage) -> tuple[int, list[int]]:
    stage.root_session.commit_plainly(stage.group, stage.topic, 1)
    return _fetch_offsets(stage, None)


def _fetch_offsets(stage: Stage, topics: list[dict[str, Any]] | None) -> tuple[int, list[int]]:
    groups = [{"group_id": stage.group, "topics": topics}]
    [group] = answer_of(stage, 8, m.OffsetFetchRequest, groups=groups).groups
    return group.error_code, [part.error_code for topic in group.topics for part in topic.partitions]


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, 0), (0, 1), (0, 1)), what="fetch_offsets_in_version_7")
def _fetch_offsets_long_ago(stage: Stage) -> tuple[int, int]:
    topics = [{"name": stage.topic, "partition_indexes": [0]}]
    answer = answer_of(stage, 7, m.OffsetFetchRequest, group_id=stage.group, topics=topics)
    return answer.error_code, len(answer.topics)


@case((DESCRIBE, "topic"), (READ, "topic"), answers=(29, 29, 0))
def describe_producers(stage: Stage) -> int:
    return stage.session.producers(stage.topic).error_code


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


@case((DESCRIBE, "topic"), answers=(29, 0))
def metadata_of_a_topic(stage: Stage) -> int:
    return _metadata(stage, stage.topic).error_code


@case((DESCRIBE, "missing"), answers=(29, 3))
def metadata_of_a_missing_topic(stage: Stage) -> int:
    return _metadata(stage, stage.missing).error_code


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


@case((DESCRIBE, "missing"), answers=(29, 3))
def delete_a_missing_topic(stage: Stage) -> int:
    return _delete_topic(stage, name=stage.missing, topic_id=m.NULL_UUID)[0]


@case((DESCRIBE, "topic"), (DELETE, "topic"), answers=((29, False), (29, True), (0, True)))
def delete_a_topic_by_id(stage: Stage) -> tuple[int, bool]:
    if "topic_id" not in stage.notes:
        stage.notes["topic_id"] = _topic_id(stage)
    code, name = _delete_topic(stage, name=None, topic_id=stage.notes["topic_id"])
    return code, name == stage.topic


@case((DESCRIBE, "topic"), (ALTER, "topic"), answers=(29, 29, 0))
def create_partitions(stage: Stage) -> int:
    topics = [{"name": stage.topic, "count": 3, "assignments": None}]
    answer = answer_of(stage, 3, m.CreatePartitionsRequest, timeout_ms=30_000, validate_only=True, topics=topics)
    return answer.results[0].error_code


@case((DESCRIBE, "topic"), (DELETE, "topic"), answers=(29, 29, 0))
def delete_records(stage: Stage) -> int:
    topics = [{"name": stage.topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    answer = answer_of(stage, 2, m.DeleteRecordsRequest, timeout_ms=30_000, topics=topics)
    return answer.topics[0].partitions[0].error_code


def _describe_configs(stage: Stage, kind: int, name: str) -> int:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return answer_of(stage, 4, m.DescribeConfigsRequest, resources=[resource]).results[0].error_code


@case((DESCRIBE, "topic"), (DESCRIBE_CONFIGS, "topic"), answers=(29, 29, 0), what="describe_a_topics_settings")
@case((ALTER_CONFIGS, "topic"), answers=(29, 0), what="describe_a_topics_settings_who_may_alter_them")
def _describe_topic_configs(stage: Stage) -> int:
    return _describe_configs(stage, 2, stage.topic)


@case((DESCRIBE_CONFIGS, "cluster"), answers=(31, 0))
def describe_a_brokers_settings(stage: Stage) -> int:
    return _describe_configs(stage, 4, "1")


def _alter_configs(stage: Stage, kind: int, name: str, *configs: dict[str, Any]) -> int:
    resource = {"resource_type": kind, "resource_name": name, "configs": list(configs)}
    answer = answer_of(stage, 1, m.IncrementalAlterConfigsRequest, validate_only=True, resources=[resource])
    return answer.responses[0].error_code


@case((DESCRIBE_CONFIGS, "topic"), (ALTER_CONFIGS, "topic"), answers=(29, 29, 0))
def alter_a_topics_settings(stage: Stage) -> int:
    setting = {"name": "retention.ms", "config_operation": 0, "value": "77000"}
    return _alter_configs(stage, 2, stage.topic, setting)


@case(answers=(31,))
def alter_a_brokers_settings(stage: Stage) -> int:
    return _alter_configs(stage, 4, "1")


@case((DESCRIBE, "topic"), answers=(29, 0), what="end_of_a_leader_epoch_for_a_reader")
@case((CLUSTER_ACTION, "cluster"), answers=(29, 0), what="end_of_a_leader_epoch_for_a_broker")
def _offset_for_leader_epoch(stage: Stage) -> int:
    return stage.client.send(epoch_end_request(stage.topic, 0), 4).topics[0].partitions[0].error_code


# Groups


@case((DESCRIBE, "group"), (READ, "group"), answers=(30, 30, 79))
def join_a_group(stage: Stage) -> int:
    return answer_of(
        stage,
        5,
        m.JoinGroupRequest,
        group_id=stage.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m"}],
    ).error_code


def _member(stage: Stage) -> dict[str, Any]:
    """Return the fields of a member that the group does not have."""
    return {"group_id": stage.group, "generation_id": 1, "member_id": "stranger", "group_instance_id": None}


def _sync_by(stage: Stage, protocol_type: str | None, protocol_name: str | None) -> int:
    protocol = {"protocol_type": protocol_type, "protocol_name": protocol_name}
    return answer_of(stage, 5, m.SyncGroupRequest, **_member(stage), **protocol, assignments=[]).error_code


@case((READ, "group"), answers=(30, 25), what="sync_a_group")
def _sync(stage: Stage) -> int:
    return _sync_by(stage, "consumer", "range")


@case((READ, "group"), answers=(23, 23), what="sync_a_group_and_forget_the_protocol")
def _sync_badly(stage: Stage) -> int:
    return _sync_by(stage, None, None)


@case((READ, "group"), answers=(30, 25), what="heartbeat_in_a_group")
def _heartbeat(stage: Stage) -> int:
    return answer_of(stage, 4, m.HeartbeatRequest, **_member(stage)).error_code


@case((READ, "group"), answers=((30, []), (0, [25])), what="leave_a_group")
def _leave(stage: Stage) -> tuple[int, list[int]]:
    members = [{"member_id": "stranger", "group_instance_id": None}]
    answer = answer_of(stage, 4, m.LeaveGroupRequest, group_id=stage.group, members=members)
    return answer.error_code, [member.error_code for member in answer.members]


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


@case((READ, "group"), (DELETE, "group"), answers=(30, 30, 69))
def delete_a_group(stage: Stage) -> int:
    return answer_of(stage, 2, m.DeleteGroupsRequest, groups_names=[stage.group]).results[0].error_code


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


@case((READ, "group"), (DESCRIBE, "topic"), answers=(30, 29, 0))
def join_a_consumer_group(stage: Stage) -> int:
    return _join_consumer_group(stage.client, stage).error_code


def _join_consumer_group(client: Any, stage: Stage) -> Any:
    return client.send(
        m.ConsumerGroupHeartbeatRequest(
            group_id=stage.group,
            member_id="member",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[stage.topic],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        ),
        1,
    )


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, None), (29, None), (0, 1 << 8)))
def describe_a_consumer_group(stage: Stage) -> tuple[int, int | None]:
    if "joined" not in stage.notes:

        def has_partitions() -> bool:
            assignment = _join_consumer_group(stage.root, stage).assignment
            return assignment is not None and bool(assignment.topic_partitions)

        wait_until(has_partitions, "an assignment")
        stage.notes["joined"] = True
    fields = {"group_ids": [stage.group], "include_authorized_operations": True}
    [group] = answer_of(stage, 1, m.ConsumerGroupDescribeRequest, **fields).groups
    operations = group.authorized_operations
    return group.error_code, None if operations == -(2**31) else operations


# The cluster


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=(31, 31, 95))
def update_features(stage: Stage) -> int:
    update = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
    fields = {"timeout_ms": 30_000, "validate_only": True, "feature_updates": [update]}
    return answer_of(stage, 1, m.UpdateFeaturesRequest, **fields).error_code


@case((DESCRIBE, "cluster"), answers=(31, 0))
def describe_acls(stage: Stage) -> int:
    return answer_of(stage, 3, m.DescribeAclsRequest, **EVERY_ACL).error_code


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=([31], [31], [0]))
def create_acls(stage: Stage) -> list[int]:
    creation = {
        "resource_type": 2,
        "resource_name": stage.missing,
        "resource_pattern_type": 3,
        "principal": "User:stranger",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = answer_of(stage, 3, m.CreateAclsRequest, creations=[creation])
    return [result.error_code for result in answer.results]


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=([31], [31], [0]))
def delete_acls(stage: Stage) -> list[int]:
    filters = [EVERY_ACL | {"resource_name_filter": stage.missing}]
    answer = answer_of(stage, 3, m.DeleteAclsRequest, filters=filters)
    return [result.error_code for result in answer.filter_results]


@case((DESCRIBE, "cluster"), answers=(31, 0))
def describe_scram_users(stage: Stage) -> int:
    # Kafka returns an empty response to an unauthorized client that asks for all users.
    return answer_of(stage, 0, m.DescribeUserScramCredentialsRequest, users=[{"name": "stranger"}]).error_code


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=(31, 31, 91))
def alter_scram_users(stage: Stage) -> int:
    deletions = [{"name": "stranger", "mechanism": 1}]
    answer = answer_of(stage, 0, m.AlterUserScramCredentialsRequest, deletions=deletions, upsertions=[])
    return answer.results[0].error_code


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


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=((31, [31]), (31, [31]), (0, [3])))
def elect_leaders(stage: Stage) -> tuple[int, list[int]]:
    partitions = [{"topic": stage.missing, "partitions": [0]}]
    fields = {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 5000}
    answer = answer_of(stage, 2, m.ElectLeadersRequest, **fields)
    return answer.error_code, [p.error_code for t in answer.replica_election_results for p in t.partition_result]


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=((31, [31]), (31, [31]), (0, [3])))
def alter_partition_reassignments(stage: Stage) -> tuple[int, list[int]]:
    topics = [{"name": stage.missing, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    answer = answer_of(stage, 1, m.AlterPartitionReassignmentsRequest, timeout_ms=5000, topics=topics)
    return answer.error_code, [p.error_code for topic in answer.responses for p in topic.partitions]


@case((DESCRIBE, "cluster"), answers=(31, 0))
def list_partition_reassignments(stage: Stage) -> int:
    return answer_of(stage, 0, m.ListPartitionReassignmentsRequest, timeout_ms=5000, topics=None).error_code


@case((DESCRIBE, "cluster"), answers=((31, 0), (0, 1)))
def describe_log_dirs(stage: Stage) -> tuple[int, int]:
    answer = answer_of(stage, 4, m.DescribeLogDirsRequest, topics=[])
    return answer.error_code, len(answer.results)


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=([31], [31], [57]))
def alter_replica_log_dirs(stage: Stage) -> list[int]:
    folder = {"path": "/nowhere", "topics": [{"name": stage.missing, "partitions": [0]}]}
    answer = answer_of(stage, 2, m.AlterReplicaLogDirsRequest, dirs=[folder])
    return [part.error_code for topic in answer.results for part in topic.partitions]


@case((DESCRIBE, "cluster"), answers=((31, 0), (0, 1)))
def describe_quorum(stage: Stage) -> tuple[int, int]:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = answer_of(stage, 2, m.DescribeQuorumRequest, topics=topics)
    return answer.error_code, len(answer.topics)


@case((DESCRIBE, "cluster"), (ALTER, "cluster"), answers=(31, 31, 102))
def unregister_broker(stage: Stage) -> int:
    return answer_of(stage, 0, m.UnregisterBrokerRequest, broker_id=77).error_code
