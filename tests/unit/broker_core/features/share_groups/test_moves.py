"""Leaders and coordinators of a share group move while records are acquired: each record still ends once.

Rules K.4 and K.6. All brokers share the logs, so a move changes which broker decides and not the data that it reads.
"""

import pytest

from broker_core.errors import ErrorCode
from tests.support.broker_core.share_moves_world import LOCK_MS, MEMBER, PLACE, ShareMovesWorld
from tests.support.share_session import ACCEPT, REJECT, RELEASE, Range

E = ErrorCode


@pytest.fixture
def world() -> ShareMovesWorld:
    return ShareMovesWorld().join()


# The leader of the partition


# Rule K.6/1.
def test_new_leader_delivers_what_was_acquired_again(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(0, 0, ACCEPT) is E.NONE
    assert world.acknowledge(1, 1, REJECT) is E.NONE
    assert world.acknowledge(3, 3, RELEASE) is E.NONE
    world.move(PLACE)
    # The release was recorded with its delivery count; acquisitions are not recorded, and count again from there.
    assert world.fetch().acquired == [Range(2, 2), Range(3, 3, 2), Range(4, 4)]


# Rule K.6/2.
@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT])
def test_late_acknowledgment_to_the_old_leader_is_refused(world: ShareMovesWorld, kind: int):
    assert world.fetch().acquired == [Range(0, 4)]
    old, _ = world.move(PLACE)
    assert world.acknowledge(0, 4, kind, broker=old) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(0, 4, ACCEPT) is E.NONE
    assert world.open_offsets() == []


# Rule K.6/2.
def test_acknowledgment_to_the_new_leader_needs_its_own_acquisition(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    world.move(PLACE)
    assert world.acknowledge(0, 4) is E.INVALID_SHARE_SESSION_EPOCH
    assert world.fetch("heir").acquired == [Range(0, 4)]
    assert world.fetch().acquired == []
    assert world.acknowledge(0, 4) is E.INVALID_RECORD_STATE
    assert world.acknowledge(0, 4, member="heir") is E.NONE


# Rule K.6/3.
def test_old_leader_names_the_new_one(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    old, new = world.move(PLACE)
    found = world.fetch(broker=old)
    assert (found.error, found.leader[0], found.endpoints) == (E.NOT_LEADER_OR_FOLLOWER, new, [new])
    assert found.leader[1] == world.cluster.metadata.leadership(PLACE).leader_epoch


# Rules K.4/7 and K.6/4.
def test_old_leader_that_has_not_learned_of_the_move_is_fenced(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    old, new = world.move(PLACE)
    # The new leader has read the state, and so fenced the earlier leader epoch.
    assert world.fetch().acquired == [Range(0, 4)]
    zombie = world.in_memory(old)
    assert zombie is not None
    assert zombie.leader_epoch < world.state().leader_epoch
    with pytest.raises(Exception, match="The leader epoch in the request is older") as refused:
        zombie.release_member(MEMBER)
    assert getattr(refused.value, "code", None) is E.NOT_LEADER_OR_FOLLOWER
    assert world.in_memory(new) is not None
    assert world.acknowledge(0, 4) is E.NONE


# Rules K.3/4 and K.6/1.
def test_delivery_count_limit_holds_over_moves_of_released_records():
    world = ShareMovesWorld(settings={"group.share.delivery.count.limit": "2"}).join()
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(0, 4, RELEASE) is E.NONE
    world.move(PLACE)
    assert world.fetch().acquired == [Range(0, 4, 2)]
    assert world.acknowledge(0, 4, RELEASE) is E.NONE
    world.move(PLACE)
    assert world.fetch().acquired == []
    assert world.open_offsets() == []


# Rule K.6/1.
def test_leader_that_returns_reads_the_state_again(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    world.move(PLACE)
    assert world.fetch("heir").acquired == [Range(0, 4)]
    assert world.acknowledge(0, 2, ACCEPT, member="heir") is E.NONE
    world.move(PLACE)
    assert world.acknowledge(0, 4, RELEASE) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.fetch().acquired == [Range(3, 4)]


# Rule K.6/1.
def test_lock_of_the_old_leader_does_not_end_at_the_new_one(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    world.pass_ms(LOCK_MS - 1)
    world.move(PLACE)
    assert world.fetch("heir").acquired == [Range(0, 4)]
    world.pass_ms(1)
    assert world.acknowledge(0, 4, member="heir") is E.NONE, "the lock of the old leader ended meanwhile"
    assert world.open_offsets() == []


# The share coordinator


# Rule K.6/5.
def test_share_coordinator_move_keeps_acquisitions_and_states(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(0, 1) is E.NONE
    before = world.state()
    world.move(world.state_place)
    assert world.state() == before
    assert world.acknowledge(2, 4) is E.NONE
    assert world.open_offsets() == []


# Rule K.6/6.
def test_acknowledgment_without_a_share_coordinator_is_undone(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    owner = world.leader(world.state_place)
    world.cluster.controller.lose_leader(world.state_place)
    world.settle()
    assert world.acknowledge(0, 4) is E.COORDINATOR_NOT_AVAILABLE
    world.cluster.controller.elect(world.state_place, owner)
    world.settle()
    assert world.acknowledge(0, 4) is E.NONE, "the member still has the records"
    assert world.open_offsets() == []


# Rule K.6/6.
def test_lock_ends_without_a_share_coordinator(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    owner = world.leader(world.state_place)
    world.cluster.controller.lose_leader(world.state_place)
    world.pass_ms(LOCK_MS)
    assert world.fetch("heir").acquired == [Range(0, 4, 2)]
    world.cluster.controller.elect(world.state_place, owner)
    world.settle()
    assert world.acknowledge(0, 4, member="heir") is E.NONE


# Rule K.6/6.
def test_new_leader_without_a_share_coordinator_gives_nothing(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    owner = world.leader(world.state_place)
    world.cluster.controller.lose_leader(world.state_place)
    world.move(PLACE)
    assert world.fetch().error is E.COORDINATOR_NOT_AVAILABLE
    world.cluster.controller.elect(world.state_place, owner)
    world.settle()
    assert world.fetch().acquired == [Range(0, 4)]


# The group coordinator


# Rule K.6/7.
def test_group_coordinator_move_keeps_members_and_acquisitions(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    old, new = world.move(world.group_place)
    assert world.heartbeat(broker=old).error_code == E.NOT_COORDINATOR
    answer = world.heartbeat(broker=new)
    assert (answer.error_code, answer.member_epoch) == (E.NONE, world.epochs[MEMBER])
    assert world.acknowledge(0, 4) is E.NONE


# Rule K.6/7.
def test_new_group_coordinator_gives_members_a_full_session(world: ShareMovesWorld):
    world.pass_ms(44_000)
    world.move(world.group_place)
    world.pass_ms(44_000)
    assert world.heartbeat().error_code == E.NONE
    world.pass_ms(45_000)
    assert world.heartbeat().error_code == E.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_right_after_another_is_assigned_at_once(world: ShareMovesWorld):
    assert world.heartbeat("second").assignment.topic_partitions
