"""Partitions without a leader and ids without a coordinator for a while: what clients see, and what continues."""

import pytest

from broker_core import EmbeddedBroker
from broker_core.broker.monitoring.metrics import take_metrics
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import TopicPartition
from tests.support.broker_core.moves_world import (
    PARTITIONS,
    V2,
    MovesWorld,
    complete,
    ends,
    open_world,
    prepared,
    protocols,
    waiting_fetch,
)

E = ErrorCode
P0, P1 = PARTITIONS
BROKERS = (1, 2)
# With one partition each, every id and group is in partition 0.
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def pass_ms(world: MovesWorld, duration_ms: int) -> None:
    end_ms = world.cluster.now_ms + duration_ms
    while world.cluster.now_ms < end_ms:
        world.cluster.advance(min(end_ms, max(world.cluster.next_deadline_ms(), world.cluster.now_ms + 1)))


def take_away(world: MovesWorld, topic_partition: TopicPartition) -> int:
    owner = world.leader(topic_partition)
    world.cluster.controller.lose_leader(topic_partition)
    world.cluster.settle(world.cluster.now_ms)
    return owner


def give_back(world: MovesWorld, topic_partition: TopicPartition, owner: int) -> None:
    world.cluster.controller.elect(topic_partition, owner)
    world.cluster.settle(world.cluster.now_ms)


# What clients see


# Rules C.1/11 and D.3 errors/5.
@protocols
def test_requests_without_a_leader_are_refused(protocol: int, world: MovesWorld) -> None:
    world.write()
    epoch = world.cluster.metadata.leadership(P0).leader_epoch
    take_away(world, P0)
    for broker in BROKERS:
        assert world.described_leader(P0, broker) == (E.LEADER_NOT_AVAILABLE, -1, epoch + 1)
        assert world.described_leader(P1, broker)[0] is E.NONE
        assert world.produce(P0, broker)[0] is E.NOT_LEADER_OR_FOLLOWER
        assert world.fetched(P0, 1, broker).error_code == E.NOT_LEADER_OR_FOLLOWER
        assert world.described_end(P0, broker) == (E.NOT_LEADER_OR_FOLLOWER, -1)


# Rules A.4/4, C.3 ask/1 and C.3 answer/1.
@protocols
def test_unavailable_transaction_coordinator_is_not_found_and_does_not_answer(protocol: int, world: MovesWorld) -> None:
    world.write(P0)
    take_away(world, world.state_partition)
    for broker in BROKERS:
        assert world.found_coordinators(broker)[1] == (E.COORDINATOR_NOT_AVAILABLE, -1)
        assert world.init(broker) is E.NOT_COORDINATOR
        assert world.end(commit=True, broker=broker)[0] is E.NOT_COORDINATOR
        assert world.state(broker) == "NOT_COORDINATOR"
        assert world.add(P1, broker) is E.NOT_COORDINATOR
    # A partition that has to ask the coordinator responds with an error that every producer retries.
    assert world.produce(P1)[0] is E.NOT_ENOUGH_REPLICAS
    assert world.produce(P0)[0] is E.NONE, "the partition knows that the transaction is open"


# Rules A.4/4 and E.1/7.
def test_unavailable_group_coordinator_is_not_found_and_does_not_answer() -> None:
    world = open_world(V2)
    assert world.commit_offset(3) is E.NONE
    take_away(world, world.offsets_partition)
    for broker in BROKERS:
        assert world.found_coordinators(broker)[0] == (E.COORDINATOR_NOT_AVAILABLE, -1)
        assert world.commit_offset(4, broker) is E.NOT_COORDINATOR
        assert world.committed(broker)[0] is E.NOT_COORDINATOR


# Rule E.1/8.
def test_transactional_offsets_are_refused_without_the_transaction_coordinator() -> None:
    world = open_world(V2)
    take_away(world, world.state_partition)
    assert world.commit_offset(4) is E.COORDINATOR_NOT_AVAILABLE


