"""KIP-890, Transactions Server-Side Defense: one epoch per transaction, implicit adds, verification of older clients.

Where Kafka differs from the text (versions, error codes, how a retry differs from a zombie), the test notes it.
"""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.log.producer_state import SENTINEL
from broker_core.records.header import iter_headers
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tests.support.broker_core.kip_world import NONE, OTHER, TOPIC, Session, World, batch
from tests.support.broker_core.requests import produce
from tests.support.protocols import bumped
from tests.support.raw_session import Identity

UNCOMMITTED = 0
NO_IDENTITY = Identity(-1, -1)
both_ends = pytest.mark.parametrize("commit", [True, False])
CLASSIC_PRODUCE, V2_PRODUCE = 11, 12


def markers_of(session: Session) -> list[Any]:
    """Return the headers of the control batches of partition 0."""
    records = bytes(session.fetch(TOPIC, 0, isolation=UNCOMMITTED).records or b"")
    return [header for _, header in iter_headers(records) if header.is_control]


# Point 1 of the proposal: each transaction has its own epoch


# Rules A.9/2, A.15/2 and A.15/5.
@both_ends
def test_end_txn_returns_the_next_epoch(session: Session, commit: bool, identity: Identity):
    """Bump the epoch with each transaction: EndTxn returns the identity of the next one.

    In the text that is version 4; in Kafka it is version 5.
    """
    for number in range(3):
        session.write(bumped(identity, number))
        assert session.end(bumped(identity, number), commit=commit, version=5) == (NONE, bumped(identity, number + 1))
    assert [header.producer_epoch for header in markers_of(session)] == [1, 2, 3]


# Rules A.8 V1/6, A.15/2 and A.15/5.
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_older_end_txn_versions_keep_the_epoch(session: Session, version: int, identity: Identity):
    """Bump the epoch, compatibility: a client below version 5 keeps its epoch, on the same cluster."""
    for number in range(2):
        session.write(identity, sequence=number, version=CLASSIC_PRODUCE)
        assert session.end(identity, commit=True, version=version)[0] == NONE
    assert session.describe().producer_epoch == identity.producer_epoch
    assert [header.producer_epoch for header in markers_of(session)] == [0, 0]


# Rule C.1/25.
@both_ends
def test_late_batch_is_refused_after_the_transaction_ended(session: Session, commit: bool, identity: Identity):
    """Motivation, the delayed message: after the marker its epoch is stale, so it does not join a later transaction."""
    session.write(identity)
    session.end(identity, commit=commit, version=5)
    session.write(bumped(identity))
    for version in (CLASSIC_PRODUCE, V2_PRODUCE):
        late = session.produce(TOPIC, batch(identity, 1), version=version)[0]
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH


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


# Rules C.1/28, C.3 mode/1 and A.15/3.
def test_first_batch_begins_the_transaction(session: Session, identity: Identity):
    """Implicit add: from Produce 12 on the leader adds the partition; the client sends no AddPartitionsToTxn."""
    session.write(identity)
    session.write(identity, OTHER, partition=1)
    assert {entry.topic: entry.partitions for entry in session.describe().topics} == {TOPIC: [0], OTHER: [1]}


# Rule C.3 start/2.
def test_only_the_first_batch_is_verified_with_the_coordinator(world: World, session: Session, identity: Identity):
    """Implicit add, caching: while the transaction is open on the partition, the leader sends no further request."""
    session.write(identity)
    log = world.cluster.logs.get(TopicPartition(TOPIC, 0), world.cluster.now_ms)
    assert log.producer_state.start_verification(identity.producer_id, identity.producer_epoch, 1, True) == SENTINEL
    assert session.produce(TOPIC, batch(identity, 1), version=V2_PRODUCE) == (NONE, 1)


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
    assert session.fetch(TOPIC, 0, isolation=UNCOMMITTED).high_watermark == 0


# Point 3: the transactions of older clients are verified


# Rules C.1/8, C.3 mode/1 and C.3 ask/6.
@pytest.mark.parametrize(
    ("version", "error"),
    [(3, ErrorCode.INVALID_TXN_STATE), (10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_batch_outside_its_transaction_is_refused(session: Session, version: int, error: ErrorCode, identity: Identity):
    """Verify the transaction for older clients: a partition that was not added accepts no transactional batch.

    In the text the error is INVALID_TXN_STATE. In Kafka it is so up to Produce 10; from 11 on it is
    TRANSACTION_ABORTABLE, the text's ABORTABLE_ERROR. Only membership is checked.
    """
    session.add(identity, OTHER)
    assert session.produce(TOPIC, batch(identity, 0), version=version)[0] == error
    assert session.fetch(TOPIC, 0, isolation=UNCOMMITTED).high_watermark == 0
    session.write(identity, OTHER, version=version)


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


# Public interfaces


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_added_and_verified_in_batches(session: Session, version: int, identity: Identity):
    """Public interfaces, AddPartitionsToTxn 4: several transactions per request, to add or only to verify.

    Version 5, in the text and in Kafka, is for clients that know TRANSACTION_ABORTABLE.
    """
    assert session.add_batched(identity, verify_only=True, version=version) == [ErrorCode.TRANSACTION_ABORTABLE] * 2
    session.add(identity, TOPIC, 1)
    assert session.add_batched(identity, verify_only=True, version=version) == [ErrorCode.TRANSACTION_ABORTABLE, NONE]
    assert session.add_batched(identity, verify_only=False, version=version) == [NONE, NONE]
    assert session.add_batched(identity, verify_only=True, version=version) == [NONE, NONE]
    assert session.add_batched(bumped(identity), verify_only=True, version=version) == [ErrorCode.PRODUCER_FENCED] * 2
