"""Elections and reassignments in a cluster of several brokers."""

import pytest

from broker_core.broker.endpoints import Address
from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER, TopicPartition
from broker_core.wire import messages as m
from tests.support.direct import DirectClient, direct_cluster

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cluster():
    cluster = direct_cluster(brokers=3)
    cluster.controller.create_topic("t", 1, leaders=[2])
    return cluster


@pytest.fixture
def client(cluster):
    return DirectClient(cluster, 1)


def leader(cluster):
    return cluster.metadata.leadership(PARTITION).leader


def elect(client, kind):
    answer = client.ask(
        m.ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])],
            timeout_ms=1000,
        ),
        2,
    )
    return answer.replica_election_results[0].partition_result[0].error_code


def reassign(client, replicas, **options):
    form = m.AlterPartitionReassignmentsRequest.ReassignableTopic
    parts = [form.ReassignablePartition(partition_index=0, replicas=replicas)]
    request = m.AlterPartitionReassignmentsRequest(
        timeout_ms=1000, topics=[form(name="t", partitions=parts)], **options
    )
    [part] = client.ask(request, 1).responses[0].partitions
    return part.error_code, part.error_message


def test_preferred_leader_that_is_offline_is_not_available(cluster, client):
    cluster.controller.broker_left(2)
    assert elect(client, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(client, 1) == ErrorCode.ELECTION_NOT_NEEDED
    cluster.controller.broker_joined(2, Address("test", 9001))
    assert (leader(cluster), elect(client, 0)) == (2, ErrorCode.ELECTION_NOT_NEEDED)


def test_election_of_all_reports_partitions_without_their_preferred_leader(cluster, client):
    def unelected():
        answer = client.ask(m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000), 2)
        return [len(topic.partition_result) for topic in answer.replica_election_results]

    assert unelected() == [0]
    cluster.controller.broker_left(2)
    assert unelected() == [1]


def test_unclean_election_gives_a_partition_a_leader_again(cluster, client):
    cluster.controller.lose_leader(PARTITION)
    assert elect(client, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert leader(cluster) == NO_LEADER
    assert elect(client, 1) == ErrorCode.NONE
    assert leader(cluster) == 1


def test_reassignment_keeps_a_leader_that_is_among_the_replicas(cluster, client):
    assert reassign(client, [3, 2, 1]) == (ErrorCode.NONE, None)
    assert leader(cluster) == 2


def test_reassignment_moves_the_leader_to_the_first_replica_that_runs(cluster, client):
    cluster.controller.broker_left(3)
    assert reassign(client, [3, 1]) == (ErrorCode.NONE, None)
    assert leader(cluster) == 1
    assert reassign(client, [3]) == (ErrorCode.NONE, None)
    assert leader(cluster) == 1


def test_reassignment_that_changes_the_replication_factor_can_be_refused(cluster, client):
    assert reassign(client, [3, 1], allow_replication_factor_change=False) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 2",
    )
    assert leader(cluster) == 2


def test_quorum_is_led_by_the_lowest_broker_that_runs(cluster, client):
    form = m.DescribeQuorumRequest.TopicData
    topics = [form(topic_name="__cluster_metadata", partitions=[form.PartitionData(partition_index=0)])]

    def quorum(broker_id):
        [part] = DirectClient(cluster, broker_id).ask(m.DescribeQuorumRequest(topics=topics), 2).topics[0].partitions
        return part.leader_id, {voter.replica_id: voter.replica_directory_id for voter in part.current_voters}

    leader_id, voters = quorum(3)
    assert (leader_id, sorted(voters), len(set(voters.values()))) == (1, [1, 2, 3], 3)
    cluster.controller.broker_left(1)
    assert quorum(3) == (2, {broker_id: voters[broker_id] for broker_id in (2, 3)})
