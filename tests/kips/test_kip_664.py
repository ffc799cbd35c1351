"""KIP-664, Provide tooling to detect and abort hanging transactions."""

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TransactionState
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import NONE, OTHER, START_MS, STATE_PARTITION, TOPIC, Session, World, batch
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


def test_transactional_producer_is_described_during_and_after_its_transaction(session: Session, identity: Identity):
    """DescribeProducers: the first offset of an open transaction; after its end none, and the coordinator epoch."""
    session.write(identity, values=(b"a", b"b"))
    [known] = session.producers(TOPIC).active_producers
    assert (known.current_txn_start_offset, known.last_sequence, known.coordinator_epoch) == (0, 1, -1)
    session.end(identity, commit=True, version=5)
    [known] = session.producers(TOPIC).active_producers
    assert (known.current_txn_start_offset, known.last_sequence, known.coordinator_epoch) == (-1, -1, 0)
    # The epoch is an int32 here, as in the text; in DescribeTransactions it is an int16, against an int32 in the text.
    assert known.producer_epoch == bumped(identity).producer_epoch


# Rule F.1/3.
def test_unknown_partitions_have_no_producers(session: Session):
    """DescribeProducers: each partition has an error code of its own."""
    for topic, partition in (("nowhere", 0), (TOPIC, 9)):
        assert session.producers(topic, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Rule F.1/5.
def test_every_replica_describes_its_producers():
    """DescribeProducers: a request may go to any broker with the partition's log; here all brokers have it."""
    world = World(brokers=2)
    session = world.session(broker_id=world.cluster.metadata.leadership(STATE_PARTITION).leader)
    idempotent = world.session(None)
    idempotent.produce(TOPIC, batch(session.init()[1], 0, transactional=False), version=9)
    for broker_id in (1, 2):
        assert len(world.session(broker_id=broker_id).producers(TOPIC).active_producers) == 1


# DescribeTransactions


# Rule F.2/6.
def test_a_transaction_is_described(session: Session):
    """DescribeTransactions: identity, timeout, start, state and partitions.

    In the text the state is a number here and a name in ListTransactions; Kafka returns the name in both.
    """
    identity = session.init(timeout_ms=12_345)[1]
    session.write(identity)
    session.write(identity, OTHER, partition=1)
    found = session.describe()
    assert (found.error_code, found.transactional_id, found.transaction_state) == (
        NONE,
        session.transactional_id,
        "Ongoing",
    )
    assert Identity(found.producer_id, found.producer_epoch) == identity
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (12_345, START_MS)
    assert {entry.topic: entry.partitions for entry in found.topics} == {TOPIC: [0], OTHER: [1]}


# Rules F.2/2 and F.2/4.
def test_ids_are_described_independently(session: Session):
    """DescribeTransactions: each id has an error code of its own; unknown ids do not affect known ones."""
    session.init()
    known = session.transactional_id
    answer = session.client.send(m.DescribeTransactionsRequest(transactional_ids=[known, "unknown", ""]), 0)
    assert [(entry.transactional_id, entry.error_code) for entry in answer.transaction_states] == [
        (known, NONE),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]


# ListTransactions


def test_transactions_are_listed_by_state_and_producer(world: World):
    """ListTransactions: a transaction must match every filter, by any of the filter's values; no filter matches all."""
    one, other = world.session("one"), world.session("other")
    first, second = one.init()[1], other.init()[1]
    one.write(first)
    everything = {"one": (first.producer_id, "Ongoing"), "other": (second.producer_id, "Empty")}
    assert one.list() == everything
    assert one.list(states=["Ongoing", "Empty"]) == everything
    assert set(one.list(states=["Ongoing"])) == {"one"}
    assert set(one.list(producer_ids=[second.producer_id])) == {"other"}
    assert one.list(states=["Ongoing"], producer_ids=[second.producer_id]) == {}


# Rule F.3/2.
def test_unknown_states_are_reported(session: Session):
    """ListTransactions: unknown state names are returned; without a known name the list is empty."""
    mine = session.init()[1].producer_id
    answer = session.list_answer(states=["Sleeping", "empty", "Empty"], producer_ids=[mine])
    assert answer.unknown_state_filters == ["Sleeping", "empty"]
    assert [entry.producer_id for entry in answer.transaction_states] == [mine]
    assert session.list_answer(states=["Sleeping"]).transaction_states == []
    assert {state.label for state in TransactionState} >= {"Empty", "Ongoing", "Dead", "PrepareEpochFence"}


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


# Rules A.13 receiver/5, E.2/3 and F.5/4.
def test_marker_in_an_offsets_partition_ends_its_pending_offsets(session: Session, identity: Identity):
    """Recovery: in `__consumer_offsets` the group coordinator replays a marker, which releases pending offsets."""
    assert session.commit_in_transaction(identity, "group", TOPIC, 5, version=5) == NONE
    assert session.committed("group", TOPIC, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert session.write_marker("__consumer_offsets", identity, commit=False, coordinator_epoch=0) == NONE
    assert session.committed("group", TOPIC, require_stable=True) == (NONE, -1)
