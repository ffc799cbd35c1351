"""Answers to administrative requests that a client library would not send, or does not show."""

from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from broker_core.errors import STANDARD_MESSAGES, ErrorCode
from tests.support.both_brokers import Kafka
from tests.support.clients import unique
from tests.support.messages import creation, filled
from tests.support.raw_client import RawClient
from tests.support.setting_changes import describe
from tests.support.waiting import wait_until

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OF_TOPIC, STATIC, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
DEADLINE_MS = 10_000


def create(client: RawClient, *names: str, version: int = 7, **fields: Any) -> list[Any]:
    """Send one CreateTopics and return the answers."""
    answers: list[Any] = client.send(creation(*names, **fields), version).topics
    return answers


def created(client: RawClient) -> str:
    """Create a topic and wait until the broker knows it."""
    name = unique("topic")
    (answer,) = create(client, name)
    assert answer.error_code == ErrorCode.NONE
    wait_until(lambda: topic_id(client, name) is not None, f"{name} is known")
    return name


def described(client: RawClient, name: str) -> Any:
    form = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[form(name=name, topic_id=None)], allow_auto_topic_creation=False)
    return client.send(request, 12).topics[0]


def topic_id(client: RawClient, name: str) -> UUID | None:
    topic = described(client, name)
    return topic.topic_id if topic.error_code == ErrorCode.NONE else None


def add_partitions(client: RawClient, *topics: tuple[str, int, list[list[int]] | None]) -> dict[str, tuple[int, Any]]:
    """Send one CreatePartitions; return code and message by topic, and check that there is one answer for each."""
    wanted = [
        {"name": name, "count": count, "assignments": assignments and [{"broker_ids": each} for each in assignments]}
        for name, count, assignments in topics
    ]
    request = filled(CreatePartitionsRequest, topics=wanted, timeout_ms=DEADLINE_MS, validate_only=False)
    results = client.send(request, 3).results
    assert len({each.name for each in results}) == len(results)
    return {each.name: (each.error_code, each.error_message) for each in results}


@pytest.mark.parametrize("version", [4, 5, 7])
def test_a_created_topic_has_no_error_message(client: RawClient, version: int):
    (answer,) = create(client, unique("topic"), version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def test_a_refused_topic_has_an_empty_list_of_settings(client: RawClient):
    (answer,) = create(client, created(client))
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert (answer.configs, answer.num_partitions, answer.replication_factor) == ([], -1, -1)


# Rule J.5/12.
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((6_000, 6_000), "Excessively large number of partitions per request."),
        ((10_001, 1), "Excessively large number of partitions per request."),
        ((6_000, -5, 6_000), "Excessively large number of partitions per request."),
        # The default number of partitions, 1.
        ((10_000, -1), "Excessively large number of partitions per request."),
        ((9_999, 1), "Unable to perform excessively large batch operation."),
        ((10_000,), "Unable to perform excessively large batch operation."),
        ((9_999,), None),
    ],
)
def test_topics_too_large_for_one_request_are_all_refused(
    client: RawClient, sizes: tuple[int, ...], message: str | None
):
    request = creation(*(unique("topic") for _ in sizes), validate_only=True)
    for topic, size in zip(request.topics, sizes, strict=True):
        topic.num_partitions = size
    answers = {(each.error_code, each.error_message) for each in client.send(request, 7).topics}
    assert answers == {(ErrorCode.POLICY_VIOLATION if message else ErrorCode.NONE, message)}


# Rule J.5/12.
def test_assigned_partitions_count_too(client: RawClient):
    replicas = [(number, [1]) for number in range(5_001)]
    answers = create(
        client, unique("topic"), unique("topic"), assignments=replicas, num_partitions=-1, replication_factor=-1
    )
    assert {each.error_code for each in answers} == {ErrorCode.POLICY_VIOLATION}


# Rule J.5/12.
def test_too_many_partitions_for_one_request_are_added_to_no_topic(client: RawClient):
    one, other = created(client), created(client)
    message = "Excessively large number of additional partitions per request."
    for sizes in ((5_002, 5_001), (10_002, 2)):
        answers = add_partitions(client, *((name, size, None) for name, size in zip((one, other), sizes, strict=True)))
        assert set(answers.values()) == {(ErrorCode.POLICY_VIOLATION, message)}
    assert len(described(client, one).partitions) == 1


@pytest.mark.parametrize("unknown", [0, 1, 99])
def test_a_resource_without_settings_fails_the_whole_description(client: RawClient, unknown: int):
    named = {"configuration_keys": None, "resource_name": "1"}
    resources = [{**named, "resource_type": kind} for kind in (BROKER, unknown)]
    shown = {"include_synonyms": False, "include_documentation": False}
    results = client.send(filled(DescribeConfigsRequest, resources=resources, **shown), 4).results
    assert [each.resource_type for each in results] == [BROKER, unknown]
    answers = {(each.error_code, each.error_message, len(each.configs)) for each in results}
    assert answers == {(ErrorCode.INVALID_REQUEST, STANDARD_MESSAGES[ErrorCode.INVALID_REQUEST], 0)}


