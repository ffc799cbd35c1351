"""KIP-890, Transactions Server-Side Defense: one epoch per transaction, implicit adds, verification of older clients.

Where Kafka differs from the text (versions, error codes, how a retry differs from a zombie), the test notes it.
"""

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.broker_core.kip_world import NONE, OTHER, TOPIC, Session, World, batch
from tests.support.broker_core.requests import produce
from tests.support.protocols import bumped
from tests.support.raw_session import Identity

NO_IDENTITY = Identity(-1, -1)
CLASSIC_PRODUCE, V2_PRODUCE = 11, 12


# Point 1 of the proposal: each transaction has its own epoch


# Rules A.8 V2/4 and J.4/4.
def test_late_end_txn_is_refused_after_the_transaction_ended(session: Session, identity: Identity):
    """Motivation, the delayed EndTxn: its epoch is over, so it does not end the next transaction."""
    session.write(identity)
    session.end(identity, commit=True, version=5)
    session.write(bumped(identity))
    for commit in (True, False):
        assert session.end(identity, commit=commit, version=5) == (ErrorCode.PRODUCER_FENCED, NO_IDENTITY)
    assert session.state() == "Ongoing"


# Point 2: the first write adds the partition


# Rules C.3 mode/2, E.1/8, E.5/2 and A.15/3.
def test_first_offset_commit_adds_the_offsets_partition(session: Session, identity: Identity):
    """Implicit add: from TxnOffsetCommit 5 on the group coordinator adds its partition, without AddOffsetsToTxn."""
    assert session.commit_in_transaction(identity, "group", TOPIC, 5, version=5) == NONE
    assert [(entry.topic, entry.partitions) for entry in session.describe().topics] == [(CONSUMER_OFFSETS_TOPIC, [0])]
    session.end(identity, commit=True, version=5)
    assert session.committed("group", TOPIC, require_stable=True) == (NONE, 5)


# Rule C.3 answer/3.
def test_early_batch_waits_for_the_previous_transaction(world: World, session: Session, identity: Identity):
    """Implicit add, race conditions: the broker retries for a moment and then returns the error to the client.

    In the text all retriable errors become NOT_ENOUGH_REPLICAS; from Produce 12 on CONCURRENT_TRANSACTIONS remains.
    """
    session.write(identity)
    world.hold_markers()
    session.end(identity, commit=True, version=5)
    connection = session.client.direct
    early = produce(batch(bumped(identity), 0), transactional_id="id", version=V2_PRODUCE, topic=OTHER)
    connection.post(*early)
    assert connection.take() is None
    world.pass_ms(100)
    answer = connection.take()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    connection.post(*early)
    world.release_markers()
    world.pass_ms(20)
    assert connection.take().responses[0].partition_responses[0].error_code == NONE


# Rules C.5/1 and C.10/2.
def test_transaction_begins_at_sequence_zero(session: Session, identity: Identity):
    """Return an error for a non-zero first sequence: without any state it shows that batches were lost.

    In the text the error is retriable; Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER and accepts a classic producer.
    """
    refused = session.produce(TOPIC, batch(identity, 3), version=V2_PRODUCE)[0]
    assert refused == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert session.produce(TOPIC, batch(identity, 0), version=V2_PRODUCE) == (NONE, 0)
    assert session.add(identity, OTHER) == {NONE}
    assert session.produce(OTHER, batch(identity, 3), version=CLASSIC_PRODUCE) == (NONE, 0)


# Rules C.3 ask/5, C.3 ask/7 and C.3 answer/4.
def test_refused_add_writes_nothing(session: Session, identity: Identity):
    """Implicit add, errors: the coordinator's error becomes the partition's; a fence becomes the code of Produce."""
    foreign = Identity(identity.producer_id + 1, 0)
    assert session.produce(TOPIC, batch(foreign, 0), version=12)[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert session.produce(TOPIC, batch(bumped(identity), 0), version=12)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert session.fetch(TOPIC, 0, isolation=0).high_watermark == 0


# Point 3: the transactions of older clients are verified


# Rules C.3 mode/2 and E.1/8.
@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_offsets_outside_their_transaction_are_refused(session: Session, version: int, error: ErrorCode):
    """Verify the transaction for older clients: the same for offsets."""
    identity = session.init()[1]
    assert session.commit_in_transaction(identity, "group", TOPIC, 5, version=version) == error
    assert session.add_offsets(identity, "group") == NONE
    assert session.commit_in_transaction(identity, "group", TOPIC, 5, version=version) == NONE


# Rules C.3 answer/2 and I.4/1.
def test_delayed_verification_is_safe_to_retry(world: World, session: Session, identity: Identity):
    """Verify the transaction for older clients: while the transaction ends, the error is NOT_ENOUGH_REPLICAS.

    Every client retries that one; CONCURRENT_TRANSACTIONS on Produce is fatal for some clients.
    """
    session.write(identity, version=CLASSIC_PRODUCE)
    world.hold_markers()
    session.end(identity, commit=True, version=4)
    for version in (10, CLASSIC_PRODUCE):
        assert session.produce(OTHER, batch(identity, 0), version=version)[0] == ErrorCode.NOT_ENOUGH_REPLICAS


# Rule C.3 mode/4.
def test_verification_can_be_disabled():
    """Public interfaces: `transaction.partition.verification.enable=false` restores the unverified writes."""
    session = World(settings={"transaction.partition.verification.enable": "false"}).session()
    identity = session.init()[1]
    assert session.produce(TOPIC, batch(identity, 0), version=10) == (NONE, 0)
    assert session.stable() == 0
