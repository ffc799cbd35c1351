"""Offsets in a transaction wait for its marker (rules E.2, E.3)."""

from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, OTHER_PRODUCER, PRODUCER, T0, T1, GroupWorld

UNSTABLE = -ErrorCode.UNSTABLE_OFFSET_COMMIT


# Rules E.2/1, E.3/1 and E.3/2.
def test_a_pending_offset_is_not_seen_and_makes_its_partition_unstable():
    world = GroupWorld()
    world.commit(1, T0)
    world.commit(1, T1)
    world.txn_commit(2, T0)
    assert (world.fetch(T0), world.fetch(T0, require_stable=True)) == (1, UNSTABLE)
    assert world.fetch(T1, require_stable=True) == 1


# Rules E.2/1, E.2/2 and E.1/19.
def test_a_commit_marker_puts_the_last_pending_offset_in_force():
    world = GroupWorld()
    world.commit(1)
    world.txn_commit(2)
    world.txn_commit(3)
    assert world.end(commit=True) is NONE
    assert world.fetch(require_stable=True) == 3


# Rule E.2/3.
def test_an_abort_marker_drops_what_was_pending():
    world = GroupWorld()
    world.commit(1)
    world.txn_commit(2)
    assert world.end(commit=False) is NONE
    assert world.fetch(require_stable=True) == 1


# Rules E.2/2 and E.2/5.
def test_a_plain_commit_recorded_later_wins_over_the_transaction():
    world = GroupWorld()
    world.txn_commit(2)
    world.commit(1)
    assert world.fetch() == 1
    world.end(commit=True)
    assert world.fetch(require_stable=True) == 1


# Rule E.2/5.
def test_a_plain_commit_recorded_earlier_loses_to_the_transaction():
    world = GroupWorld()
    world.txn_commit(9)
    world.commit(1)
    world.txn_commit(2)
    world.end(commit=True)
    assert world.fetch() == 2


# Rule E.2/2.
def test_between_two_transactions_the_later_record_wins_not_the_later_marker():
    world = GroupWorld()
    world.txn_commit(1, producer=PRODUCER)
    world.txn_commit(2, producer=OTHER_PRODUCER)
    world.end(commit=True, producer=OTHER_PRODUCER)
    assert world.fetch(require_stable=True) == UNSTABLE
    world.end(commit=True, producer=PRODUCER)
    assert world.fetch(require_stable=True) == 2


def test_a_marker_touches_its_own_producers_offsets_only():
    world = GroupWorld()
    world.txn_commit(1, T0, producer=PRODUCER)
    world.txn_commit(2, T1, producer=OTHER_PRODUCER)
    world.end(commit=True)
    assert (world.fetch(T0), world.fetch(T1)) == (1, -1)
    assert world.fetch(T1, require_stable=True) == UNSTABLE


# Rule E.2/7.
def test_a_marker_with_nothing_pending_is_recorded_and_does_nothing():
    world = GroupWorld()
    world.commit(1)
    assert world.end(commit=True) is NONE
    assert (world.fetch(), len(world.journal.partitions[0])) == (1, 2)


def test_a_marker_ends_the_transaction_in_all_groups_of_the_partition():
    world = GroupWorld()
    for group_id in (GROUP, "other"):
        world.txn_commit(5, group_id=group_id)
    world.end(commit=True)
    for group_id in (GROUP, "other"):
        assert world.coordinator.fetch_offsets(group_id, [T0], require_stable=True).offsets[T0].offset == 5


# Rule E.2/9.
def test_a_marker_of_a_newer_epoch_ends_what_the_older_one_left():
    world = GroupWorld()
    world.txn_commit(2)
    world.end(commit=False, producer=PRODUCER._replace(producer_epoch=PRODUCER.producer_epoch + 1))
    assert world.fetch(require_stable=True) == -1
