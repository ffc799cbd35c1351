"""The APIs of Kafka's tools for topics, leaders, folders of logs and the quorum, by single requests."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.both_brokers import Kafka
from tests.support.clients import make_topic, unique
from tests.support.messages import creation, filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, RawSession, record_batch
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE
BROKER = 1
UNKNOWN_OPERATIONS = -(2**31)
EVERY_TOPIC_OPERATION = 0b1101_1111_1000


@pytest.fixture
def topics(client: RawClient) -> list[str]:
    """Create topics of 1, 2 and 3 partitions, in the order of their names."""
    prefix = unique("pages")
    names = [f"{prefix}-{count}" for count in (1, 2, 3)]
    for count, name in enumerate(names, 1):
        assert client.send(creation(name, num_partitions=count), 7).topics[0].error_code == NONE
    wait_until(lambda: outline(pages(client, names))[0][-1][1:] == (NONE, [0, 1, 2]), f"{names} are known")
    return names


def pages(client: RawClient, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    wanted = [{"name": name} for name in names]
    form = m.DescribeTopicPartitionsRequest
    return client.send(filled(form, topics=wanted, response_partition_limit=limit, cursor=at), 0)


def outline(answer: Any) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    cursor = answer.next_cursor
    return (
        [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics],
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


# DescribeTopicPartitions


def test_topics_are_described_in_the_order_of_their_names(client: RawClient, topics: list[str]):
    a, b, c = topics
    answer = pages(client, [c, a, b, a])
    assert outline(answer) == ([(a, NONE, [0]), (b, NONE, [0, 1]), (c, NONE, [0, 1, 2])], None)
    assert {topic.topic_authorized_operations for topic in answer.topics} == {EVERY_TOPIC_OPERATION}
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.error_code) == (BROKER, 0, NONE)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([BROKER], [BROKER], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


# Rule J.5/1.
@pytest.mark.parametrize(
    ("limit", "cursor", "found", "next_cursor"),
    [
        (2, None, {0: [0], 1: [0]}, (1, 1)),
        (3, None, {0: [0], 1: [0, 1]}, (2, 0)),
        (0, None, {0: [0]}, (1, 0)),
        (-5, None, {0: [0]}, (1, 0)),
        (2, (1, 1), {1: [1], 2: [0]}, (2, 1)),
        (2, (1, 9), {1: [], 2: [0, 1]}, (2, 2)),
    ],
)
def test_a_page_ends_at_the_limit_with_a_cursor(
    client: RawClient,
    topics: list[str],
    limit: int,
    cursor: tuple[int, int] | None,
    found: dict[int, list[int]],
    next_cursor: tuple[int, int],
):
    answer = pages(client, topics, limit, cursor and (topics[cursor[0]], cursor[1]))
    wanted = [(topics[index], NONE, partitions) for index, partitions in found.items()]
    assert outline(answer) == (wanted, (topics[next_cursor[0]], next_cursor[1]))


def test_pages_add_up_to_all_topics(client: RawClient, topics: list[str]):
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = (topics[0], 0)
    while cursor is not None:
        part, cursor = outline(pages(client, [], 2, cursor))
        found += [(name, index) for name, _, indexes in part for index in indexes]
    assert [(name, index) for name, index in found if name in topics] == [
        (topics[0], 0),
        *((topics[1], index) for index in range(2)),
        *((topics[2], index) for index in range(3)),
    ]


# Rule J.5/2.
@pytest.mark.parametrize("cursor", ["missing", "negative"])
def test_a_cursor_that_does_not_fit_is_refused_for_every_topic(client: RawClient, topics: list[str], cursor: str):
    answer = pages(client, topics, 2, (topics[1] + "x", 0) if cursor == "missing" else (topics[1], -1))
    assert outline(answer) == ([(name, ErrorCode.INVALID_REQUEST, []) for name in topics], None)
    assert {topic.topic_authorized_operations for topic in answer.topics} == {UNKNOWN_OPERATIONS}


def test_topics_that_do_not_exist_have_an_error(client: RawClient, topics: list[str]):
    a, missing = topics[0], unique("zz-missing")
    answer = pages(client, [missing, a, "a b"])
    assert outline(answer) == (
        [
            ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
            (a, NONE, [0]),
            (missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ],
        None,
    )


# DescribeLogDirs and AlterReplicaLogDirs


def log_dirs(client: RawClient, wanted: dict[str, list[int]] | None, version: int) -> Any:
    topics = wanted if wanted is None else [{"topic": name, "partitions": each} for name, each in wanted.items()]
    [found] = client.send(filled(m.DescribeLogDirsRequest, topics=topics), version).results
    assert found.error_code == NONE
    return found


def sizes(found: Any) -> dict[str, dict[int, int]]:
    return {topic.name: {p.partition_index: p.partition_size for p in topic.partitions} for topic in found.topics}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_partitions_are_described_with_their_sizes(kafka: Kafka, client: RawClient, version: int):
    topic = make_topic(kafka, partitions=3)
    # Kafka creates the logs a little later than the topic.
    wait_until(lambda: sizes(log_dirs(client, None, version)).get(topic) == {0: 0, 1: 0, 2: 0}, "the logs exist")
    found = log_dirs(client, {topic: [2, 0, 7], unique("missing"): [0]}, version)
    assert sizes(found) == {topic: {0: 0, 2: 0}}
    assert found.log_dir.startswith("/")
    partition = found.topics[0].partitions[0]
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert sizes(log_dirs(client, {}, version)) == {}


def test_a_written_partition_has_the_size_of_its_batches(kafka: Kafka, client: RawClient, idempotent: RawSession):
    topic = make_topic(kafka)
    assert idempotent.produce(topic, record_batch([b"value"], NOBODY, -1, transactional=False), version=9)[0] == NONE
    assert sizes(log_dirs(client, {topic: [0]}, 4))[topic][0] > 60


# Rule J.5/5.
@pytest.mark.parametrize("version", [1, 2])
def test_partitions_move_only_to_the_folder_they_are_in(kafka: Kafka, client: RawClient, version: int):
    topic, missing = make_topic(kafka), unique("missing")

    def moved(*targets: tuple[str, str, list[int]]) -> set[tuple[str, int, int]]:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": indexes}]} for path, name, indexes in targets]
        answer = client.send(filled(m.AlterReplicaLogDirsRequest, dirs=dirs), version)
        return {(t.topic_name, p.partition_index, p.error_code) for t in answer.results for p in t.partitions}

    wait_until(lambda: sizes(log_dirs(client, {topic: [0]}, 4)), "the log exists")
    folder = log_dirs(client, {}, 4).log_dir
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert moved((folder, topic, [0, 5])) == {(topic, 0, NONE), (topic, 5, unknown)}
    assert moved((folder, missing, [0])) == {(missing, 0, unknown)}
    assert moved(("/nowhere", topic, [0, 5])) == {
        (topic, 0, ErrorCode.LOG_DIR_NOT_FOUND),
        (topic, 5, ErrorCode.LOG_DIR_NOT_FOUND),
    }
    assert moved() == set()


# DescribeQuorum and UnregisterBroker


def quorum(client: RawClient, version: int, *wanted: tuple[str, list[int]]) -> Any:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in wanted
    ]
    return client.send(filled(m.DescribeQuorumRequest, topics=topics), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_the_broker(client: RawClient, version: int):
    answer = quorum(client, version, ("__cluster_metadata", [0]))
    [partition] = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.leader_id) == (NONE, NONE, BROKER)
    [voter] = partition.current_voters
    assert (voter.replica_id, partition.observers) == (BROKER, [])
    assert partition.high_watermark > 0
    assert voter.log_end_offset >= partition.high_watermark
    if version >= 2:
        assert (answer.error_message, partition.error_message) == ("", "")
        assert [node.node_id for node in answer.nodes] == [BROKER]
        assert voter.replica_directory_id is not None


# Rule J.5/6.
@pytest.mark.parametrize(
    "wanted", [[("b", [0])], [("__cluster_metadata", [0, 1])], [("b", [0]), ("__cluster_metadata", [0])]]
)
def test_only_the_partition_of_the_metadata_has_a_quorum(client: RawClient, wanted: list[tuple[str, list[int]]]):
    answer = quorum(client, 2, *wanted)
    assert (answer.error_code, answer.nodes) == (NONE, [])
    assert {
        (partition.error_code, partition.error_message) for topic in answer.topics for partition in topic.partitions
    } == {(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")}


@pytest.mark.parametrize("broker_id", [77, -1])
def test_an_unknown_broker_is_not_unregistered(client: RawClient, broker_id: int):
    answer = client.send(m.UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == f"Broker ID {broker_id} is not currently registered"


# ElectLeaders


def elections(client: RawClient, version: int, wanted: list[tuple[str, list[int]]] | None, kind: int = 0) -> Any:
    named = wanted and [{"topic": name, "partitions": each} for name, each in wanted]
    request = filled(m.ElectLeadersRequest, election_type=kind, topic_partitions=named, timeout_ms=5000)
    answer = client.send(request, version)
    code = answer.error_code if version >= 1 else NONE
    return code, [
        (result.topic, [(part.partition_id, part.error_code, part.error_message) for part in result.partition_result])
        for result in answer.replica_election_results
    ]


# Rule J.5/3.
@pytest.mark.parametrize("version", [0, 1, 2])
def test_partitions_with_their_leader_need_no_election(kafka: Kafka, client: RawClient, version: int):
    topic, missing = make_topic(kafka, partitions=2), unique("missing")
    not_needed = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elections(client, version, [(topic, [0, 1]), (missing, [0]), (topic, [5])]) == (
        NONE,
        [
            (topic, [(0, *not_needed), (1, *not_needed)]),
            (missing, [(0, unknown, f"No such topic as {missing}")]),
            (topic, [(5, unknown, f"No such partition as {topic}-5")]),
        ],
    )
    code, results = elections(client, version, None)
    assert (code, dict(results)[topic]) == (NONE, [])
    if version >= 1:
        assert elections(client, version, [(topic, [0])], kind=1) == (NONE, [(topic, [(0, *not_needed)])])


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_election_is_refused(client: RawClient, version: int):
    refused = (ErrorCode.INVALID_REQUEST, "Unknown election type 2")
    assert elections(client, version, [("t", [0, 1])], kind=2) == (
        ErrorCode.INVALID_REQUEST,
        [("t", [(0, *refused), (1, *refused)])],
    )


# AlterPartitionReassignments and ListPartitionReassignments


def reassign(client: RawClient, version: int, *wanted: tuple[str, int, list[int] | None]) -> list[Any]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for name, index, replicas in wanted
    ]
    answer = client.send(filled(m.AlterPartitionReassignmentsRequest, timeout_ms=5000, topics=topics), version)
    assert answer.error_code == NONE
    assert answer.error_message == (None if wanted else "")
    return [(part.error_code, part.error_message) for topic in answer.responses for part in topic.partitions]


# Rule J.5/4.
@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_are_checked_and_complete_at_once(kafka: Kafka, client: RawClient, version: int):
    topic, missing = make_topic(kafka), unique("missing")
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
    says = "The manual partition assignment includes"
    assert reassign(
        client,
        version,
        (topic, 0, [BROKER]),
        (topic, 0, None),
        (topic, 7, [BROKER]),
        (missing, 0, [BROKER]),
        (topic, 0, []),
        (topic, 0, [BROKER, BROKER]),
        (topic, 0, [77]),
    ) == [
        (NONE, None),
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (unknown, f"Unable to find partition {topic}:7."),
        (unknown, f"Unable to find a topic named {missing}."),
        (invalid, f"{says} an empty replica list."),
        (invalid, f"{says} the broker 1 more than once."),
        (invalid, f"{says} broker 77, but no such broker is registered."),
    ]
    assert reassign(client, version) == []
    named = [{"name": name, "partition_indexes": [0, 9]} for name in (topic, missing)]
    for wanted in (None, [], named):
        answer = client.send(filled(m.ListPartitionReassignmentsRequest, timeout_ms=5000, topics=wanted), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (NONE, None, [])