# Rule J.5/12.
def test_a_request_that_is_too_large_is_refused_as_a_whole(client: RawClient):
    name, known, message = unique("topic"), created(client), "Excessively large number of partitions per request."
    # Every entry has the answer, also what would be refused for another reason.
    names = sorted([name, name, known, unique("topic"), unique("topic")])
    answers = create(client, *names, num_partitions=6_000)
    assert sorted(each.name for each in answers) == names
    assert {(each.error_code, each.error_message) for each in answers} == {(ErrorCode.POLICY_VIOLATION, message)}
    one, sizes = created(client), [10_002, 1, 1]
    wanted = [
        {"name": each, "count": n, "assignments": None} for each, n in zip([one, known, known], sizes, strict=True)
    ]
    request = filled(CreatePartitionsRequest, topics=wanted, timeout_ms=DEADLINE_MS, validate_only=False)
    results = client.send(request, 3).results
    assert sorted(each.name for each in results) == sorted([one, known, known])
    assert {each.error_code for each in results} == {ErrorCode.POLICY_VIOLATION}


# Rule J.5/12.
def test_what_is_not_created_makes_no_request_too_large(client: RawClient):
    request = creation(created(client), unique("topic"), "bad/name", validate_only=True)
    for topic, size in zip(request.topics, (4_000, 2_000, 4_000), strict=True):
        topic.num_partitions = size
    codes = [each.error_code for each in client.send(request, 7).topics]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_topic_created_twice_in_one_request_is_answered_once(client: RawClient):
    name, other = unique("topic"), unique("topic")
    answers = {answer.name: answer for answer in create(client, name, other, name)}
    assert sorted(answers) == sorted([name, other])
    assert answers[other].error_code == ErrorCode.NONE
    assert (answers[name].error_code, answers[name].error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({0: []}, "The manual partition assignment includes an empty replica list."),
        ({0: [9]}, "The manual partition assignment includes broker 9, but no such broker is registered."),
        ({0: [1, 1]}, "The manual partition assignment includes the broker 1 more than once."),
        ({1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_an_invalid_assignment_is_refused(client: RawClient, assignments: dict[int, list[int]], message: str):
    (answer,) = create(
        client, unique("topic"), assignments=assignments.items(), num_partitions=-1, replication_factor=-1
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([], "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        ([[1], [1]], "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."),
        ([[]], "The manual partition assignment includes an empty replica list."),
        ([[9]], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([[1, 1]], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_an_invalid_assignment_of_new_partitions_is_refused(
    client: RawClient, assignments: list[list[int]], message: str
):
    name = created(client)
    refused = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assert add_partitions(client, (name, 2, assignments)) == {name: refused}
    assert add_partitions(client, (name, 2, [[1]])) == {name: (ErrorCode.NONE, None)}
    wait_until(lambda: len(described(client, name).partitions) == 2, "the partition is there")


def test_partitions_added_twice_in_one_request_are_refused_once(client: RawClient):
    name, other = created(client), created(client)
    answers = add_partitions(client, (name, 2, None), (other, 3, None), (name, 4, None))
    assert answers == {name: (ErrorCode.INVALID_REQUEST, "Duplicate topic name."), other: (ErrorCode.NONE, None)}
    assert len(described(client, name).partitions) == 1


def delete(client: RawClient, *topics: tuple[str | None, UUID | None]) -> list[tuple[str | None, int, str | None]]:
    """Send one DeleteTopics; return name, code and message of each answer, in the order of the names."""
    form = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[form(name=name, topic_id=topic_id) for name, topic_id in topics], timeout_ms=DEADLINE_MS
    )
    answers = [(each.name, each.error_code, each.error_message) for each in client.send(request, 6).responses]
    return sorted(answers, key=lambda each: each[0] or "")


def test_a_topic_deleted_twice_in_one_request_is_refused_once_and_stays(client: RawClient):
    name = created(client)
    refused = [(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]
    assert delete(client, (name, None), (name, None)) == refused
    request = DeleteTopicsRequest(topic_names=[name, name], timeout_ms=DEADLINE_MS)
    answers = client.send(request, 5).responses
    assert [(each.name, each.error_code, each.error_message) for each in answers] == refused
    assert topic_id(client, name) is not None


def test_a_topic_deleted_by_name_and_id_is_refused_and_stays(client: RawClient):
    name = created(client)
    known = topic_id(client, name)
    once = [(name, ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")]
    assert delete(client, (name, None), (None, known)) == once
    both = [(name, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")]
    assert delete(client, (name, known)) == both
    twice = [(None, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")]
    assert delete(client, (None, known), (None, known)) == twice
    neither = [(None, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")]
    assert delete(client, (None, None)) == neither
    assert topic_id(client, name) == known


def alter(client: RawClient, *resources: tuple[str, list[tuple[str, int, str | None]]]) -> list[tuple[int, str | None]]:
    """Send one IncrementalAlterConfigs for topics; return code and message of each answer."""
    wanted = [
        {
            "resource_type": TOPIC,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": how, "value": value} for key, how, value in changes],
        }
        for name, changes in resources
    ]
    request = filled(IncrementalAlterConfigsRequest, resources=wanted, validate_only=False)
    return [(each.error_code, each.error_message) for each in client.send(request, 1).responses]


def test_a_resource_altered_twice_in_one_request_is_refused(client: RawClient):
    name, other = created(client), created(client)
    answers = alter(
        client,
        (name, [("retention.ms", SET, "5000")]),
        (other, [("retention.ms", SET, "5000")]),
        (name, [("segment.ms", SET, "5000")]),
    )
    refused = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert answers == [refused, (ErrorCode.NONE, None), refused]


def test_a_key_altered_twice_in_one_request_is_refused(client: RawClient):
    changes = [("cleanup.policy", APPEND, "compact"), ("cleanup.policy", SUBTRACT, "delete")]
    refused = (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    assert alter(client, (created(client), changes)) == [refused]


def test_changes_without_a_value_are_refused_together(client: RawClient):
    changes: list[tuple[str, int, str | None]] = [("segment.ms", SET, None), ("retention.ms", SET, None)]
    refused = (ErrorCode.INVALID_REQUEST, "Null value not supported for : segment.ms, retention.ms")
    assert alter(client, (created(client), changes)) == [refused]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("max.message.bytes", "3000000000", ErrorCode.INVALID_CONFIG),
        ("segment.bytes", "2147483648", ErrorCode.INVALID_CONFIG),
        ("compression.zstd.level", "0", ErrorCode.NONE),
        ("follower.replication.throttled.replicas", "0:1,1:1", ErrorCode.NONE),
        ("local.retention.bytes", "5", ErrorCode.NONE),
        ("local.retention.ms", "-1", ErrorCode.NONE),
        ("remote.copy.lag.ms", "0", ErrorCode.NONE),
        ("remote.log.copy.disable", "false", ErrorCode.NONE),
        ("remote.log.delete.on.disable", "false", ErrorCode.NONE),
        ("remote.storage.enable", "false", ErrorCode.NONE),
    ],
)
def test_values_of_topic_settings(client: RawClient, key: str, value: str, code: int):
    """Those that are not in the table of `test_setting_values`."""
    (answer,) = create(client, unique("topic"), config={key: value}, validate_only=True)
    assert answer.error_code == code, answer.error_message


REPLICAS = "leader.replication.throttled.replicas"
REPLICAS_FORM = (
    f"{REPLICAS} must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (REPLICAS, "0:1, x", f"Invalid value [0:1, x] for configuration {REPLICAS}: {REPLICAS_FORM}"),
        ("no.such", "1", "Unknown topic config name: no.such"),
    ],
)
def test_the_message_of_a_refused_topic_setting(client: RawClient, key: str, value: str, message: str):
    (answer,) = create(client, unique("topic"), config={key: value}, validate_only=True)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_CONFIG, message)


def test_compaction_lags_that_conflict_are_refused(client: RawClient):
    config = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    (answer,) = create(client, unique("topic"), config=config, validate_only=True)
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert (
        answer.error_message == "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )


def test_a_new_topic_has_all_settings_with_their_defaults(client: RawClient):
    (answer,) = create(client, unique("topic"), validate_only=True)
    assert {each.name: each.value for each in answer.configs} == {
        "cleanup.policy": "delete",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.type": "producer",
        "compression.zstd.level": "3",
        "delete.retention.ms": "86400000",
        "errors.deadletterqueue.group.enable": "false",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "4096",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.decompressed.message.bytes": "2147483639",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "remote.copy.lag.bytes": "-1",
        "remote.copy.lag.ms": "0",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize(("version", "message"), [(1, "NONE"), (3, "NONE"), (4, ""), (6, "")])
def test_the_message_of_a_found_coordinator(client: RawClient, version: int, message: str):
    key = unique("id")
    names = {"coordinator_keys": [key]} if version >= 4 else {"key": key}

    def find() -> Any:
        answer = client.send(FindCoordinatorRequest(key_type=1, **names), version)
        return answer.coordinators[0] if version >= 4 else answer

    wait_until(lambda: find().error_code == ErrorCode.NONE, "the coordinator is known")
    assert find().error_message == message


def test_share_coordinators_are_refused_without_a_message(client: RawClient):
    (answer,) = client.send(FindCoordinatorRequest(key_type=2, coordinator_keys=["group"]), 6).coordinators
    assert (answer.error_code, answer.error_message, answer.node_id) == (ErrorCode.INVALID_REQUEST, "", -1)


@pytest.mark.parametrize("endpoint_type", [0, 2, 3])
def test_only_brokers_are_described(client: RawClient, endpoint_type: int):
    form = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    answer = client.send(form, 1)
    if endpoint_type == 2:
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    else:
        assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        assert answer.error_message == f"Unsupported endpoint type {endpoint_type}"
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])


@pytest.mark.parametrize(
    ("partitions", "replicas", "assignments", "code", "message"),
    [
        (0, 1, [], ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            1,
            0,
            [],
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            1,
            -1,
            [[1]],
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            -1,
            1,
            [[1]],
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
    ],
)
def test_sizes_of_a_topic_that_are_refused(
    client: RawClient, partitions: int, replicas: int, assignments: list[list[int]], code: int, message: str
):
    fields = {"num_partitions": partitions, "replication_factor": replicas}
    (answer,) = create(client, unique("topic"), assignments=enumerate(assignments), **fields)
    assert (answer.error_code, answer.error_message) == (code, message)


def synonyms_of(client: RawClient, kind: int, name: str, key: str) -> list[tuple[str, str | None, int]]:
    (entry,) = describe(client, kind, name, key).configs
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_a_topic_setting_is_described_with_its_synonyms(client: RawClient):
    name = created(client)
    assert alter(client, (name, [("max.message.bytes", SET, "5000")])) == [(ErrorCode.NONE, None)]
    own = ("max.message.bytes", "5000", OF_TOPIC)
    wait_until(lambda: own in synonyms_of(client, TOPIC, name, "max.message.bytes"), "the setting is seen")
    inherited = [("message.max.bytes", "1048588", DEFAULT)]
    assert synonyms_of(client, TOPIC, name, "max.message.bytes") == [own, *inherited]
    assert synonyms_of(client, TOPIC, created(client), "max.message.bytes") == inherited
    for key in ("retention.ms", "segment.ms", "remote.storage.enable"):
        assert synonyms_of(client, TOPIC, name, key) == []
    assert synonyms_of(client, TOPIC, name, "preallocate") == [("log.preallocate", "false", DEFAULT)]
    assert describe(client, TOPIC, name, "max.message.bytes", synonyms=False).configs[0].synonyms == []


@pytest.mark.parametrize("kind", [TOPIC, BROKER, GROUP, CLIENT_METRICS])
def test_settings_are_described_with_a_text(client: RawClient, kind: int):
    name = {TOPIC: created(client), BROKER: "1"}.get(kind, unique("resource"))
    explained = describe(client, kind, name, documentation=True).configs
    assert explained
    assert [each.name for each in explained if not each.documentation] == []
    assert {each.documentation for each in describe(client, kind, name).configs} == {None}


def test_types_sources_and_read_only_settings_of_a_broker(client: RawClient, kafka: Kafka):
    def entry(key: str) -> tuple[str | None, int, bool, int]:
        (found,) = describe(client, BROKER, "1", key).configs
        return found.value, found.config_type, found.read_only, found.config_source

    assert entry("num.partitions") == ("1", 3, True, DEFAULT)
    assert entry("message.max.bytes") == ("1048588", 3, False, DEFAULT)
    assert entry("log.cleanup.policy") == ("delete", 7, False, DEFAULT)
    assert entry("log.retention.ms") == (None, 5, False, DEFAULT)
    assert entry("inter.broker.listener.name") == (None, 2, True, DEFAULT)
    assert entry("ssl.keystore.key") == (None, 9, False, DEFAULT)
    assert entry("offsets.topic.num.partitions") == ("5", 3, True, STATIC)
    assert entry("node.id") == ("1", 3, True, STATIC)
    assert entry("advertised.listeners") == (f"PLAINTEXT://{kafka.bootstrap_servers}", 7, True, STATIC)
    listeners, *rest = entry("listeners")
    assert listeners is not None
    assert listeners.split(",")[0] == f"PLAINTEXT://{kafka.bootstrap_servers}"
    assert rest == [7, False, STATIC]


def test_the_message_of_described_settings(client: RawClient):
    assert describe(client, TOPIC, created(client)).error_message == ""
    missing = describe(client, TOPIC, unique("topic"))
    assert (missing.error_code, missing.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    for name in ("a/b", ""):
        assert describe(client, TOPIC, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
