"""Moves of partition leaders and group coordinators inside a transaction, and moves that are refused."""

from broker_core.errors import ErrorCode
from tests.support.broker_core.moves_world import PARTITIONS, complete, ends, open_world, protocols

E = ErrorCode
P0, P1 = PARTITIONS


@protocols
@ends
def test_leader_move_inside_a_transaction_keeps_the_producer_state(protocol: int, commit: bool) -> None:
    world = open_world(protocol)
    world.write()
    old, new = world.move(P0)
    assert world.produce(P0, old)[0] is E.NOT_LEADER_OR_FOLLOWER
    assert world.produce(P0, new) == (E.NONE, 1)
    assert world.produce(P0, new, sequence=0) == (E.NONE, 0), "a repeated batch returns its first offset"
    assert world.produce(P0, new, sequence=7)[0] is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.end(commit=commit)[0] is E.NONE
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0 if commit else 1)] * 2
    assert len(world.markers(P0)) == 1


@protocols
@ends
def test_group_coordinator_move_inside_a_transaction_keeps_pending_offsets(protocol: int, commit: bool) -> None:
    world = open_world(protocol)
    assert world.commit_offset(7) is E.NONE
    world.move(world.offsets_partition)
    assert world.committed()[0] is E.UNSTABLE_OFFSET_COMMIT
    assert world.end(commit=commit)[0] is E.NONE
    assert world.committed() == (E.NONE, 7 if commit else -1)
    world.move(world.offsets_partition)
    assert world.committed() == (E.NONE, 7 if commit else -1)


@protocols
def test_all_leaders_may_move_between_any_two_steps(protocol: int) -> None:
    world = open_world(protocol, brokers=3)
    movable = (world.state_partition, world.offsets_partition, P0, P1)

    def move_all() -> None:
        for topic_partition in movable:
            world.move(topic_partition)

    for number in range(5):
        commit = number % 2 == 0
        move_all()
        world.write(P0)
        move_all()
        assert world.commit_offset(number) is E.NONE
        move_all()
        world.write(P1)
        move_all()
        error, following = world.end(commit=commit)
        assert error is E.NONE
        move_all()
        assert world.state() == complete(commit)
        world.go_on_as(following)
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 2)] * 2
    assert world.committed() == (E.NONE, 4)
