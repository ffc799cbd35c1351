"""A coordinator restores its state from its journal after a failover."""

import logging

import pytest

from broker_core.coordinator.groups.classic.requests import Heartbeat, LeaveGroup, LeaveResult
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.offsets.store import OffsetStore
from broker_core.coordinator.journal import JournalRecord
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import coordinator_partition
from tests.support.broker_core.group_world import GROUP, NONE, PRODUCER, SESSION_MS, T0, GroupWorld

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def answers_everywhere(world: GroupWorld) -> set[ErrorCode]:
    """Send each kind of request and return the set of error codes."""
    coordinator = world.coordinator
    return {
        world.join().now.error,
        world.sync("m", 1).now.error,
        world.heartbeat("m", 1),
        coordinator.leave_group(LeaveGroup(GROUP, ()), 0).error,
        world.commit(),
        world.txn_commit(),
        coordinator.fetch_offsets(GROUP, None).error,
        coordinator.describe(GROUP).error,
        coordinator.delete_groups([GROUP], 0)[GROUP],
        coordinator.delete_offsets(GROUP, [T0], 0).error,
    }


def test_members_get_a_full_session_after_failover(world: GroupWorld):
    member, silent = world.stable("a", "b")
    world.pass_ms(SESSION_MS - 1)
    world.fail_over()
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member, 2) is NONE
    assert silent in world.group().members
    world.pass_ms(1)
    assert list(world.group().members) == [member]


# Rule E.1/7.
def test_every_request_is_refused_where_the_partition_is_not_led(world: GroupWorld):
    world.stable("a")
    world.coordinator.resign(0)
    assert answers_everywhere(world) == {NOT_COORDINATOR}
    assert world.end(commit=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.coordinator.list_groups() == []


def test_zombie_coordinator_cannot_write_records(world: GroupWorld):
    world.commit(1)
    (member,) = world.stable("a")
    old = world.fail_over()
    world.coordinator, new = old, world.coordinator
    fields = {"generation_id": 1, "member_id": member}
    assert world.commit(2, **fields) is world.txn_commit(3, **fields) is NOT_COORDINATOR
    assert world.end(commit=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = world.join(member)
    world.sync(member, answer.now.generation_id)
    world.coordinator = new
    assert world.fetch() == 1
    assert world.shard().recorded[GROUP].generation_id == 1


# Rule E.1/7.
def test_unreadable_partition_is_loading_until_it_can_be_read(world: GroupWorld):
    world.stable("a")
    world.coordinator = world.instance()
    world.journal.unreadable = True
    with pytest.raises(KafkaError):
        world.lead()
    assert answers_everywhere(world) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    world.journal.unreadable = False
    world.lead()
    assert world.heartbeat("a-1", 1) is NONE


def test_second_election_with_the_same_epoch_changes_nothing(world: GroupWorld):
    (leader,) = world.stable("a")
    parked = world.join()
    world.coordinator.become_leader(0, world.journal.epochs[0], world.now_ms)
    assert parked.waits
    world.lead()
    assert parked.now.error is NOT_COORDINATOR
    assert world.heartbeat(leader, 1) is NONE


def test_groups_belong_to_the_partition_of_their_hash():
    world = GroupWorld(partition_count=50)
    assert world.coordinator.partition_for(GROUP) == coordinator_partition(GROUP, 50) == 49
    world.commit()
    world.coordinator.resign(48)
    assert world.fetch() == 42
    world.coordinator.resign(49)
    assert world.commit() is NOT_COORDINATOR
    assert world.coordinator.leave_group(LeaveGroup(GROUP, ()), 0) == LeaveResult(NOT_COORDINATOR)
    assert world.coordinator.heartbeat(Heartbeat("", "m", 1), 0) is ErrorCode.INVALID_GROUP_ID


def test_group_above_the_size_limit_rebalances_after_failover(world: GroupWorld):
    members = world.stable("a", "b", "c")
    world.config = world.config.override({"group.max.size": "2"})
    world.fail_over()
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(members[0], 2) is ErrorCode.REBALANCE_IN_PROGRESS
    answers = [world.join(member) for member in members]
    assert [answer.now.error for answer in answers] == [NONE, NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


# Rule B.3/6.
def test_records_of_other_protocols_are_left_alone(world: GroupWorld):
    others = [JournalRecord(bytes([0, key_type]) + b"whatever", b"x") for key_type in (9, 17, 23)]
    world.journal.append(0, world.journal.epochs[0], others, 0)
    world.commit()
    world.fail_over()
    assert world.fetch() == 42


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("value", b"\0\3\0"),
        ("value", b""),
        ("key", b"\1"),
        ("key", b"\0\1\0"),
        ("key", b"\0\5\0\1g"),
        ("value", b"\0\7"),
    ],
)
def test_partition_with_a_damaged_record_is_reported_and_not_coordinated(caplog, field, damage, world: GroupWorld):
    world.commit()
    sound = world.journal.partitions[0][0]
    world.journal.partitions[0][0] = sound._replace(**{field: damage})
    world.fail_over()
    assert answers_everywhere(world) == {NOT_COORDINATOR}
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "__consumer_offsets-0" in line
    assert "offset 0" in line
    assert "move the folder" in line
    world.journal.partitions[0][0] = sound
    world.fail_over()
    assert world.fetch() == 42


def test_record_that_fails_replay_is_reported_as_damage(monkeypatch, world: GroupWorld):
    world.commit()
    with monkeypatch.context() as patch:
        patch.setattr(OffsetStore, "commit", lambda *_: {}["bug"])
        world.fail_over()
    assert answers_everywhere(world) == {NOT_COORDINATOR}


# Rule B.3/6.
def test_unknown_key_types_are_logged_once_and_left_alone(caplog, world: GroupWorld):
    strange = [JournalRecord(b"\x7f\1" + bytes([number]), b"x") for number in range(3)]
    world.journal.append(0, world.journal.epochs[0], strange, 0)
    world.commit()
    world.fail_over()
    assert world.fetch() == 42
    assert len([record for record in caplog.records if "key type 32513" in record.getMessage()]) == 1


# Rule E.2/8.
def test_marker_found_at_load_takes_effect(world: GroupWorld):
    world.txn_commit(7)
    world.end(commit=True)
    world.txn_commit(8)
    world.end(commit=False)
    world.txn_commit(9)
    world.fail_over()
    assert world.fetch() == 7
    assert world.fetch(require_stable=True) == -ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end(commit=True, producer=PRODUCER)
    assert world.fetch(require_stable=True) == 9


@pytest.mark.parametrize("left_without_offsets", ["aborted", "deleted"])
def test_group_that_has_lost_its_offsets_exists_after_failover(world: GroupWorld, left_without_offsets: str):
    """As in Apache Kafka, whose replay of any offset makes the group, until it expires or is deleted."""
    if left_without_offsets == "aborted":
        assert world.txn_commit() is NONE
        world.end(commit=False)
    else:
        assert world.commit() is NONE
        assert world.coordinator.delete_offsets(GROUP, [T0], 0).error is NONE
    assert world.group().state is GroupState.EMPTY
    world.fail_over()
    assert world.coordinator.describe(GROUP).error is NONE
    assert world.coordinator.delete_groups([GROUP], 0)[GROUP] is NONE
    world.fail_over()
    assert world.coordinator.describe(GROUP).error is ErrorCode.GROUP_ID_NOT_FOUND
