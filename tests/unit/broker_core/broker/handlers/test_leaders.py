"""Elections and reassignments in a cluster of several brokers."""

import pytest

from broker_core.broker.endpoints import Address
from broker_core.broker.partitions import Leadership
from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.requests import fetch_request
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import filled, offsets_request

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cluster():
    cluster = direct_cluster(brokers=3)
    cluster.controller.create_topic("t", 1, replicas=[[2, 3, 1]])
    return cluster


@pytest.fixture
def client(cluster):
    return DirectClient(cluster, 1)


def leader(cluster):
    return cluster.metadata.leadership(PARTITION).leader


def replicas(cluster):
    return cluster.metadata.leadership(PARTITION).replicas


def listed(client, **wanted):
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in wanted.items()] or None
    answer = client.ask(filled(m.ListPartitionReassignmentsRequest, timeout_ms=1000, topics=topics), 0)
    return [
        (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    ]


def elect(client, kind, topic="t"):
    wanted = [{"topic": topic, "partitions": [0]}]
    request = filled(m.ElectLeadersRequest, election_type=kind, topic_partitions=wanted, timeout_ms=1000)
    answer = client.ask(request, 2)
    return answer.replica_election_results[0].partition_result[0].error_code


def reassign(client, replicas, topic="t", **options):
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    request = filled(m.AlterPartitionReassignmentsRequest, timeout_ms=1000, topics=topics, **options)
    [part] = client.ask(request, 1).responses[0].partitions
    return part.error_code, part.error_message


# Rules D.1 more/5, D.3 errors/5 and D.3 errors/6.
def test_replica_that_does_not_lead_compares_the_leader_epoch_first(cluster):
    cluster.controller.move_leader(PARTITION, 3)
    now = cluster.metadata.leadership(PARTITION).leader_epoch
    cluster.controller.create_topic("one", 1, replicas=[[3]])

    def codes(topic, epoch):
        client = DirectClient(cluster, 1)
        listed = client.ask(offsets_request(topic, leader_epoch=epoch), 4).topics[0].partitions[0]
        wanted = {"current_leader_epoch": epoch, "partition_max_bytes": 1}
        fetched = client.ask(fetch_request(topic, wanted, min_bytes=0), 11).responses[0].partitions[0]
        return {ErrorCode(listed.error_code), ErrorCode(fetched.error_code)}

    assert codes("t", now) == codes("t", -1) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert codes("t", now - 1) == {ErrorCode.FENCED_LEADER_EPOCH}
    assert codes("t", now + 1) == {ErrorCode.UNKNOWN_LEADER_EPOCH}
    # A broker that is no replica has no leader epoch to compare.
    assert codes("one", 9) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_election_of_all_reports_partitions_without_their_preferred_leader(cluster, client):
    def unelected():
        answer = client.ask(m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000), 2)
        return [len(topic.partition_result) for topic in answer.replica_election_results]

    assert unelected() == [0]
    cluster.controller.broker_left(2)
    assert unelected() == [1]


def test_preferred_leader_is_the_first_replica(cluster, client):
    cluster.controller.move_leader(PARTITION, 3)
    assert replicas(cluster) == (2, 3, 1)
    assert elect(client, 1) == ErrorCode.ELECTION_NOT_NEEDED
    assert (elect(client, 0), leader(cluster)) == (ErrorCode.NONE, 2)
    assert elect(client, 0) == ErrorCode.ELECTION_NOT_NEEDED


