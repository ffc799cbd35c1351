"""A coordinator that does not know of its replacement is fenced by epoch, in its journal and in its markers."""

import pytest

from broker_core.broker.marker_writer import append_marker
from broker_core.errors import ErrorCode
from tests.support.broker_core.moves_world import (
    PARTITIONS,
    MovesWorld,
    finish_one_more,
    holding_markers,
    open_world,
    protocols,
)

E = ErrorCode
P0, P1 = PARTITIONS


# Rule A.3/5.
@protocols
def test_zombie_coordinator_cannot_write_records(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = open_world(protocol)
    world.write(P0)
    zombie, new = world.move_leaving_a_zombie(world.state_partition, monkeypatch)
    journal = world.cluster.logs.get(world.state_partition, world.cluster.now_ms)
    end_offset = journal.log_end_offset
    assert world.state(zombie) == "Ongoing", "the zombie still considers itself the leader"
    assert world.add(P1, zombie) is E.NOT_COORDINATOR
    assert world.end(commit=False, broker=zombie)[0] is E.NOT_COORDINATOR
    assert world.init(zombie) is E.NOT_COORDINATOR
    world.cluster.brokers[zombie].transactions.advance(world.cluster.now_ms + 100_000)
    assert world.cluster.brokers[zombie].transactions.completion.take() == []
    assert journal.log_end_offset == end_offset
    assert world.end(commit=True, broker=new)[0] is E.NONE
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0)] * 2


@protocols
def test_markers_of_a_zombie_coordinator_are_refused_after_those_of_the_new_one(
    protocol: int, monkeypatch: pytest.MonkeyPatch, world: MovesWorld
) -> None:
    world.write()
    assert world.commit_offset(7) is E.NONE
    with monkeypatch.context() as patch:
        held = holding_markers(patch)
        assert world.end(commit=True)[0] is E.NONE
        zombie, _ = world.move_leaving_a_zombie(world.state_partition, monkeypatch)
    late = held[0]
    world.move(world.state_partition)
    world.move(world.state_partition)
    before = [len(world.markers(one)) for one in PARTITIONS]
    for topic_partition in late.partitions:
        leader = world.cluster.brokers[world.leader(topic_partition)]
        for commit in (True, False):
            code = append_marker(leader, topic_partition, late.end._replace(commit=commit), world.cluster.now_ms)
            assert code is E.TRANSACTION_COORDINATOR_FENCED, topic_partition
    assert {topic_partition.topic for topic_partition in late.partitions} == {"t", "__consumer_offsets"}
    assert [len(world.markers(one)) for one in PARTITIONS] == before
    assert world.committed() == (E.NONE, 7)
    # The zombie gives up after TRANSACTION_COORDINATOR_FENCED.
    coordinator = world.cluster.brokers[zombie].transactions
    coordinator.completion.answered(
        late, dict.fromkeys(late.partitions, E.TRANSACTION_COORDINATOR_FENCED), world.cluster.now_ms
    )
    coordinator.advance(world.cluster.now_ms + 1_000)
    assert coordinator.completion.take() == []
    assert world.state() == "CompleteCommit"


EXPIRY = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}


def test_coordinator_move_before_expiry_prevents_removal_by_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MovesWorld(settings=EXPIRY)
    assert world.init() is E.NONE
    world.cluster.advance(world.cluster.now_ms + 4_999)
    old, new = world.move_leaving_a_zombie(world.state_partition, monkeypatch)
    # The id was just used at the new coordinator; the old one does not know that.
    assert world.init() is E.NONE
    world.cluster.brokers[old].transactions.advance(world.cluster.now_ms + 1)
    assert world.state(new) == "Empty"
    world.move(world.state_partition)
    assert world.state() == "Empty", "the zombie's tombstone is in the log"
    finish_one_more(world)