def test_delayed_fetch_is_answered_when_the_leader_goes_offline() -> None:
    world = open_world(V2)
    client = world.clients[world.leader(P0)]
    client.post(waiting_fetch(P0), 11)
    assert client.take() is None
    take_away(world, P0)
    assert client.take().responses[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


# During the outage, and afterwards


# Rules A.13 sender/7 and H.1/7.
@protocols
@ends
def test_markers_wait_for_a_partition_without_a_leader(protocol: int, commit: bool, world: MovesWorld) -> None:
    world.write()
    owner = take_away(world, P0)
    assert world.end(commit=commit)[0] is E.NONE
    assert world.outcome(P1)[0]
    pass_ms(world, 60_000)
    assert world.state() == prepared(commit)
    assert take_metrics(world.cluster, world.cluster.now_ms).unknown_destination_queue_size == 1
    give_back(world, P0, owner)
    pass_ms(world, 100)
    assert world.state() == complete(commit)
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0 if commit else 1)] * 2
    assert len(world.markers(P0)) == 1


@protocols
@ends
def test_marker_for_offsets_waits_for_the_group_coordinator(protocol: int, commit: bool, world: MovesWorld) -> None:
    assert world.commit_offset(7) is E.NONE
    owner = take_away(world, world.offsets_partition)
    assert world.end(commit=commit)[0] is E.NONE
    pass_ms(world, 30_000)
    assert world.state() == prepared(commit)
    give_back(world, world.offsets_partition, owner)
    assert world.committed()[0] is E.UNSTABLE_OFFSET_COMMIT
    pass_ms(world, 100)
    assert world.committed() == (E.NONE, 7 if commit else -1)
    assert world.state() == complete(commit)


def test_move_ends_an_outage_whose_own_end_then_has_no_effect() -> None:
    world = open_world(V2)
    owner = take_away(world, P0)
    other = next(broker for broker in BROKERS if broker != owner)
    world.cluster.controller.move_leader(P0, other)
    leadership = world.cluster.metadata.leadership(P0)
    give_back(world, P0, owner)
    assert world.cluster.metadata.leadership(P0) == leadership
    world.cluster.controller.lose_leader(P0)
    world.cluster.controller.delete_topic(P0.topic)
    give_back(world, P0, owner)


# The embedded broker in tests


def test_first_of_two_outages_of_a_partition_applies() -> None:
    with EmbeddedBroker(listeners={}, brokers=2, config=FEW) as kafka:
        with kafka.without_coordinator(transactional_id="a"):
            with kafka.without_coordinator(transactional_id="b"):
                pass
            assert kafka.coordinator(transactional_id="b") == -1
        assert kafka.coordinator(transactional_id="b") > 0


def test_leader_offline_at_the_end_of_its_outage_leads_after_it_returns() -> None:
    with EmbeddedBroker(listeners={}, brokers=2, topics={"in": 2}) as kafka:
        with kafka.without_leader(("in", 1)):
            kafka.broker(2).stop()
            assert kafka.leader(("in", 1)) == -1
        assert kafka.leader(("in", 1)) == 1
        kafka.broker(2).start()
        assert kafka.leader(("in", 1)) == 2
        with kafka.without_leader(("in", 1)):
            kafka.broker(1).stop()
            kafka.broker(2).stop()
        assert kafka.leader(("in", 1)) == -1
        kafka.broker(1).start()
        assert kafka.leader(("in", 1)) == 1
        kafka.broker(2).start()
        assert kafka.leader(("in", 1)) == 2


def test_crash_of_all_brokers_ends_an_outage() -> None:
    with EmbeddedBroker(listeners={}, brokers=2, topics={"in": 2}) as kafka:
        with kafka.without_leader(("in", 1)) as outage:
            kafka.crash()
            outage.end()
            kafka.restart()
            assert kafka.leader(("in", 1)) > 0


def test_outage_of_an_unknown_partition_is_refused() -> None:
    with EmbeddedBroker(listeners={}) as kafka:
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            kafka.without_leader(("missing", 0))
        with pytest.raises(ValueError, match="name either"):
            kafka.without_coordinator()
