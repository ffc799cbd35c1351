"""The scenarios of rules L.1 that involve a broker's loading of state, in one restart for all tests."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import FENCING_EPOCH, LAST_CLIENT_EPOCH, TRANSACTION_STATE_TOPIC, coordinator_partition
from tests.support.both_brokers import DURABLE_SETTINGS
from tests.support.clients import READ_COMMITTED, end_offset, make_topic, unique, values_to_end
from tests.support.protocols import (
    CLASSIC,
    COMMITTED,
    END,
    PRODUCE,
    REPAIRER,
    V2,
    Blocked,
    both_ends,
    bumped,
    exhausted_state_value,
    leave_prepared,
    markers,
    state_record,
    wait_for_state,
    write,
)
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.restartable import Restartable
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE
PROTOCOLS = (CLASSIC, V2)
EXPIRATION_MS = 2000


class Silent(NamedTuple):
    """A producer that will write again after its partition has forgotten it."""

    transactional_id: str | None
    identity: Identity
    topic: str


@dataclass
class Reloaded:
    """The broker after its restart, and what was prepared before it."""

    kafka: Restartable
    used_up: dict[bool, tuple[str, Identity]] = field(default_factory=dict)
    stuck: dict[tuple[int, bool], tuple[str, Blocked]] = field(default_factory=dict)
    silent: dict[int, Silent] = field(default_factory=dict)
    hanging: tuple[str, str, Identity] | None = None


def exhaust_epochs(client: RawClient, repairer: RawClient) -> tuple[str, Identity]:
    """Return an id without epochs left, by the record that 32,766 transactions would have left in its journal."""
    session = RawSession(client, unique("worn-out"))
    producer_id = session.init()[1].producer_id
    write_state(repairer, session.transactional_id, exhausted_state_value(producer_id, int(time.time() * 1000)))
    return session.transactional_id, Identity(producer_id, LAST_CLIENT_EPOCH)


def write_state(repairer: RawClient, transactional_id: str, value: bytes | None) -> None:
    """Write a record to the journal of the id's coordinator, which applies it when it loads."""
    batch = state_record(transactional_id, value, int(time.time() * 1000))
    count = int(DURABLE_SETTINGS["transaction.state.log.num.partitions"])
    written = RawSession(repairer, None).produce(
        TRANSACTION_STATE_TOPIC, batch, version=9, partition=coordinator_partition(transactional_id, count)
    )
    assert written[0] == NONE


def leave_hanging(kafka: Restartable, client: RawClient, repairer: RawClient) -> tuple[str, str, Identity]:
    """Open a transaction and make its coordinator forget it, as past bugs of Kafka did."""
    session, topic = RawSession(client, unique("hanging")), make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    write_state(repairer, session.transactional_id, None)
    return session.transactional_id, topic, identity


def fall_silent(kafka: Restartable, client: RawClient, protocol: int) -> Silent:
    """Write once and leave no transaction behind; protocol 0 is the idempotent producer."""
    topic = make_topic(kafka)
    session = RawSession(client, unique("silent") if protocol else None)
    identity = session.init()[1]
    if not protocol:
        batch = record_batch([b"first"], identity, 0, transactional=False)
        assert session.produce(topic, batch, version=9)[0] == NONE
        return Silent(None, identity, topic)
    write(session, identity, topic, protocol, values=(b"first",))
    assert session.end(identity, commit=True, version=END[protocol])[0] == NONE
    wait_for_state(session, "CompleteCommit")
    return Silent(session.transactional_id, bumped(identity) if protocol == V2 else identity, topic)


@pytest.fixture(scope="session")
def reloaded(durable_kafka: Restartable) -> Reloaded:
    """Prepare everything that a load must find, then restart with a short producer expiration.

    Not earlier: what Apache Kafka remembers between verifying and appending a batch expires with them.
    """
    state = Reloaded(durable_kafka)
    with (
        RawClient(durable_kafka.bootstrap_servers) as client,
        RawClient(durable_kafka.bootstrap_servers, client_id=REPAIRER) as repairer,
    ):
        state.used_up = {commit: exhaust_epochs(client, repairer) for commit in (True, False)}
        state.hanging = leave_hanging(durable_kafka, client, repairer)
        for protocol in PROTOCOLS:
            for commit in (True, False):
                session = RawSession(client, unique("stuck"))
                state.stuck[protocol, commit] = (
                    session.transactional_id,
                    leave_prepared(
                        session, make_topic(durable_kafka), make_topic(durable_kafka), protocol, commit=commit
                    ),
                )
        state.silent = {protocol: fall_silent(durable_kafka, client, protocol) for protocol in (0, *PROTOCOLS)}
        for silent in state.silent.values():
            gap = refuse_gap(RawSession(client, silent.transactional_id), silent)
            assert gap == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        wait_until_expired(RawSession(client, None), [blocked.blocked for _, blocked in state.stuck.values()])
    durable_kafka.restart(producer_id_expiration_ms=str(EXPIRATION_MS), producer_id_expiration_check_interval_ms="100")
    return state


def wait_until_expired(session: RawSession, topics: list[str]) -> None:
    """Wait until the markers that block these topics are so old that a load omits their producers."""
    newest_ms = max(markers(session, topic)[-1].max_timestamp for topic in topics)
    wait_until(lambda: time.time() * 1000 > newest_ms + EXPIRATION_MS, "the blocking producers have expired")


