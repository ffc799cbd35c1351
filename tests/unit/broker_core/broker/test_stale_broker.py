"""A broker that is cut off from the others gives outdated responses and changes nothing."""

import pytest

from broker_core.broker.endpoints import Address
from broker_core.broker.stale_broker import cut_off, rejoin
from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.moves_world import (
    GROUP,
    PARTITIONS,
    V2,
    MovesWorld,
    finish_one_more,
    holding_markers,
    open_world,
    protocols,
    waiting_fetch,
)
from tests.support.broker_core.requests import plain_commit, produced, transactional
from tests.support.messages import SAFE, creation, filled, levels_request

E = ErrorCode
P0, P1 = PARTITIONS
STALE, OTHER = 2, 1


def stale_world(protocol: int, **options: int) -> MovesWorld:
    """Return a world in which one broker leads all partitions, coordinates everything, and has assigned an identity."""
    world = open_world(protocol, **options)
    for topic_partition in (P0, P1, world.state_partition, world.offsets_partition):
        world.cluster.controller.move_leader(topic_partition, STALE)
    world.cluster.settle(world.cluster.now_ms)
    return world


def cut(world: MovesWorld) -> None:
    addresses: dict[int, Address] = dict(world.cluster.controller.addresses)
    cut_off(world.cluster, STALE, {"PLAINTEXT": addresses}, MemoryStorage())


def part(world: MovesWorld) -> None:
    cut(world)
    world.cluster.settle(world.cluster.now_ms)


def join(world: MovesWorld) -> None:
    rejoin(world.cluster, STALE)
    world.cluster.settle(world.cluster.now_ms)


# Reads


def test_stale_broker_keeps_its_roles_while_others_name_another_broker() -> None:
    world = stale_world(V2)
    epoch = world.cluster.metadata.leadership(P0).leader_epoch
    part(world)
    assert world.found_coordinators(STALE) == [(E.NONE, STALE)] * 2
    assert world.found_coordinators(OTHER) == [(E.NONE, OTHER)] * 2
    assert world.described_leader(P0, STALE) == (E.NONE, STALE, epoch)
    assert world.described_leader(P0, OTHER) == (E.NONE, OTHER, epoch + 1)
    listed = {
        broker: {each.node_id for each in client.ask(m.MetadataRequest(topics=[]), 9).brokers}
        for broker, client in world.clients.items()
    }
    assert listed == {STALE: {STALE, OTHER}, OTHER: {OTHER}}


def test_stale_broker_describes_its_own_listeners() -> None:
    world = stale_world(V2)
    wanted = [m.DescribeConfigsRequest.DescribeConfigsResource(4, str(STALE), ["advertised.listeners"])]
    request = filled(m.DescribeConfigsRequest, resources=wanted)
    [before] = world.clients[STALE].ask(request, 4).results
    part(world)
    [now] = world.clients[STALE].ask(request, 4).results
    assert now.error_code == E.NONE
    assert [each.value for each in now.configs] == [each.value for each in before.configs] != []


def test_stale_broker_returns_the_old_offsets_of_a_group() -> None:
    world = stale_world(V2)
    assert world.commit_offset(3) is E.NONE
    assert world.end(commit=True)[0] is E.NONE
    part(world)
    assert world.init() is E.NONE
    assert world.commit_offset(4) is E.NONE
    assert world.end(commit=True)[0] is E.NONE
    assert world.committed(OTHER) == (E.NONE, 4)
    assert world.committed(STALE) == (E.NONE, 3)
    join(world)
    assert world.committed() == (E.NONE, 4)
    assert world.leader(world.offsets_partition) == STALE


def test_stale_broker_describes_the_old_state_of_a_transaction() -> None:
    world = stale_world(V2)
    world.write(P0)
    error, following = world.end(commit=True)
    assert error is E.NONE
    world.go_on_as(following)
    part(world)
    world.write(P0)
    assert (world.state(OTHER), world.state(STALE)) == ("Ongoing", "CompleteCommit")
    listed = {broker: [state for _, state in session.list().values()] for broker, session in world.sessions.items()}
    assert listed == {STALE: ["CompleteCommit"], OTHER: ["Ongoing"]}
    join(world)
    assert world.state() == "Ongoing"
    world.write(P1)
    assert world.end(commit=True)[0] is E.NONE


@protocols
def test_stale_broker_log_ends_where_it_was_isolated(protocol: int) -> None:
    world = stale_world(protocol)
    world.write(P0)
    part(world)
    assert world.produce(P0, OTHER) == (E.NONE, 1)
    assert world.end(commit=True)[0] is E.NONE
    assert [world.described_end(P0, broker) for broker in (STALE, OTHER)] == [(E.NONE, 0), (E.NONE, 3)]
    assert [world.described_end(P0, broker, 0) for broker in (STALE, OTHER)] == [(E.NONE, 1), (E.NONE, 3)]
    then, now = (world.fetched(P0, 1, broker) for broker in (STALE, OTHER))
    assert (then.last_stable_offset, then.high_watermark, then.error_code) == (0, 1, E.NONE)
    assert (now.last_stable_offset, now.high_watermark, now.error_code) == (3, 3, E.NONE)
    assert not then.records
    assert bytes(now.records).startswith(bytes(world.fetched(P0, 0, STALE).records))
    assert (world.described_open(P0, STALE), world.described_open(P0, OTHER)) == ([0], [])
    join(world)
    assert world.fetched(P0, 1, STALE).high_watermark == 3


