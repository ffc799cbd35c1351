"""The hazard that KIP-890 cures, shown to exist under the old protocol and to be gone under transactions V2.

Under the old protocol all transactions of a producer have one epoch, so that a request which comes late, of the
transaction before, looks like one of the transaction that runs now.
"""

from broker_core.errors import ErrorCode
from tests.conformance.clients import Kafka, make_topic, values_soon, values_to_end
from tests.conformance.protocols import CLASSIC, END, PRODUCE, V2, bumped, wait_for_state
from tests.conformance.raw_session import Identity, RawSession, record_batch

NONE = ErrorCode.NONE


def begin(session: RawSession, topic: str, identity: Identity, value: bytes, sequence: int, protocol: int) -> None:
    if protocol == CLASSIC:
        session.add_until_done(identity, topic, 0)
    batch = record_batch([value], identity, sequence)
    assert session.produce(topic, batch, version=PRODUCE[protocol])[0] == NONE


def commit(session: RawSession, identity: Identity, protocol: int) -> None:
    assert session.end_until_done(identity, commit=True, version=END[protocol])[0] == NONE
    wait_for_state(session, "CompleteCommit")


def test_a_late_end_ends_the_next_transaction_of_an_old_client(kafka: Kafka, session: RawSession):
    """Its second transaction is committed while it is still being written: half of it is seen."""
    topic = make_topic(kafka)
    identity = session.init_until_done()
    begin(session, topic, identity, b"first", 0, CLASSIC)
    commit(session, identity, CLASSIC)
    begin(session, topic, identity, b"half of the second", 1, CLASSIC)
    # The EndTxn of the first transaction, sent twice, the second time held up on its way.
    assert session.end(identity, commit=True, version=END[CLASSIC])[0] == NONE
    values_soon(kafka, topic, [b"first", b"half of the second"])


def test_a_late_end_is_refused_under_the_new_protocol(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init_until_done()
    begin(session, topic, identity, b"first", 0, V2)
    commit(session, identity, V2)
    begin(session, topic, bumped(identity), b"half of the second", 0, V2)
    assert session.end(identity, commit=True, version=END[V2])[0] == ErrorCode.PRODUCER_FENCED
    assert session.describe().transaction_state == "Ongoing"
    assert values_to_end(kafka, topic) == [b"first"]


def test_a_late_write_enters_the_next_transaction_of_an_old_client(kafka: Kafka, session: RawSession):
    """What the client gave up with its first transaction is committed with its second."""
    topic = make_topic(kafka)
    identity = session.init_until_done()
    session.add_until_done(identity, topic, 0)
    given_up = record_batch([b"given up"], identity, 0)
    # The batch is held up on its way; its client gives up and aborts.
    assert session.end_until_done(identity, commit=False, version=END[CLASSIC])[0] == NONE
    wait_for_state(session, "CompleteAbort")
    session.add_until_done(identity, topic, 0)
    assert session.produce(topic, given_up, version=PRODUCE[CLASSIC])[0] == NONE
    commit(session, identity, CLASSIC)
    values_soon(kafka, topic, [b"given up"])


def test_a_late_write_is_refused_under_the_new_protocol(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init_until_done()
    begin(session, topic, identity, b"aborted", 0, V2)
    given_up = record_batch([b"given up"], identity, 1)
    assert session.end_until_done(identity, commit=False, version=END[V2])[0] == NONE
    wait_for_state(session, "CompleteAbort")
    begin(session, topic, bumped(identity), b"second", 0, V2)
    assert session.produce(topic, given_up, version=PRODUCE[V2])[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    commit(session, bumped(identity), V2)
    values_soon(kafka, topic, [b"second"])
