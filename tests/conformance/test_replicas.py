"""The replicas of partitions, on three brokers: where they are assigned, shown, moved, and what follows a stop."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.broker_core.requests import produce
from tests.support.clients import unique
from tests.support.messages import creation, filled
from tests.support.raw_session import NOBODY, record_batch
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers, three_brokers
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE
PREFERRED, UNCLEAN = 0, 1
# Leader, replicas, replicas in sync, replicas that are offline.
Row = tuple[int, list[int], list[int], list[int]]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """Return three brokers, which run between tests."""
    with three_brokers(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def create(three: ThreeBrokers, *assignments: list[int], **wanted: Any) -> tuple[str, Any]:
    """Create a topic, and return its name and the answer."""
    name = unique("replicas")
    fields = {"num_partitions": -1, "replication_factor": -1, **wanted}
    [answer] = three.ask(creation(name, assignments=enumerate(assignments), **fields), 7).topics
    return name, answer


def created(three: ThreeBrokers, *assignments: list[int], **wanted: Any) -> str:
    """Create a topic and return its name, when all brokers know it."""
    name, answer = create(three, *assignments, **wanted)
    assert answer.error_code == NONE, answer
    for broker_id in BROKER_IDS:
        wait_until(lambda broker_id=broker_id: rows(three, name, broker_id), f"broker {broker_id} knows {name}")
    return name


def described(three: ThreeBrokers, name: str, broker_id: int = 1, version: int = 12) -> Any:
    topics = [{"topic_id": m.NULL_UUID, "name": name}]
    request = filled(m.MetadataRequest, topics=topics, allow_auto_topic_creation=False)
    return three.ask(request, version, broker_id).topics[0]


def rows(three: ThreeBrokers, name: str, broker_id: int = 1) -> list[Row]:
    """Return the partitions as Metadata and DescribeTopicPartitions show them, when both show the same."""
    request = filled(
        m.DescribeTopicPartitionsRequest, topics=[{"name": name}], response_partition_limit=100, cursor=None
    )

    def shown() -> list[list[Row]]:
        partitions = sorted(described(three, name, broker_id).partitions, key=lambda each: each.partition_index)
        found = [row(each) for each in partitions]
        return [found] if found == [row(each) for each in three.ask(request, 0, broker_id).topics[0].partitions] else []

    return wait_until(shown, f"broker {broker_id} shows {name} in both ways")[0]


def row(partition: Any) -> Row:
    return (
        partition.leader_id,
        list(partition.replica_nodes),
        sorted(partition.isr_nodes),
        list(partition.offline_replicas),
    )


def wait_for(three: ThreeBrokers, name: str, *expected: Row) -> None:
    """Wait until Metadata shows these partitions: Apache Kafka's brokers learn changes a little later."""
    seen: list[Row] = []

    def shown() -> bool:
        seen[:] = rows(three, name)
        return seen == list(expected)

    try:
        wait_until(shown, f"{name} is {list(expected)}")
    except AssertionError:
        assert seen == list(expected)
        raise


def elect(three: ThreeBrokers, kind: int, name: str) -> tuple[int, str | None]:
    wanted = [{"topic": name, "partitions": [0]}]
    request = filled(m.ElectLeadersRequest, election_type=kind, topic_partitions=wanted, timeout_ms=30_000)
    [part] = three.ask(request, 2).replica_election_results[0].partition_result
    return part.error_code, part.error_message


def reassign(three: ThreeBrokers, name: str, replicas: list[int] | None, **options: Any) -> tuple[int, str | None]:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    request = filled(m.AlterPartitionReassignmentsRequest, timeout_ms=30_000, topics=topics, **options)
    [part] = three.ask(request, 1 if options else 0).responses[0].partitions
    return part.error_code, part.error_message


def reassignments(three: ThreeBrokers, name: str) -> list[tuple[list[int], list[int], list[int]]]:
    wanted = [{"name": name, "partition_indexes": [0]}]
    request = filled(m.ListPartitionReassignmentsRequest, timeout_ms=30_000, topics=wanted)
    return [
        (list(part.replicas), list(part.adding_replicas), list(part.removing_replicas))
        for topic in three.ask(request, 0).topics
        for part in topic.partitions
    ]


def produced(three: ThreeBrokers, name: str, broker_id: int, acks: int) -> int:
    batch = record_batch([b"value"], NOBODY, -1, transactional=False)
    request = produce(batch, topic=name, acks=acks)
    return int(three.ask(*request, broker_id).responses[0].partition_responses[0].error_code)


