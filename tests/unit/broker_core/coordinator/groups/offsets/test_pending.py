"""Offsets in a transaction wait for its marker (rules E.2, E.3)."""

from tests.support.broker_core.group_world import NONE, PRODUCER, GroupWorld


# Rule E.2/7.
def test_marker_without_pending_offsets_is_recorded_without_effect(world: GroupWorld):
    world.commit(1)
    assert world.end(commit=True) is NONE
    assert (world.fetch(), len(world.journal.partitions[0])) == (1, 2)


# Rule E.2/9.
def test_marker_of_a_newer_epoch_ends_offsets_of_an_older_one(world: GroupWorld):
    world.txn_commit(2)
    world.end(commit=False, producer=PRODUCER._replace(producer_epoch=PRODUCER.producer_epoch + 1))
    assert world.fetch(require_stable=True) == -1
