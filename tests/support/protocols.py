"""Both generations of the transaction protocol: the request versions of each, and how each writes a record."""

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
# The client id with which a broker lets an operator write to an internal topic.
REPAIRER = "__admin_client"


def bumped(identity: Identity, by: int = 1) -> Identity:
    """Return the identity with a later producer epoch."""
    return Identity(identity.producer_id, identity.producer_epoch + by)


def state_record(transactional_id: str, value: bytes | None, now_ms: int) -> bytes:
    """Build the batch of one record of a transactional id's journal; without a value, it is a tombstone."""
    return build_batch([NewRecord(encode_key(transactional_id), value, (), now_ms)])


def exhausted_state_value(producer_id: int, now_ms: int) -> bytes:
    """Build the value that 32,766 transactions would leave: no open transaction, and the last producer epoch."""
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
    """Write records in the identity's transaction as the protocol requires, and return their base offset."""
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
    """Return the headers of the batches in one fetch response, markers and aborted ones included."""
    records = session.fetch(topic, offset, isolation=UNCOMMITTED).records
    return [header for _, header in iter_headers(bytes(records or b""))]


def markers(session: RawSession, topic: str, offset: int = 0) -> list[BatchHeader]:
    """Return the headers of the control batches in one fetch response."""
    return [header for header in headers(session, topic, offset) if header.is_control]


class Blocked(NamedTuple):
    """A prepared transaction that cannot complete: partition 0 of `blocked` rejects its marker."""

    identity: Identity
    blocked: str
    open: str


def leave_prepared(session: RawSession, blocked: str, other: str, protocol: int, *, commit: bool) -> Blocked:
    """Prepare a transaction whose marker one partition rejects with INVALID_PRODUCER_EPOCH.

    A marker that no coordinator sent has raised the producer epoch in that partition. The coordinator then gives up
    until it loads again, which keeps the transaction in a state that otherwise lasts milliseconds.
    """
    identity = session.init()[1]
    write(session, identity, blocked, protocol)
    write(session, identity, other, protocol)
    assert session.write_marker(blocked, bumped(identity, 10), commit=False, coordinator_epoch=0) == 0
    assert session.end(identity, commit=commit, version=END[protocol])[0] == 0
    wait_until(lambda: session.fetch(other, 0, isolation=COMMITTED).last_stable_offset == 2, "the other marker")
    # The responses to both markers arrive together.
    wait_until(lambda: [entry.topic for entry in session.describe().topics] == [blocked], "one marker is missing")
    return Blocked(identity, blocked, other)