def test_unclean_election_gives_a_partition_a_leader_again(cluster, client):
    cluster.controller.lose_leader(PARTITION)
    assert elect(client, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert leader(cluster) == NO_LEADER
    cluster.controller.broker_left(2)
    assert elect(client, 1) == ErrorCode.NONE
    assert leader(cluster) == 3


def test_partition_whose_replicas_are_all_offline_has_no_leader(cluster, client):
    cluster.controller.create_topic("one", 1, replicas=[[2]])
    one = TopicPartition("one", 0)
    epoch = cluster.metadata.leadership(one).leader_epoch
    cluster.controller.broker_left(2)
    cluster.controller.broker_left(3)
    assert cluster.metadata.leadership(one) == Leadership(NO_LEADER, epoch + 1, (2,))
    assert elect(client, 0, "one") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(client, 1, "one") == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.controller.broker_joined(3, Address("test", 9002))
    assert cluster.metadata.leadership(one).leader == NO_LEADER
    cluster.controller.broker_joined(2, Address("test", 9001))
    assert cluster.metadata.leadership(one) == Leadership(2, epoch + 2, (2,))


@pytest.mark.parametrize(
    ("replicas", "stopped", "last", "leaders"),
    [
        ([3, 2], [3, 2], NO_LEADER, {2: 2, 3: 3}),
        ([3, 2, 1], [3, 1, 2], 2, {1: 1, 2: 1, 3: 3}),
        ([2], [1, 3, 2], 2, {1: NO_LEADER, 2: 2}),
    ],
    ids=["all replicas have stopped", "all brokers have stopped", "no replica returns first"],
)
def test_first_replica_that_returns_leads_until_the_first_leader_is_back(cluster, replicas, stopped, last, leaders):
    cluster.controller.create_topic("made", 1, replicas=[replicas])
    made = TopicPartition("made", 0)
    for broker_id in stopped:
        cluster.controller.broker_left(broker_id)
    assert cluster.metadata.leadership(made).leader == last
    for broker_id, expected in leaders.items():
        cluster.controller.broker_joined(broker_id, Address("test", 8999 + broker_id))
        assert cluster.metadata.leadership(made).leader == expected


def test_topic_created_while_all_brokers_are_stopped_is_led_by_the_first_to_start(cluster):
    for broker_id in (1, 2, 3):
        cluster.controller.broker_left(broker_id)
    cluster.controller.create_topic("made", 1)
    cluster.controller.add_partitions("made", 3)
    made = [TopicPartition("made", index) for index in range(3)]
    assert [cluster.metadata.leadership(each).leader for each in made] == [NO_LEADER] * 3
    cluster.controller.broker_joined(3, Address("test", 9002))
    assert [cluster.metadata.leadership(each).leader for each in made] == [3, 3, 3]
    for broker_id in (1, 2):
        cluster.controller.broker_joined(broker_id, Address("test", 8999 + broker_id))
    assert sorted(cluster.metadata.leadership(each).leader for each in made) == [1, 2, 3]


def test_end_of_an_outage_elects_no_broker_that_is_no_replica(cluster):
    cluster.controller.create_topic("one", 1, replicas=[[2]])
    one = TopicPartition("one", 0)
    cluster.controller.lose_leader(one)
    cluster.controller.broker_left(2)
    cluster.controller.elect(one, 2)
    assert cluster.metadata.leadership(one).leader == NO_LEADER
    cluster.controller.broker_joined(2, Address("test", 9001))
    assert cluster.metadata.leadership(one).leader == 2


def test_leader_from_outside_takes_the_place_of_the_old_one_among_the_replicas(cluster):
    cluster.controller.create_topic("two", 1, replicas=[[1, 2]])
    cluster.controller.move_leader(TopicPartition("two", 0), 3)
    assert cluster.metadata.leadership(TopicPartition("two", 0)) == Leadership(3, 1, (3, 2))


def test_replica_that_is_removed_ends_the_leader_epoch_of_a_leader_that_stays(cluster, client):
    assert reassign(client, [3, 2, 1]) == (ErrorCode.NONE, None)
    assert cluster.metadata.leadership(PARTITION) == Leadership(2, 0, (3, 2, 1))
    assert reassign(client, [3, 2]) == (ErrorCode.NONE, None)
    assert cluster.metadata.leadership(PARTITION) == Leadership(2, 1, (3, 2))


def test_partition_without_a_leader_is_reassigned_when_it_has_one_again(cluster, client):
    cluster.controller.create_topic("one", 1, replicas=[[2]])
    cluster.controller.broker_left(2)
    assert reassign(client, [1], "one") == (ErrorCode.NONE, None)
    assert listed(client) == [("one", 0, [1, 2], [1], [2])]
    assert cluster.metadata.leadership(TopicPartition("one", 0)).leader == NO_LEADER
    cluster.controller.broker_joined(2, Address("test", 9001))
    assert cluster.metadata.leadership(TopicPartition("one", 0)).replicas == (1,)


def test_quorum_is_led_by_the_lowest_broker_that_runs(cluster, client):
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    request = filled(m.DescribeQuorumRequest, topics=topics)

    def quorum(broker_id):
        [part] = DirectClient(cluster, broker_id).ask(request, 2).topics[0].partitions
        return part.leader_id, {voter.replica_id: voter.replica_directory_id for voter in part.current_voters}

    leader_id, voters = quorum(3)
    assert (leader_id, sorted(voters), len(set(voters.values()))) == (1, [1, 2, 3], 3)
    cluster.controller.broker_left(1)
    assert quorum(3) == (2, {broker_id: voters[broker_id] for broker_id in (2, 3)})
