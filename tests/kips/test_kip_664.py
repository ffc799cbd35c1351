"""KIP-664, Provide tooling to detect and abort hanging transactions."""

import pytest

from broker_core.errors import ErrorCode
from tests.support.broker_core.kip_world import NONE, START_MS, STATE_PARTITION, TOPIC, Session, World, batch
from tests.support.protocols import bumped
from tests.support.raw_session import Identity

COMMITTED = 1


# DescribeProducers


def test_idempotent_producers_are_described(world: World):
    """DescribeProducers: idempotent producers are listed too, without a transaction and without a coordinator."""
    session = world.session(None)
    identity = session.init()[1]
    session.produce(TOPIC, batch(identity, 0, (b"a", b"b"), transactional=False), version=9)
    [known] = session.producers(TOPIC).active_producers
    assert Identity(known.producer_id, known.producer_epoch) == identity
    assert (known.last_sequence, known.last_timestamp) == (1, START_MS)
    assert (known.coordinator_epoch, known.current_txn_start_offset) == (-1, -1)


# ListTransactions


def test_each_broker_lists_its_own_transactions():
    """ListTransactions: the tool queries every broker, and each one lists the transactions that it coordinates."""
    world = World(brokers=2)
    coordinator = world.cluster.metadata.leadership(STATE_PARTITION).leader
    world.session(broker_id=coordinator).init()
    assert set(world.session(broker_id=coordinator).list()) == {"id"}
    assert world.session(broker_id=3 - coordinator).list() == {}


# Recovery


# Rules A.13 receiver/6 and F.5/1.
def test_hanging_transaction_is_aborted_by_an_ordinary_marker(session: Session):
    """Recovery: the administrator's marker ends the transaction on one partition and advances the last stable offset.

    The text has a WriteTxnMarkers with the start offset; Kafka uses the ordinary marker, with identity and coordinator
    epoch taken from DescribeProducers.
    """
    session.write(session.init()[1])
    [hanging] = session.producers(TOPIC).active_producers
    assert (hanging.current_txn_start_offset, session.stable()) == (0, 0)
    identity = Identity(hanging.producer_id, hanging.producer_epoch)
    assert (
        session.write_marker(TOPIC, identity, commit=False, coordinator_epoch=max(hanging.coordinator_epoch, 0)) == NONE
    )
    assert session.stable() == 2
    aborted = session.fetch(TOPIC, 0, isolation=COMMITTED).aborted_transactions
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(identity.producer_id, 0)]


# Rule F.5/3.
@pytest.mark.parametrize("commit", [True, False])
def test_client_may_end_a_transaction_already_aborted_on_a_partition(session: Session, commit: bool):
    """Recovery: the coordinator's own marker comes later, finds no open transaction and is written nevertheless."""
    identity = session.init()[1]
    session.write(identity)
    assert session.write_marker(TOPIC, identity, commit=False, coordinator_epoch=0) == NONE
    assert session.end(identity, commit=commit, version=5) == (NONE, bumped(identity))
    assert session.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert session.stable() == 3


# Rule F.5/2.
def test_late_abort_does_not_affect_a_newer_transaction(session: Session, identity: Identity):
    """Recovery: an abort of a transaction that has ended meanwhile is refused, because its epoch is outdated."""
    session.write(identity)
    session.end(identity, commit=True, version=5)
    session.write(bumped(identity))
    assert session.write_marker(TOPIC, identity, commit=False, coordinator_epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert session.describe().transaction_state == "Ongoing"


def test_marker_for_an_unknown_producer_is_written(session: Session):
    """Recovery: a partition accepts a marker of an unknown producer, which then fences later batches."""
    stranger = Identity(session.init()[1].producer_id, 5)
    assert session.write_marker(TOPIC, stranger, commit=False, coordinator_epoch=3) == NONE
    [known] = session.producers(TOPIC).active_producers
    assert (known.producer_epoch, known.coordinator_epoch, known.last_sequence) == (5, 3, -1)
