"""Coordinator moves at every moment of a transaction: the transaction still has exactly one outcome.

Rules A.12 (load, failover, coordinator epochs), A.10 and A.11. All brokers share the logs, so a move changes which
broker decides and not the data that it reads.
"""

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition
from tests.support.broker_core.moves_world import (
    END,
    PARTITIONS,
    MovesWorld,
    complete,
    ends,
    finish_one_more,
    holding_markers,
    open_world,
    prepared,
    protocols,
)
from tests.support.broker_core.requests import end_request

E = ErrorCode
P0 = PARTITIONS[0]


@protocols
@ends
@pytest.mark.parametrize("written", [(), (P0,)], ids=["no marker written", "one of two markers written"])
def test_coordinator_move_while_prepared_writes_markers_under_the_new_epoch(
    protocol: int, commit: bool, written: tuple[TopicPartition, ...], monkeypatch: pytest.MonkeyPatch, world: MovesWorld
) -> None:
    world.write()
    with monkeypatch.context() as patch:
        holding_markers(patch, let_through=written)
        error, following = world.end(commit=commit)
    assert error is E.NONE
    assert world.state() == prepared(commit)
    assert [len(world.markers(one)) for one in PARTITIONS] == [len(written), 0]
    before = world.cluster.metadata.leadership(world.state_partition).leader_epoch
    old, _ = world.move(world.state_partition)
    assert world.state(old) == "NOT_COORDINATOR"
    assert world.state() == complete(commit)
    # As in Kafka, the new coordinator writes the existing marker again, because it does not know of it.
    assert [len(world.markers(one)) for one in PARTITIONS] == [1 + len(written), 1]
    assert [world.coordinator_epochs(one) for one in PARTITIONS] == [[before + 1]] * 2
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0 if commit else 1)] * 2
    # The move may have lost the response, so a retry returns the outcome instead of fencing the client.
    assert world.end(commit=commit) == (E.NONE, following)
    assert world.end(commit=not commit)[0] is E.INVALID_TXN_STATE
    world.go_on_as(following)
    finish_one_more(world, aborted_before=0 if commit else 1)


@protocols
@ends
def test_coordinator_move_between_decision_and_response_keeps_both(
    protocol: int, commit: bool, monkeypatch: pytest.MonkeyPatch, world: MovesWorld
) -> None:
    world.write()
    client = world.clients[world.coordinator]
    with monkeypatch.context() as patch:
        # The request is handled; nothing is synced, answered or sent to a partition yet.
        patch.setattr(world.cluster, "settle", lambda now_ms: None)
        client.post(end_request(world.identity, commit=commit), END[protocol])
        assert client.take() is None
    world.move(world.state_partition)
    answer = client.take()
    assert answer is not None
    assert answer.error_code == E.NONE
    assert world.state() == complete(commit)
    assert [len(world.markers(one)) for one in PARTITIONS] == [1, 1]
    assert [world.outcome(one) for one in PARTITIONS] == [(True, 0 if commit else 1)] * 2


@pytest.mark.parametrize("level", [1, 2])
def test_coordinator_move_while_fencing_bumps_the_epoch_once(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = open_world(level, level=level)
    world.write()
    first = world.identity
    # The old coordinator decides to fence, but its record is refused: only then does PREPARE_EPOCH_FENCE exist.
    old, new = world.move_leaving_a_zombie(world.state_partition, monkeypatch)
    assert world.init(old) is E.NOT_COORDINATOR
    assert world.state(new) == "Ongoing"
    assert world.init(new) is E.CONCURRENT_TRANSACTIONS
    assert world.state() == "CompleteAbort"
    assert world.end(commit=True)[0] in (E.PRODUCER_FENCED, E.INVALID_TXN_STATE)
    assert world.init() is E.NONE
    assert world.identity == ProducerIdentity(first.producer_id, first.producer_epoch + 2)
    finish_one_more(world, aborted_before=1)


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