# Rule J.5/7.
def test_replicas_are_kept_in_the_order_they_are_assigned(three: ThreeBrokers):
    name = created(three, [2, 1], [3, 2], [1, 3])
    wait_for(three, name, (2, [2, 1], [1, 2], []), (3, [3, 2], [2, 3], []), (1, [1, 3], [1, 3], []))


# Rule J.5/8.
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_replication_factor_gives_each_partition_as_many_replicas(three: ThreeBrokers, factor: int):
    name = created(three, num_partitions=3, replication_factor=factor)
    found = rows(three, name)
    assert {len({*replicas}) for _, replicas, _, _ in found} == {factor}
    assert [leader for leader, *_ in found] == [replicas[0] for _, replicas, *_ in found]
    assert sorted(leader for leader, *_ in found) == [1, 2, 3]


# Rule J.5/8.
def test_creation_answers_the_replication_factor(three: ThreeBrokers):
    assert create(three, [2, 1], [3, 2])[1].replication_factor == 2
    assert create(three, num_partitions=1, replication_factor=3)[1].replication_factor == 3
    assert create(three, num_partitions=1)[1].replication_factor == 3


# Rules J.5/7 and J.5/8.
def test_new_partitions_have_the_replicas_that_are_assigned_or_as_many_as_the_others(three: ThreeBrokers):
    name = created(three, [2, 1])

    def add(count: int, assignments: list[list[int]] | None) -> tuple[int, str | None]:
        assigned = assignments and [{"broker_ids": each} for each in assignments]
        topics = [{"name": name, "count": count, "assignments": assigned}]
        request = filled(m.CreatePartitionsRequest, topics=topics, timeout_ms=30_000, validate_only=False)
        [answer] = three.ask(request, 3).results
        return answer.error_code, answer.error_message

    code, message = add(2, [[3]])
    assert (code, "1 replica(s)" in str(message), "2 replica(s)" in str(message)) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        True,
        True,
    )
    assert add(3, [[3, 1], [2, 3]]) == (NONE, None)
    wait_for(three, name, (2, [2, 1], [1, 2], []), (3, [3, 1], [1, 3], []), (2, [2, 3], [2, 3], []))
    assert add(4, None) == (NONE, None)
    wait_until(lambda: len(rows(three, name)) == 4, "there are four partitions")
    assert len({*rows(three, name)[3][1]}) == 2


# Rule J.5/5.
def test_broker_describes_and_moves_only_the_logs_of_its_replicas(three: ThreeBrokers):
    name = created(three, [2, 1], [3, 2])

    def described(topics: list[Any], broker_id: int) -> Any:
        [found] = three.ask(filled(m.DescribeLogDirsRequest, topics=topics), 4, broker_id).results
        return found

    def partitions(broker_id: int) -> list[int]:
        found = described([{"topic": name, "partitions": [0, 1]}], broker_id)
        return sorted(part.partition_index for topic in found.topics for part in topic.partitions)

    for broker_id, expected in ((1, [0]), (2, [0, 1]), (3, [1])):
        wait_until(lambda b=broker_id, e=expected: partitions(b) == e, f"broker {broker_id} has {expected}")
    found = described([], 3)
    moved = {"path": found.log_dir, "topics": [{"name": name, "partitions": [0, 1]}]}
    [topic] = three.ask(filled(m.AlterReplicaLogDirsRequest, dirs=[moved]), 2, 3).results
    codes = {part.partition_index: part.error_code for part in topic.partitions}
    assert codes == {0: ErrorCode.REPLICA_NOT_AVAILABLE, 1: NONE}


