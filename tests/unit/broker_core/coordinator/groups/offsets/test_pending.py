"""Offsets in a transaction wait for its marker (rules E.2, E.3)."""

from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, OTHER_PRODUCER, PRODUCER, T0, T1, GroupWorld

UNSTABLE = -ErrorCode.UNSTABLE_OFFSET_COMMIT


# Rules E.2/1, E.2/2 and E.1/19.
def test_commit_marker_applies_the_last_pending_offset(world: GroupWorld):
    world.commit(1)
    world.txn_commit(2)
    world.txn_commit(3)
    assert world.end(commit=True) is NONE
    assert world.fetch(require_stable=True) == 3


# Rule E.2/5.
def test_plain_commit_recorded_earlier_is_overridden_by_the_transaction(world: GroupWorld):
    world.txn_commit(9)
    world.commit(1)
    world.txn_commit(2)
    world.end(commit=True)
    assert world.fetch() == 2


# Rule E.2/2.
def test_later_record_of_two_transactions_wins_regardless_of_marker_order(world: GroupWorld):
    world.txn_commit(1, producer=PRODUCER)
    world.txn_commit(2, producer=OTHER_PRODUCER)
    world.end(commit=True, producer=OTHER_PRODUCER)
    assert world.fetch(require_stable=True) == UNSTABLE
    world.end(commit=True, producer=PRODUCER)
    assert world.fetch(require_stable=True) == 2


def test_marker_affects_only_offsets_of_its_producer(world: GroupWorld):
    world.txn_commit(1, T0, producer=PRODUCER)
    world.txn_commit(2, T1, producer=OTHER_PRODUCER)
    world.end(commit=True)
    assert (world.fetch(T0), world.fetch(T1)) == (1, -1)
    assert world.fetch(T1, require_stable=True) == UNSTABLE


# Rule E.2/7.
def test_marker_without_pending_offsets_is_recorded_without_effect(world: GroupWorld):
    world.commit(1)
    assert world.end(commit=True) is NONE
    assert (world.fetch(), len(world.journal.partitions[0])) == (1, 2)


def test_marker_ends_the_transaction_in_all_groups_of_the_partition(world: GroupWorld):
    for group_id in (GROUP, "other"):
        world.txn_commit(5, group_id=group_id)
    world.end(commit=True)
    for group_id in (GROUP, "other"):
        assert world.coordinator.fetch_offsets(group_id, [T0], require_stable=True).offsets[T0].offset == 5


# Rule E.2/9.
def test_marker_of_a_newer_epoch_ends_offsets_of_an_older_one(world: GroupWorld):
    world.txn_commit(2)
    world.end(commit=False, producer=PRODUCER._replace(producer_epoch=PRODUCER.producer_epoch + 1))
    assert world.fetch(require_stable=True) == -1
