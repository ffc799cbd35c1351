"""Single requests to the transaction coordinator, including retries and wrong requests."""

import pytest

from tests.support.clients import Kafka, make_topic, unique, values_soon
from tests.support.protocols import END, PRODUCE, V2, both_ends, both_protocols, bumped, wait_for_state, write
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, Identity, RawSession, record_batch

NONE = 0
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105


def test_init_without_a_transactional_id_returns_a_new_producer_id_each_time(kafka: Kafka):
    with RawClient(kafka.bootstrap_servers) as client:
        session = RawSession(client, None)
        (error, first), (_, second) = session.init(), session.init()
    assert error == NONE
    assert first.producer_epoch == second.producer_epoch == 0
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(
    ("transactional_id", "expected", "timeout_ms", "error"),
    [
        ("", NOBODY, 60_000, INVALID_REQUEST),
        ("id", Identity(5, -1), 60_000, INVALID_REQUEST),
        ("id", Identity(-1, 5), 60_000, INVALID_REQUEST),
        ("id", NOBODY, 0, INVALID_TRANSACTION_TIMEOUT),
        ("id", NOBODY, 900_001, INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_init_is_refused(kafka: Kafka, transactional_id: str, expected: Identity, timeout_ms: int, error: int):
    with RawClient(kafka.bootstrap_servers) as client:
        session = RawSession(client, transactional_id and unique(transactional_id))
        assert session.init(expected=expected, timeout_ms=timeout_ms)[0] == error


def test_init_with_an_expected_producer_bumps_repeats_or_fences(session: RawSession):
    first = session.init()[1]
    error, second = session.init(expected=first)
    assert (error, second) == (NONE, bumped(first))
    # The response may have been lost: the same request gets the same response.
    assert session.init(expected=first) == (NONE, second)
    session.init()
    assert session.init(expected=first)[0] == PRODUCER_FENCED
    assert session.init(expected=first, version=3)[0] == INVALID_PRODUCER_EPOCH
    assert session.init(expected=Identity(first.producer_id + 1000, 0))[0] == PRODUCER_FENCED


def test_transaction_may_be_ended_on_another_connection(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    with RawClient(kafka.bootstrap_servers) as client:
        other = RawSession(client, session.transactional_id)
        assert other.end(identity, commit=True, version=5) == (NONE, bumped(identity))
    values_soon(kafka, topic, [b"x"])


def test_v1_end_of_a_transaction_that_never_began_is_refused(session: RawSession):
    identity = session.init()[1]
    for commit in (True, False):
        assert session.end(identity, commit=commit, version=4) == (INVALID_TXN_STATE, NOBODY)


def test_end_txn_of_unknown_producers_is_refused(session: RawSession):
    identity = session.init()[1]
    for version in (4, 5):
        stranger = Identity(identity.producer_id + 1000, 0)
        assert session.end(stranger, commit=True, version=version) == (INVALID_PRODUCER_ID_MAPPING, NOBODY)
        assert session.end(bumped(identity, 3), commit=True, version=version) == (PRODUCER_FENCED, NOBODY)
        unknown = RawSession(session.client, unique("id"))
        assert unknown.end(identity, commit=True, version=version) == (INVALID_PRODUCER_ID_MAPPING, NOBODY)
    assert session.end(bumped(identity, 3), commit=True, version=1)[0] == INVALID_PRODUCER_EPOCH


@both_protocols
def test_old_epoch_is_refused_everywhere_after_fencing(kafka: Kafka, session: RawSession, protocol: int):
    topic, group = make_topic(kafka), unique("group")
    old = session.init()[1]
    write(session, old, topic, protocol)
    new = session.init_until_done()
    assert session.add(old, topic) == {PRODUCER_FENCED}
    assert session.add(old, topic, version=1) == {INVALID_PRODUCER_EPOCH}
    assert session.add_offsets(old, group) == PRODUCER_FENCED
    assert session.end(old, commit=True, version=END[protocol])[0] == PRODUCER_FENCED
    batch = record_batch([b"late"], old, 1)
    assert session.produce(topic, batch, version=PRODUCE[protocol])[0] == INVALID_PRODUCER_EPOCH
    write(session, new, topic, protocol)
    assert session.end(new, commit=True, version=END[protocol])[0] == NONE
    values_soon(kafka, topic, [b"x"])


def test_empty_commit_of_an_added_partition_completes(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    assert session.add(identity, topic) == {NONE}
    assert session.end(identity, commit=True, version=4)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 1


# Rules A.6 request/4 and A.6 request/5.
def test_missing_partition_fails_the_whole_request(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    unknown_topic_or_partition, operation_not_attempted = 3, 55
    assert session.add(identity, topic, 0, 7) == {unknown_topic_or_partition, operation_not_attempted}
    assert session.describe().transaction_state == "Empty"


# Rules A.8 V1/6, A.15/2 and A.15/5.
@both_protocols
@both_ends
def test_transaction_is_described_in_each_state(kafka: Kafka, session: RawSession, protocol: int, commit: bool):
    topic = make_topic(kafka, partitions=2)
    assert session.describe().error_code == TRANSACTIONAL_ID_NOT_FOUND
    identity = session.init(timeout_ms=12_345)[1]
    empty = session.describe()
    assert (empty.error_code, empty.transaction_state) == (NONE, "Empty")
    write(session, identity, topic, protocol)
    ongoing = session.describe()
    assert (ongoing.error_code, ongoing.transaction_state) == (NONE, "Ongoing")
    assert (ongoing.producer_id, ongoing.producer_epoch) == identity
    assert ongoing.transaction_timeout_ms == 12_345
    assert ongoing.transaction_start_time_ms > 0
    assert [(entry.topic, entry.partitions) for entry in ongoing.topics] == [(topic, [0])]
    session.end(identity, commit=commit, version=END[protocol])
    wait_for_state(session, "CompleteCommit" if commit else "CompleteAbort")
    complete = session.describe()
    assert Identity(complete.producer_id, complete.producer_epoch) == bumped(identity, 1 if protocol == V2 else 0)
    assert complete.topics == []


@both_protocols
def test_epoch_bump_ends_an_open_transaction(kafka: Kafka, session: RawSession, protocol: int):
    topic = make_topic(kafka)
    first = session.init()[1]
    write(session, first, topic, protocol)
    assert session.init(expected=first)[0] == CONCURRENT_TRANSACTIONS
    wait_for_state(session, "CompleteAbort")
    assert session.init(expected=first) == (NONE, bumped(first))


# Rule F.3/3.
def test_transactions_are_listed_by_age(kafka: Kafka, session: RawSession):
    topic, name = make_topic(kafka), session.transactional_id
    identity = session.init()[1]
    # An id without a transaction has no start time, and has been running forever for this filter.
    assert session.describe().transaction_start_time_ms == -1
    assert name in session.list(duration_ms=3_600_000)
    assert name in session.list(duration_ms=3_600_000, version=1)
    write(session, identity, topic, V2)
    assert name not in session.list(duration_ms=3_600_000)
    assert name not in session.list(duration_ms=3_600_000, version=1)
    assert name in session.list(duration_ms=-1)
    started_ms = session.describe().transaction_start_time_ms
    session.end(identity, commit=True, version=5)
    wait_for_state(session, "CompleteCommit")
    assert session.describe().transaction_start_time_ms == started_ms
    assert name not in session.list(duration_ms=3_600_000)
    session.init()
    assert name in session.list(duration_ms=3_600_000)
