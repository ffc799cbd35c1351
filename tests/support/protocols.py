"""Know both generations of the transaction protocol: the versions each sends, and how each writes a record."""

from typing import Any, NamedTuple

import pytest

from broker_core.coordinator.transactions.records import TransactionImage, encode_key, encode_value
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.header import BatchHeader, iter_headers
from broker_core.types import LAST_CLIENT_EPOCH, TransactionState
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.waiting import wait_until

# Produce, EndTxn and TxnOffsetCommit at the newest version of the classic protocol and of transactions V2.
CLASSIC, V2 = 1, 2
PRODUCE = {CLASSIC: 11, V2: 12}
END = {CLASSIC: 4, V2: 5}
TXN_OFFSET_COMMIT = {CLASSIC: 4, V2: 5}
both_protocols = pytest.mark.parametrize("protocol", [CLASSIC, V2])
both_ends = pytest.mark.parametrize("commit", [True, False])
UNCOMMITTED, COMMITTED = 0, 1
# The client id under which a broker lets an operator write to an internal topic.
REPAIRER = "__admin_client"


def bumped(identity: Identity, by: int = 1) -> Identity:
    """Return the identity some epochs later."""
    return Identity(identity.producer_id, identity.producer_epoch + by)


def state_record(transactional_id: str, value: bytes | None, now_ms: int) -> bytes:
    """Build the batch of one record of a transactional id's journal; without a value, of one that is forgotten."""
    return build_batch([NewRecord(encode_key(transactional_id), value, (), now_ms)])


def exhausted_state_value(producer_id: int, now_ms: int) -> bytes:
    """Build the value that 32,766 transactions would have left: nothing is going on, and the epochs are used up."""
    image = TransactionImage(producer_id, LAST_CLIENT_EPOCH, 60_000, TransactionState.EMPTY, frozenset(), now_ms)
    return encode_value(image, V2)


def write(
    session: RawSession,
    identity: Identity,
    topic: str,
    protocol: int,
    *,
    sequence: int = 0,
    values: tuple[bytes, ...] = (b"x",),
) -> int:
    """Write records in the identity's transaction, as the protocol wants it, and return their base offset."""
    if protocol == CLASSIC:
        session.add_until_done(identity, topic)
    batch = record_batch(values, identity, sequence)
    error, base_offset = session.produce(topic, batch, version=PRODUCE[protocol])
    assert error == 0, error
    return base_offset


def wait_for_state(session: RawSession, state: str) -> Any:
    """Wait until the transaction is in this state and return its description."""

    def described() -> Any:
        found = session.describe()
        return found if found.transaction_state == state else None

    return wait_until(described, f"transaction is {state}")


def headers(session: RawSession, topic: str, offset: int = 0) -> list[BatchHeader]:
    """Return the headers of the batches that one fetch brings, markers and aborted ones included."""
    records = session.fetch(topic, offset, isolation=UNCOMMITTED).records
    return [header for _, header in iter_headers(bytes(records or b""))]


def markers(session: RawSession, topic: str, offset: int = 0) -> list[BatchHeader]:
    """Return the headers of the control batches among them."""
    return [header for header in headers(session, topic, offset) if header.is_control]


class Blocked(NamedTuple):
    """Hold a transaction that is decided and cannot complete: partition 0 of `blocked` refuses its marker."""

    identity: Identity
    blocked: str
    open: str


def leave_prepared(session: RawSession, blocked: str, other: str, protocol: int, *, commit: bool) -> Blocked:
    """Decide a transaction whose marker one partition answers with INVALID_PRODUCER_EPOCH.

    That partition was told of a much later epoch by a marker that no coordinator sent. The coordinator then gives
    up until it loads again, which holds a state still that else passes in milliseconds.
    """
    identity = session.init()[1]
    write(session, identity, blocked, protocol)
    write(session, identity, other, protocol)
    assert session.write_marker(blocked, bumped(identity, 10), commit=False, coordinator_epoch=0) == 0
    assert session.end(identity, commit=commit, version=END[protocol])[0] == 0
    wait_until(lambda: session.fetch(other, 0, isolation=COMMITTED).last_stable_offset == 2, "the other marker")
    # The answers to both markers arrive together.
    wait_until(lambda: [entry.topic for entry in session.describe().topics] == [blocked], "one marker is missing")
    return Blocked(identity, blocked, other)
