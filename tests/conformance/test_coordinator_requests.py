"""Ask the transaction coordinator single requests, retries and misuse included."""

from collections.abc import Iterator

import pytest

from tests.conformance.clients import Kafka, make_topic, unique, values_soon
from tests.conformance.raw_session import NOBODY, Identity, RawSession, record_batch
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

NONE = 0
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105

# Produce, EndTxn and TxnOffsetCommit at the newest version of the classic protocol and of transactions V2.
CLASSIC, V2 = 1, 2
PRODUCE = {CLASSIC: 11, V2: 12}
END = {CLASSIC: 4, V2: 5}
TXN_OFFSET_COMMIT = {CLASSIC: 4, V2: 5}
both_protocols = pytest.mark.parametrize("protocol", [CLASSIC, V2])
both_ends = pytest.mark.parametrize("commit", [True, False])


@pytest.fixture
def session(kafka: Kafka) -> Iterator[RawSession]:
    with RawClient(kafka.bootstrap_servers) as client:
        yield RawSession(client, unique("id"))


def bumped(identity: Identity, by: int = 1) -> Identity:
    return Identity(identity.producer_id, identity.producer_epoch + by)


def write(session: RawSession, identity: Identity, topic: str, protocol: int, *, sequence: int = 0) -> None:
    """Write one record in the identity's transaction, as the protocol wants it."""
    if protocol == CLASSIC:
        session.add_until_done(identity, topic)
    error, _ = session.produce(topic, record_batch([b"x"], identity, sequence), version=PRODUCE[protocol])
    assert error == NONE


def wait_for_state(session: RawSession, state: str) -> None:
    wait_until(lambda: session.describe().transaction_state == state, f"transaction is {state}")


def test_a_new_id_starts_at_epoch_0_and_each_init_bumps_it(session: RawSession):
    error, first = session.init()
    assert (error, first.producer_epoch) == (NONE, 0)
    assert session.init() == (NONE, bumped(first))
    assert session.init() == (NONE, bumped(first, 2))


def test_a_producer_without_a_transactional_id_gets_an_id_of_its_own_each_time(kafka: Kafka):
    with RawClient(kafka.bootstrap_servers) as client:
        session = RawSession(client, None)
        (error, first), (_, second) = session.init(), session.init()
    assert error == NONE
    assert first.producer_epoch == second.producer_epoch == 0
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(("transactional_id", "expected", "timeout_ms", "error"), [
    ("", NOBODY, 60_000, INVALID_REQUEST),
    ("id", Identity(5, -1), 60_000, INVALID_REQUEST),
    ("id", Identity(-1, 5), 60_000, INVALID_REQUEST),
    ("id", NOBODY, 0, INVALID_TRANSACTION_TIMEOUT),
    ("id", NOBODY, 900_001, INVALID_TRANSACTION_TIMEOUT),
])
def test_a_wrong_init_is_refused(
    kafka: Kafka, transactional_id: str, expected: Identity, timeout_ms: int, error: int
):
    with RawClient(kafka.bootstrap_servers) as client:
        session = RawSession(client, transactional_id and unique(transactional_id))
        assert session.init(expected=expected, timeout_ms=timeout_ms)[0] == error


def test_init_with_an_expectation_bumps_repeats_or_fences(session: RawSession):
    first = session.init()[1]
    error, second = session.init(expected=first)
    assert (error, second) == (NONE, bumped(first))
    # The answer may have been lost: the same request gets the same answer.
    assert session.init(expected=first) == (NONE, second)
    session.init()
    assert session.init(expected=first)[0] == PRODUCER_FENCED
    assert session.init(expected=first, version=3)[0] == INVALID_PRODUCER_EPOCH
    assert session.init(expected=Identity(first.producer_id + 1000, 0))[0] == PRODUCER_FENCED


@both_protocols
def test_init_while_a_transaction_is_open_aborts_it(kafka: Kafka, session: RawSession, protocol: int):
    topic = make_topic(kafka)
    first = session.init()[1]
    write(session, first, topic, protocol)
    assert session.init()[0] == CONCURRENT_TRANSACTIONS
    second = session.init_until_done()
    assert second == bumped(first, 2)
    values_soon(kafka, topic, [])
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 2


@both_ends
@pytest.mark.parametrize("version", [1, 3, 4])
def test_a_classic_end_may_be_repeated(kafka: Kafka, session: RawSession, commit: bool, version: int):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, CLASSIC)
    assert session.end(identity, commit=commit, version=version) == (NONE, NOBODY)
    assert session.end_until_done(identity, commit=commit, version=version) == (NONE, NOBODY)
    assert session.end_until_done(identity, commit=not commit, version=version) == (INVALID_TXN_STATE, NOBODY)
    values_soon(kafka, topic, [b"x"] if commit else [])


@both_ends
def test_an_end_of_transactions_v2_may_be_repeated_with_the_old_epoch(kafka: Kafka, session: RawSession, commit: bool):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    assert session.end(identity, commit=commit, version=5) == (NONE, bumped(identity))
    assert session.end_until_done(identity, commit=commit, version=5) == (NONE, bumped(identity))
    # A second repetition changes nothing either, and the next transaction goes on with the answered epoch.
    assert session.end_until_done(identity, commit=commit, version=5) == (NONE, bumped(identity))
    assert session.end_until_done(identity, commit=not commit, version=5)[0] == INVALID_TXN_STATE
    write(session, bumped(identity), topic, V2)
    assert session.end(bumped(identity), commit=True, version=5) == (NONE, bumped(identity, 2))
    values_soon(kafka, topic, [b"x", b"x"] if commit else [b"x"])


