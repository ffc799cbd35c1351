"""The feature level changes during open transactions, and V1 and V2 clients share a broker (rules A.15).

The versions of a client's requests determine the protocol at every level. The level determines the finalized features
in responses, the version of the state records, and how the broker aborts a transaction itself.
"""

from itertools import permutations

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from tests.support.broker_core.moves_world import CLASSIC, PARTITIONS, V2, MovesWorld, ends, holding_markers, protocols

E = ErrorCode
changes = pytest.mark.parametrize(("level", "later"), list(permutations((0, 1, 2), 2)))


def begun(protocol: int, level: int) -> MovesWorld:
    world = MovesWorld(protocol=protocol, level=level)
    assert world.init() is E.NONE
    world.write()
    return world


def ends_well(world: MovesWorld, *, commit: bool, aborted: int) -> None:
    """End the open transaction at its current coordinator and run one more with the other protocol."""
    before = world.identity
    error, following = world.end(commit=commit)
    assert error is E.NONE
    bumped = ProducerIdentity(before.producer_id, before.producer_epoch + 1)
    assert following == (bumped if world.protocol == V2 else ProducerIdentity(-1, -1))
    world.go_on_as(following)
    assert [world.outcome(one) for one in PARTITIONS] == [(True, aborted)] * 2
    world.protocol = CLASSIC if world.protocol == V2 else V2
    world.write()
    assert world.end(commit=True)[0] is E.NONE
    assert [world.outcome(one) for one in PARTITIONS] == [(True, aborted)] * 2


@protocols
@changes
@ends
def test_transaction_open_during_a_level_change_ends_in_its_client_version(
    protocol: int, level: int, later: int, commit: bool
) -> None:
    world = begun(protocol, level)
    world.set_level(later)
    world.write()
    # The new coordinator reads records written at both levels.
    world.move(world.state_partition)
    ends_well(world, commit=commit, aborted=0 if commit else 1)


# Rule A.15/6.
@protocols
@changes
@ends
def test_transaction_prepared_during_a_level_change_completes_as_prepared(
    protocol: int, level: int, later: int, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = begun(protocol, level)
    before = world.identity
    with monkeypatch.context() as patch:
        held = holding_markers(patch)
        error, following = world.end(commit=commit)
        world.set_level(later)
        world.move(world.state_partition)
    assert error is E.NONE
    version, bump = (2, 1) if protocol == V2 else (0, 0)
    assert [(order.end.producer.producer_epoch, order.end.transaction_version) for order in held] == [
        (before.producer_epoch + bump, version)
    ] * 2
    world.move(world.state_partition)
    assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert world.end(commit=commit) == (E.NONE, following)
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0 if commit else 1)] * 2
    world.go_on_as(following)
    world.write()
    ends_well(world, commit=True, aborted=0 if commit else 1)


# Rules A.15/4 and A.15/8.
@protocols
@changes
def test_timeout_abort_uses_the_current_feature_level(protocol: int, level: int, later: int) -> None:
    world = begun(protocol, level)
    world.set_level(later)
    world.cluster.advance(world.cluster.now_ms + 70_000)
    assert world.state() == "CompleteAbort"
    image = world.cluster.brokers[world.coordinator].transactions.images()[world.transactional_id]
    assert image.producer_epoch == world.identity.producer_epoch + 1
    assert image.client_transaction_version == (2 if later == 2 else 0)
    assert [marker.producer_epoch for one in PARTITIONS for marker in world.markers(one)] == [1, 1]
    assert world.produce(PARTITIONS[0])[0] is E.INVALID_PRODUCER_EPOCH
    survives = later == 2 and protocol == V2
    assert world.end(commit=False)[0] is (E.NONE if survives else E.PRODUCER_FENCED)
    assert world.end(commit=True)[0] is (E.INVALID_TXN_STATE if survives else E.PRODUCER_FENCED)


@pytest.mark.parametrize("later", [0, 1])
def test_epoch_overflow_in_progress_survives_a_downgrade(later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = MovesWorld()
    assert world.init() is E.NONE
    world.rewrite(producer_epoch=32766)
    world.write()
    with monkeypatch.context() as patch:
        holding_markers(patch)
        error, following = world.end(commit=True)
        assert (error, following.producer_epoch) == (E.NONE, 0)
        world.set_level(later)
        world.move(world.state_partition)
    world.move(world.state_partition)
    assert world.end(commit=True) == (E.NONE, following)
    world.go_on_as(following)
    world.write()
    ends_well(world, commit=True, aborted=0)


@protocols
def test_producer_of_the_other_version_fences_the_previous_one(protocol: int) -> None:
    zombie = MovesWorld(protocol=protocol, brokers=1)
    assert zombie.init() is E.NONE
    zombie.write()
    heir = MovesWorld(protocol=CLASSIC if protocol == V2 else V2, beside=zombie)
    assert heir.init() is E.CONCURRENT_TRANSACTIONS
    assert heir.init() is E.NONE
    assert zombie.produce(PARTITIONS[0])[0] is E.INVALID_PRODUCER_EPOCH
    assert zombie.add(PARTITIONS[0]) is E.PRODUCER_FENCED
    for commit in (True, False):
        assert zombie.end(commit=commit)[0] is E.PRODUCER_FENCED
    heir.write()
    assert heir.end(commit=True)[0] is E.NONE
    assert [heir.outcome(one) for one in PARTITIONS] == [(True, 1)] * 2