def test_transaction_prepared_on_a_stale_broker_stays_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    world = stale_world(V2)
    world.write()
    with monkeypatch.context() as patch:
        holding_markers(patch)
        assert world.end(commit=True)[0] is E.NONE
    part(world)
    world.cluster.advance(world.cluster.now_ms + 1_000)
    assert (world.state(STALE), world.state(OTHER)) == ("PrepareCommit", "CompleteCommit")
    assert world.outcome(P0)[0]


def test_batch_that_waits_for_its_transaction_is_refused_after_the_cut() -> None:
    world = stale_world(V2)
    assert world.init() is E.NONE
    # It runs when the coordinator's record is durable, before the batch is appended.
    world.cluster.brokers[STALE].sync_queue.put(lambda _now_ms: cut(world))
    answer = produced(world.clients[STALE], transactional(world.identity), transactional_id="id", version=12)
    assert answer.error_code == E.REQUEST_TIMED_OUT


def test_delayed_fetch_on_a_stale_broker_sees_no_new_records() -> None:
    world = stale_world(V2)
    client = world.clients[STALE]
    client.post(waiting_fetch(P0), 11)
    part(world)
    world.write(P0)
    assert world.end(commit=True)[0] is E.NONE
    assert client.take() is None
    world.cluster.advance(world.cluster.now_ms + 60_000)
    [answer] = client.take().responses[0].partitions
    assert (answer.error_code, answer.high_watermark) == (E.NONE, 0)


# Writes


@protocols
def test_stale_broker_completes_nothing_that_needs_a_replica(protocol: int) -> None:
    world = stale_world(protocol)
    world.write(P0)
    assert world.commit_offset(3) is E.NONE
    part(world)
    end = world.described_end(P0, OTHER, 0)
    assert world.produce(P0, STALE)[0] is E.REQUEST_TIMED_OUT
    # Under V1 the coordinator, which is the same broker, can report that the partition was not added.
    assert world.produce(P1, STALE)[0] is (E.NOT_ENOUGH_REPLICAS if protocol == V2 else E.TRANSACTION_ABORTABLE)
    assert world.add(P1, STALE) is E.COORDINATOR_NOT_AVAILABLE
    assert world.end(commit=True, broker=STALE)[0] is E.COORDINATOR_NOT_AVAILABLE
    identity = world.identity
    assert world.init(STALE) is E.COORDINATOR_NOT_AVAILABLE
    assert (world.state(STALE), world.state(OTHER), world.identity) == ("Ongoing", "Ongoing", identity)
    assert world.described_end(P0, OTHER, 0) == end
    commit = plain_commit(9, group=GROUP, topics=[P0.topic], partition=1)
    answer = world.clients[STALE].ask(commit, 7)
    assert answer.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    join(world)
    assert world.end(commit=True)[0] is E.NONE
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0)] * 2
    assert world.committed() == (E.NONE, 3)


def test_stale_broker_refuses_transactional_offsets() -> None:
    world = stale_world(V2)
    part(world)
    assert world.commit_offset(3, STALE) is E.COORDINATOR_NOT_AVAILABLE
    assert world.committed(OTHER) == (E.NONE, -1)


def test_stale_leader_reports_an_unreachable_coordinator() -> None:
    world = open_world(V2)
    world.cluster.controller.move_leader(world.state_partition, OTHER)
    for topic_partition in (P0, world.offsets_partition):
        world.cluster.controller.move_leader(topic_partition, STALE)
    part(world)
    assert world.produce(P0, STALE)[0] is E.NOT_ENOUGH_REPLICAS
    assert world.commit_offset(3, STALE) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.state(STALE) == "NOT_COORDINATOR"


def test_stale_broker_does_not_know_later_metadata() -> None:
    world = stale_world(V2)
    part(world)
    world.cluster.controller.create_topic("new", 1)
    assert world.described_leader(TopicPartition("new", 0), OTHER)[0] is E.NONE
    answer = world.clients[STALE].ask(creation("newer"), 5)
    assert answer.topics[0].error_code == E.REQUEST_TIMED_OUT
    assert "newer" not in world.cluster.metadata.topics
    refused = world.clients[STALE].ask(levels_request(("transaction.version", 1, SAFE)), 2)
    assert refused.error_code == E.REQUEST_TIMED_OUT
    assert world.cluster.metadata.transaction_version == V2


def test_reader_with_a_newer_leader_epoch_gets_unknown_leader_epoch() -> None:
    world = stale_world(V2)
    part(world)
    _, leader, epoch = world.described_leader(P0, OTHER)
    assert leader == OTHER
    request = waiting_fetch(P0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    [answer] = world.clients[STALE].ask(request, 11).responses[0].partitions
    assert answer.error_code == E.UNKNOWN_LEADER_EPOCH


@protocols
def test_transaction_runs_on_other_brokers_and_continues_when_the_stale_one_returns(protocol: int) -> None:
    world = stale_world(protocol)
    part(world)
    finish_one_more(world)
    join(world)
    finish_one_more(world)
    assert world.coordinator == STALE