# Rules F.1/4 and F.1/5.
def test_only_replicas_describe_the_producers_of_a_partition(three: ThreeBrokers):
    name = created(three, [2, 1])
    request = filled(m.DescribeProducersRequest, topics=[{"name": name, "partition_indexes": [0]}])

    def said(broker_id: int) -> tuple[int, str | None]:
        [part] = three.ask(request, 0, broker_id).topics[0].partitions
        return part.error_code, part.error_message

    for broker_id, expected in ((1, NONE), (2, NONE), (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        wait_until(lambda b=broker_id, e=expected: said(b) == (e, None), f"broker {broker_id} answers {expected.name}")


# Rules J.5/10 and J.5/11.
def test_reassigned_partition_has_the_new_replicas(three: ThreeBrokers):
    name = created(three, [2, 1])
    assert reassign(three, name, [1, 2]) == (NONE, None)
    wait_for(three, name, (2, [1, 2], [1, 2], []))
    assert elect(three, PREFERRED, name) == (NONE, None)
    wait_for(three, name, (1, [1, 2], [1, 2], []))
    assert elect(three, PREFERRED, name)[0] == elect(three, UNCLEAN, name)[0] == ErrorCode.ELECTION_NOT_NEEDED
    assert reassign(three, name, [3, 2]) == (NONE, None)
    wait_for(three, name, (3, [3, 2], [2, 3], []))
    assert reassignments(three, name) == []
    assert reassign(three, name, None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    code, message = reassign(three, name, [3], allow_replication_factor_change=False)
    assert (code, message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 1",
    )


# Rules J.5/9 and J.5/10.
def test_stopped_broker_leaves_its_partitions_to_their_other_replicas(three: ThreeBrokers):
    shared, alone = created(three, [3, 2]), created(three, [3])
    three.stop(3)
    try:
        wait_for(three, shared, (2, [3, 2], [2], [3]))
        wait_for(three, alone, (-1, [3], [], [3]))
        assert described(three, alone).partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        oldest = [described(three, each, version=0).partitions[0] for each in (shared, alone)]
        assert [(each.error_code, list(each.replica_nodes)) for each in oldest] == [
            (ErrorCode.REPLICA_NOT_AVAILABLE, [2]),
            (ErrorCode.LEADER_NOT_AVAILABLE, []),
        ]
        for name in (shared, alone):
            assert elect(three, PREFERRED, name) == (
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "The preferred leader was not available.",
            )
        assert elect(three, UNCLEAN, shared)[0] == ErrorCode.ELECTION_NOT_NEEDED
        assert elect(three, UNCLEAN, alone) == (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    finally:
        three.start(3)
    wait_for(three, alone, (3, [3], [3], []))
    wait_until(lambda: rows(three, shared)[0][2] == [2, 3], "both replicas are in sync")
    assert elect(three, PREFERRED, shared)[0] in (NONE, ErrorCode.ELECTION_NOT_NEEDED)
    wait_for(three, shared, (3, [3, 2], [2, 3], []))


# Rules J.5/7 and J.5/8.
def test_new_replicas_on_a_stopped_broker(three: ThreeBrokers):
    three.stop(3)
    try:
        _, refused = create(three, [3], [1])
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown.",
        )
        name, answer = create(three, [3, 1])
        assert answer.error_code == NONE
        wait_for(three, name, (1, [3, 1], [1], [3]))
        name, answer = create(three, num_partitions=2, replication_factor=2)
        wait_until(lambda: len(rows(three, name)) == 2, "both partitions exist")
        assert sorted(leader for leader, *_ in rows(three, name)) == [1, 2]
    finally:
        three.start(3)


# Rule J.5/11.
def test_reassignment_waits_for_a_stopped_broker(three: ThreeBrokers):
    done, cancelled = created(three, [2, 1]), created(three, [2, 1])
    three.stop(3)
    try:
        for name in (done, cancelled):
            assert reassign(three, name, [3, 1]) == (NONE, None)
            wait_for(three, name, (2, [3, 1, 2], [1, 2], [3]))
            assert reassignments(three, name) == [([3, 1, 2], [3], [2])]
        assert reassign(three, cancelled, None) == (NONE, None)
        wait_for(three, cancelled, (2, [1, 2], [1, 2], []))
        assert reassignments(three, cancelled) == []
    finally:
        three.start(3)
    wait_for(three, done, (3, [3, 1], [1, 3], []))
    assert reassignments(three, done) == []


# Rule C.1/12.
def test_writes_need_as_many_replicas_in_sync_as_the_topic_demands(three: ThreeBrokers):
    name = created(three, [1, 3], config={"min.insync.replicas": "2"})
    capped = created(three, [1], config={"min.insync.replicas": "2"})
    wait_until(lambda: produced(three, name, 1, -1) == NONE, "the leader is ready")
    three.stop(3)
    try:
        wait_for(three, name, (1, [1, 3], [1], [3]))
        refused = ErrorCode.NOT_ENOUGH_REPLICAS
        wait_until(lambda: produced(three, name, 1, -1) == refused, "writes are refused", deadline_s=30)
        assert produced(three, name, 1, 1) == NONE
        assert produced(three, capped, 1, -1) == NONE
    finally:
        three.start(3)
    wait_until(lambda: produced(three, name, 1, -1) == NONE, "writes are accepted", deadline_s=60)


# Rule A.13 receiver/4.
def test_markers_go_to_the_leader_and_not_to_other_brokers(three: ThreeBrokers):
    name = created(three, [2, 1])
    marker = {"producer_id": 7, "producer_epoch": 0, "topics": [{"name": name, "partition_indexes": [0]}]}

    def written(broker_id: int) -> int:
        answer = three.ask(filled(m.WriteTxnMarkersRequest, markers=[marker]), 2, broker_id)
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    wait_until(lambda: written(2) == NONE, "the leader writes the marker")
    assert written(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert written(3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