def refuse_gap(session: RawSession, silent: Silent) -> int:
    """Send a batch with a sequence far ahead outside any transaction."""
    batch = record_batch([b"gap"], silent.identity, 77, transactional=False)
    return RawSession(session.client, None).produce(silent.topic, batch, version=9)[0]


# Rule L.1/6
@both_ends
def test_scenario_06_the_last_epoch_ends_in_a_new_producer_id(reloaded: Reloaded, commit: bool):
    """EndTxn 5 at epoch 32766: the marker has epoch 32767, and the response and that to a retry are (N, 0)."""
    transactional_id, last = reloaded.used_up[commit]
    topic = make_topic(reloaded.kafka)
    with RawClient(reloaded.kafka.bootstrap_servers) as client:
        session = RawSession(client, transactional_id)
        wait_until(lambda: session.describe().error_code == NONE, "the id is loaded")
        described = session.describe()
        assert (described.producer_id, described.producer_epoch) == last
        write(session, last, topic, V2)
        error, fresh = session.end(last, commit=commit, version=5)
        assert (error, fresh.producer_epoch) == (NONE, 0)
        assert fresh.producer_id not in (-1, last.producer_id)
        assert session.end_until_done(last, commit=commit, version=5) == (NONE, fresh)
        [marker] = wait_until(lambda: markers(session, topic), "the marker")
        assert (marker.producer_id, marker.producer_epoch) == (last.producer_id, FENCING_EPOCH)
        described = session.describe()
        assert (described.producer_id, described.producer_epoch) == fresh
        write(session, fresh, topic, V2)
        assert session.end(fresh, commit=True, version=5) == (NONE, bumped(fresh))
        wait_until(lambda: len(markers(session, topic)) == 2, "the second marker")
    assert values_to_end(reloaded.kafka, topic) == [b"x"] * (2 if commit else 1)


# Rule L.1/18
@pytest.mark.parametrize("protocol", PROTOCOLS)
@both_ends
def test_scenario_18_a_coordinator_restarted_in_prepare_sends_the_markers_again(
    reloaded: Reloaded, protocol: int, commit: bool
):
    """A transaction found in PrepareCommit or PrepareAbort at load gets its markers again and is completed.

    The markers have the new coordinator epoch. The partition accepts them now, because it has forgotten the epoch that
    blocked them.
    """
    transactional_id, stuck = reloaded.stuck[protocol, commit]
    with RawClient(reloaded.kafka.bootstrap_servers) as client:
        session = RawSession(client, transactional_id)
        wait_for_state(session, "CompleteCommit" if commit else "CompleteAbort")
        sent = markers(session, stuck.blocked)[-1]
        expected = stuck.identity if protocol == CLASSIC else bumped(stuck.identity)
        assert (sent.producer_id, sent.producer_epoch) == expected
        # Of a forgotten producer the partition knows the marker only, so the sequence starts again.
        write(session, expected, stuck.open, protocol)
        assert session.end(expected, commit=True, version=END[protocol])[0] == NONE
        wait_for_state(session, "CompleteCommit")
    assert values_to_end(reloaded.kafka, stuck.open) == [b"x"] * (2 if commit else 1)


@pytest.mark.parametrize(
    ("protocol", "error"),
    [
        (0, NONE),
        (CLASSIC, NONE),
        (V2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
# Rule L.1/20
def test_scenario_20_partition_expires_an_inactive_producer(reloaded: Reloaded, protocol: int, error: int):
    """When a producer id has expired on a partition, its next batch may have any sequence.

    Transactions V2 are stricter: each transaction begins at 0, and any other sequence shows that records are missing.
    """
    silent = reloaded.silent[protocol]
    with RawClient(reloaded.kafka.bootstrap_servers) as client:
        session = RawSession(client, silent.transactional_id)
        wait_until(lambda: session.producers(silent.topic).active_producers == [], "the producer is forgotten")
        end = end_offset(reloaded.kafka, silent.topic, isolation=READ_COMMITTED)
        if protocol == CLASSIC:
            session.add_until_done(silent.identity, silent.topic)
        batch = record_batch([b"later"], silent.identity, 77, transactional=bool(protocol))
        version = PRODUCE[protocol] if protocol else 9
        answer = session.produce(silent.topic, batch, version=version)
        assert answer == (error, -1 if error else end)
        if error:
            batch = record_batch([b"later"], silent.identity, 0)
            assert session.produce(silent.topic, batch, version=version) == (NONE, end)


def test_hanging_transaction_is_found_and_aborted(reloaded: Reloaded):
    """No coordinator knows a partition's open transaction: the tools of KIP-664 show it, and a marker ends it."""
    assert reloaded.hanging is not None
    transactional_id, topic, identity = reloaded.hanging
    with RawClient(reloaded.kafka.bootstrap_servers) as client:
        session = RawSession(client, transactional_id)
        wait_until(
            lambda: session.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "no coordinator knows it"
        )
        assert session.list(producer_ids=[identity.producer_id]) == {}
        [open_there] = session.producers(topic).active_producers
        assert (open_there.producer_id, open_there.current_txn_start_offset) == (identity.producer_id, 0)
        assert session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 0
        # The tool's request: the identity as described, and coordinator epoch 0 where none is known.
        assert open_there.coordinator_epoch == -1
        assert session.write_marker(topic, identity, commit=False, coordinator_epoch=0) == NONE
        assert session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 2