def test_another_connection_may_end_the_transaction(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    with RawClient(kafka.bootstrap_servers) as client:
        other = RawSession(client, session.transactional_id)
        assert other.end(identity, commit=True, version=5) == (NONE, bumped(identity))
    values_soon(kafka, topic, [b"x"])


def test_ending_a_transaction_that_never_began(session: RawSession):
    identity = session.init()[1]
    for commit in (True, False):
        assert session.end(identity, commit=commit, version=4) == (INVALID_TXN_STATE, NOBODY)
    assert session.end(identity, commit=True, version=5) == (INVALID_TXN_STATE, NOBODY)
    # An abort of nothing is granted and bumps, for the client cannot know whether anything arrived.
    assert session.end(identity, commit=False, version=5) == (NONE, bumped(identity))
    assert session.end_until_done(bumped(identity), commit=False, version=5) == (NONE, bumped(identity, 2))


def test_ends_of_strangers_are_refused(session: RawSession):
    identity = session.init()[1]
    for version in (4, 5):
        stranger = Identity(identity.producer_id + 1000, 0)
        assert session.end(stranger, commit=True, version=version) == (INVALID_PRODUCER_ID_MAPPING, NOBODY)
        assert session.end(bumped(identity, 3), commit=True, version=version) == (PRODUCER_FENCED, NOBODY)
        unknown = RawSession(session.client, unique("id"))
        assert unknown.end(identity, commit=True, version=version) == (INVALID_PRODUCER_ID_MAPPING, NOBODY)
    assert session.end(bumped(identity, 3), commit=True, version=1)[0] == INVALID_PRODUCER_EPOCH


@both_protocols
def test_after_fencing_the_old_epoch_is_refused_everywhere(kafka: Kafka, session: RawSession, protocol: int):
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


def test_an_empty_commit_of_an_added_partition_is_a_transaction(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    assert session.add(identity, topic) == {NONE}
    assert session.end(identity, commit=True, version=4)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 1


def test_a_partition_that_is_missing_spoils_the_whole_request(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    unknown_topic_or_partition, operation_not_attempted = 3, 55
    assert session.add(identity, topic, 0, 7) == {unknown_topic_or_partition, operation_not_attempted}
    assert session.describe().transaction_state == "Empty"


@both_protocols
@both_ends
def test_a_transaction_is_described_in_each_state(kafka: Kafka, session: RawSession, protocol: int, commit: bool):
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


def test_transactions_are_listed_by_state_and_producer(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    name = session.transactional_id
    identity = session.init()[1]
    assert session.list(states=["Empty"])[name] == (identity.producer_id, "Empty")
    write(session, identity, topic, V2)
    assert session.list(states=["Ongoing"])[name] == (identity.producer_id, "Ongoing")
    assert name not in session.list(states=["Empty"])
    assert session.list(producer_ids=[identity.producer_id]) == {name: (identity.producer_id, "Ongoing")}
    assert name in session.list()
    session.end(identity, commit=True, version=5)
    wait_for_state(session, "CompleteCommit")
    assert name in session.list(states=["CompleteCommit"])


@both_protocols
def test_a_timeout_aborts_and_fences(kafka: Kafka, session: RawSession, protocol: int):
    topic = make_topic(kafka)
    identity = session.init(timeout_ms=500)[1]
    write(session, identity, topic, protocol)
    wait_for_state(session, "CompleteAbort")
    assert session.describe().producer_epoch == identity.producer_epoch + 1
    late = record_batch([b"late"], identity, 1)
    assert session.produce(topic, late, version=PRODUCE[protocol])[0] == INVALID_PRODUCER_EPOCH
    # A producer of transactions V2 survives its own timeout: its abort is taken as a repetition of the broker's.
    expected = (NONE, bumped(identity)) if protocol == V2 else (PRODUCER_FENCED, NOBODY)
    assert session.end(identity, commit=False, version=END[protocol]) == expected


@both_protocols
@both_ends
def test_offsets_are_unstable_until_the_marker(kafka: Kafka, session: RawSession, protocol: int, commit: bool):
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    if protocol == CLASSIC:
        assert session.add_offsets(identity, group) == NONE
    version = TXN_OFFSET_COMMIT[protocol]
    assert session.commit_in_transaction(identity, group, topic, 42, version=version) == NONE
    assert session.committed(group, topic, require_stable=True)[0] == UNSTABLE_OFFSET_COMMIT
    assert session.committed(group, topic, require_stable=False) == (NONE, -1)
    assert session.end(identity, commit=commit, version=END[protocol])[0] == NONE
    wait_until(lambda: session.committed(group, topic, require_stable=True)[0] == NONE, "the offset is stable")
    assert session.committed(group, topic, require_stable=True) == (NONE, 42 if commit else -1)


def test_a_plain_commit_made_later_survives_the_transaction(kafka: Kafka, session: RawSession):
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    assert session.commit_in_transaction(identity, group, topic, 5, version=5) == NONE
    assert session.commit_plainly(group, topic, 9) == NONE
    assert session.end(identity, commit=True, version=5)[0] == NONE
    wait_until(lambda: session.committed(group, topic, require_stable=True)[0] == NONE, "the offset is stable")
    assert session.committed(group, topic, require_stable=True) == (NONE, 9)
