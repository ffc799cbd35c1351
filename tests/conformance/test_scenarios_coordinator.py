"""The scenarios of rules L.1 that the transaction coordinator decides, by single requests.

The numbers are those of the list. Scenarios 6, 18 and 20 need a restart and are in `test_scenarios_reload`.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.broker.journals import TopicJournal
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    admin,
    make_topic,
    make_transactional_producer,
    send,
    unique,
    values_soon,
)
from tests.support.protocols import (
    CLASSIC,
    COMMITTED,
    END,
    PRODUCE,
    V2,
    both_ends,
    both_protocols,
    bumped,
    leave_prepared,
    markers,
    wait_for_state,
    write,
)
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, RawSession, record_batch
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE
TIMEOUT_MS = 500


# Rules L.1/1 and A.1/1
def test_scenario_01_a_new_id_starts_at_epoch_0_and_the_next_init_bumps_it(session: RawSession):
    """InitProducerId on a new id returns epoch 0; each further call returns the next epoch."""
    error, first = session.init()
    assert (error, first.producer_epoch) == (NONE, 0)
    assert session.init() == (NONE, bumped(first))
    assert session.init() == (NONE, bumped(first, 2))


# Rule L.1/2
@both_protocols
def test_scenario_02_init_while_ongoing_aborts_and_answers_51(kafka: Kafka, session: RawSession, protocol: int):
    """InitProducerId while Ongoing returns CONCURRENT_TRANSACTIONS and fences; a later call returns epoch + 2.

    Transactions V2 count the same: one epoch for the fence, one for InitProducerId.
    """
    topic = make_topic(kafka)
    first = session.init()[1]
    write(session, first, topic, protocol)
    assert session.init()[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = wait_for_state(session, "CompleteAbort")
    assert (fenced.producer_id, fenced.producer_epoch) == bumped(first)
    assert session.init_until_done() == bumped(first, 2)
    assert session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 2
    values_soon(kafka, topic, [])


# Rule L.1/3
@both_ends
@pytest.mark.parametrize("version", [1, 3, 4])
def test_scenario_03_a_classic_end_may_be_repeated(kafka: Kafka, session: RawSession, commit: bool, version: int):
    """EndTxn up to version 4, sent twice: CONCURRENT_TRANSACTIONS until the markers are written, then no error.

    The opposite EndTxn gets INVALID_TXN_STATE.
    """
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, CLASSIC)
    assert session.end(identity, commit=commit, version=version) == (NONE, NOBODY)
    assert session.end_until_done(identity, commit=commit, version=version) == (NONE, NOBODY)
    assert session.end_until_done(identity, commit=not commit, version=version) == (ErrorCode.INVALID_TXN_STATE, NOBODY)
    values_soon(kafka, topic, [b"x"] if commit else [])


# Rules L.1/4, A.9/2, A.15/2 and A.15/5
@both_ends
def test_scenario_04_v2_end_repeated_with_the_old_epoch(kafka: Kafka, session: RawSession, commit: bool):
    """EndTxn 5 returns (P, E+1).

    The same request again, with E, gets CONCURRENT_TRANSACTIONS or (P, E+1), however often.
    """
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    assert session.end(identity, commit=commit, version=5) == (NONE, bumped(identity))
    for _ in range(2):
        assert session.end_until_done(identity, commit=commit, version=5) == (NONE, bumped(identity))
    assert session.end_until_done(identity, commit=not commit, version=5)[0] == ErrorCode.INVALID_TXN_STATE
    write(session, bumped(identity), topic, V2)
    assert session.end(bumped(identity), commit=True, version=5) == (NONE, bumped(identity, 2))
    values_soon(kafka, topic, [b"x", b"x"] if commit else [b"x"])


# Rule L.1/5
def test_scenario_05_v2_end_of_a_transaction_that_never_began(session: RawSession):
    """EndTxn 5 on Empty: commit returns INVALID_TXN_STATE, abort raises the epoch.

    The abort writes no marker and sets a start time. The client cannot know whether any of its requests arrived, so
    aborting nothing must succeed.
    """
    identity = session.init()[1]
    assert session.end(identity, commit=True, version=5) == (ErrorCode.INVALID_TXN_STATE, NOBODY)
    assert session.describe().transaction_start_time_ms == -1
    assert session.end(identity, commit=False, version=5) == (NONE, bumped(identity))
    aborted = wait_for_state(session, "CompleteAbort")
    assert aborted.transaction_start_time_ms > 0
    assert aborted.topics == []
    assert session.end_until_done(bumped(identity), commit=False, version=5) == (NONE, bumped(identity, 2))


# Rule L.1/7
@both_protocols
@both_ends
def test_scenario_07_add_partitions_while_prepared_is_refused(
    kafka: Kafka, session: RawSession, protocol: int, commit: bool
):
    """While prepared, AddPartitionsToTxn, AddOffsetsToTxn and InitProducerId return CONCURRENT_TRANSACTIONS."""
    stuck = leave_prepared(session, make_topic(kafka), make_topic(kafka), protocol, commit=commit)
    for identity in (stuck.identity, bumped(stuck.identity)):
        assert session.add(identity, stuck.open) == {ErrorCode.CONCURRENT_TRANSACTIONS}
        assert session.add_offsets(identity, unique("group")) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert session.add(stuck.identity, stuck.open, version=0) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert session.init()[0] == ErrorCode.CONCURRENT_TRANSACTIONS


# Rule L.1/19
@both_protocols
def test_scenario_19_timeout_aborts_no_sooner_than_configured(kafka: Kafka, session: RawSession, protocol: int):
    """The coordinator aborts a transaction after its timeout, at the next scan, and fences its producer.

    With the defaults, a timeout of 60 s and a scan every 10 s, that is between 60 and 70 s plus the time of the
    markers. Here both are shorter, and the marker's own timestamp shows that it did not come too early.
    """
    topic = make_topic(kafka)
    identity = session.init(timeout_ms=TIMEOUT_MS)[1]
    write(session, identity, topic, protocol)
    started_ms = session.describe().transaction_start_time_ms
    assert wait_for_state(session, "CompleteAbort").producer_epoch == identity.producer_epoch + 1
    [marker] = markers(session, topic)
    assert marker.max_timestamp > started_ms + TIMEOUT_MS
    late = record_batch([b"late"], identity, 1)
    assert session.produce(topic, late, version=PRODUCE[protocol])[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    # A producer of transactions V2 survives its own timeout: its abort counts as a repetition of the broker's.
    expected = (NONE, bumped(identity)) if protocol == V2 else (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert session.end(identity, commit=False, version=END[protocol]) == expected


# Rule L.1/21
def test_scenario_21_transactions_are_not_listed_during_a_load(kafka: Kafka, monkeypatch: pytest.MonkeyPatch):
    """ListTransactions returns COORDINATOR_LOAD_IN_PROGRESS while a state partition of the broker is loading."""
    if kafka.name != "broker_core":
        pytest.skip("no client can make a load last: Apache Kafka reads a small partition at once")

    def unreadable(*_: Any) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk does not respond")

    with EmbeddedBroker() as broker, RawClient(broker.bootstrap_servers) as client:
        session = RawSession(client, "id")
        identity = session.init()[1]
        where = broker._call(
            lambda cluster: TopicPartition(
                TRANSACTION_STATE_TOPIC, cluster.brokers[1].transactions.store.partition_for("id")
            )
        )
        with monkeypatch.context() as patch:
            patch.setattr(TopicJournal, "read", unreadable)
            with pytest.raises(KafkaError):
                broker._call(lambda cluster: cluster.controller.move_leader(where, 1))
        assert session.list_answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker._call(lambda cluster: cluster.controller.move_leader(where, 1))
        assert session.list() == {"id": (identity.producer_id, "Empty")}


# Rule L.1/22
def test_scenario_22_an_unknown_id_is_described_as_not_found(session: RawSession):
    """DescribeTransactions of an unknown id returns TRANSACTIONAL_ID_NOT_FOUND, and does not create the id."""
    for _ in range(2):
        assert session.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert session.init()[1].producer_epoch == 0
    assert session.describe().error_code == NONE


# Rule L.1/23
def test_scenario_23_topic_deleted_during_a_transaction(kafka: Kafka):
    """The marker of a deleted partition is skipped: the transaction reaches CompleteCommit and the next one runs."""
    kept, lost, transactional_id = make_topic(kafka), make_topic(kafka), unique("id")
    producer = make_transactional_producer(kafka, transactional_id)
    producer.begin_transaction()
    send(producer, kept, [b"kept"])
    send(producer, lost, [b"lost"])
    client = admin(kafka)
    client.delete_topics([lost], operation_timeout=30)[lost].result(DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    with RawClient(kafka.bootstrap_servers) as connection:
        wait_for_state(RawSession(connection, transactional_id), "CompleteCommit")
    values_soon(kafka, kept, [b"kept"])
    producer.begin_transaction()
    send(producer, kept, [b"next"])
    producer.commit_transaction(DEADLINE_S)
    values_soon(kafka, kept, [b"kept", b"next"])


# Rule L.1/24
@both_protocols
def test_scenario_24_marker_with_a_stale_epoch_leaves_the_transaction_prepared(
    kafka: Kafka, session: RawSession, protocol: int
):
    """A marker refused with INVALID_PRODUCER_EPOCH is not retried: the transaction stays PrepareCommit.

    Every request gets CONCURRENT_TRANSACTIONS. Only the next load of the coordinator tries again, see scenario 18.
    """
    stuck = leave_prepared(session, make_topic(kafka), make_topic(kafka), protocol, commit=True)
    described = session.describe()
    assert described.transaction_state == "PrepareCommit"
    # Partitions with a written marker are omitted: the others still need theirs.
    assert [(entry.topic, entry.partitions) for entry in described.topics] == [(stuck.blocked, [0])]
    listed = session.list(states=["PrepareCommit"])[session.transactional_id]
    assert listed[0] == described.producer_id == stuck.identity.producer_id
    assert session.init()[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert session.end(stuck.identity, commit=True, version=END[protocol])[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    [foreign] = markers(session, stuck.blocked)
    assert foreign.producer_epoch == stuck.identity.producer_epoch + 10
    wait_until(lambda: len(markers(session, stuck.open)) == 1, "the other partition has its marker")
    assert session.describe().transaction_state == "PrepareCommit"


def test_every_scenario_of_the_list_has_a_test():
    """The list has 24 scenarios, and each has a test in these files."""
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_scenarios_*.py")]
    found = {int(number) for text in texts for number in re.findall(r"^def test_scenario_(\d\d)_", text, re.MULTILINE)}
    assert found == set(range(1, 25))
