"""The APIs for transaction tools (KIP-664, KIP-994, KIP-1152), on both brokers, by single requests."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.clients import Kafka, make_topic, unique
from tests.support.hanging import open_up
from tests.support.protocols import TXN_OFFSET_COMMIT, V2, bumped, leave_prepared, wait_for_state
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession

NONE = ErrorCode.NONE


@pytest.fixture
def several(kafka: Kafka, client: RawClient) -> dict[str, RawSession]:
    """Return an id with an open transaction, one with a complete one and one without, each by a word."""
    topic, name = make_topic(kafka), unique("list")
    sessions = {word: RawSession(client, f"{name}-{word}") for word in ("open", "done", "none")}
    open_up(sessions["open"], topic)
    done = open_up(sessions["done"], topic)
    assert sessions["done"].end_until_done(done, commit=False, version=4)[0] == NONE
    wait_for_state(sessions["done"], "CompleteAbort")
    sessions["none"].init()
    return sessions


def listed(several: dict[str, RawSession], version: int, **filters: Any) -> dict[str, str]:
    """List with filters and return the states of these ids only."""
    names = {str(session.transactional_id): word for word, session in several.items()}
    found = several["open"].list(version=version, **filters)
    return {names[name]: state for name, (_, state) in found.items() if name in names}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_ids_are_listed_by_state_and_producer_in_every_version(several: dict[str, RawSession], version: int):
    """Filters are combined with AND, their values with OR; no filter keeps everything."""
    everything = {"open": "Ongoing", "done": "CompleteAbort", "none": "Empty"}
    assert listed(several, version) == everything
    assert listed(several, version, states=["Ongoing", "Empty"]) == {"open": "Ongoing", "none": "Empty"}
    producer_ids = {word: session.describe().producer_id for word, session in several.items()}
    two = [producer_ids["open"], producer_ids["done"]]
    assert listed(several, version, producer_ids=two) == {"open": "Ongoing", "done": "CompleteAbort"}
    assert listed(several, version, producer_ids=two, states=["Empty", "Ongoing"]) == {"open": "Ongoing"}
    assert listed(several, version, states=["Dead"]) == {}


def test_unknown_states_are_reported(several: dict[str, RawSession]):
    """The response names them; if no other filter is given, it lists nothing."""
    both = several["open"].list_answer(states=["ongoing", "Empty"])
    assert both.unknown_state_filters == ["ongoing"]
    assert {entry.transaction_state for entry in both.transaction_states} == {"Empty"}
    none = several["open"].list_answer(states=["Sleeping"])
    assert (none.error_code, none.unknown_state_filters, none.transaction_states) == (NONE, ["Sleeping"], [])


def test_ids_are_listed_by_duration(several: dict[str, RawSession]):
    """Ids that run longer are listed; an id without a transaction has been running forever."""
    hour_ms = 3_600_000
    assert listed(several, 2, duration_ms=hour_ms) == {"none": "Empty"}
    assert listed(several, 1, duration_ms=hour_ms) == {"none": "Empty"}
    assert set(listed(several, 2, duration_ms=-1)) == {"open", "done", "none"}


def test_description_lists_partitions_waiting_for_their_marker(kafka: Kafka, session: RawSession):
    """While a transaction is prepared, partitions with a written marker are omitted: the others still need theirs."""
    blocked = leave_prepared(session, make_topic(kafka), make_topic(kafka), V2, commit=True)
    found = session.describe()
    assert (found.transaction_state, found.producer_id) == ("PrepareCommit", blocked.identity.producer_id)
    assert [(entry.topic, entry.partitions) for entry in found.topics] == [(blocked.blocked, [0])]
    assert session.list(states=["PrepareCommit"])[str(session.transactional_id)][0] == found.producer_id


def test_producers_are_described_before_during_and_after_a_transaction(kafka: Kafka, session: RawSession):
    """There is no coordinator epoch before the first marker, and no start offset and no sequence after the last."""
    topic = make_topic(kafka)
    assert session.producers(topic).active_producers == []
    identity = open_up(session, topic)
    [known] = session.producers(topic).active_producers
    assert Identity(known.producer_id, known.producer_epoch) == identity
    assert (known.current_txn_start_offset, known.last_sequence, known.coordinator_epoch) == (0, 0, -1)
    assert session.end_until_done(identity, commit=True, version=5)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    [known] = session.producers(topic).active_producers
    assert Identity(known.producer_id, known.producer_epoch) == bumped(identity)
    assert (known.current_txn_start_offset, known.last_sequence) == (-1, -1)
    assert known.coordinator_epoch >= 0


@pytest.mark.parametrize("version", [1, 2])
def test_administrator_marker_ends_pending_offsets_of_a_group(kafka: Kafka, session: RawSession, version: int):
    """In `__consumer_offsets` the group coordinator applies it: it drops pending offsets, and no fetch waits."""
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    assert session.commit_in_transaction(identity, group, topic, 5, version=TXN_OFFSET_COMMIT[V2]) == NONE
    assert session.committed(group, topic, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    [partition] = session.describe().topics[0].partitions
    written = session.write_marker(
        CONSUMER_OFFSETS_TOPIC, identity, commit=False, coordinator_epoch=0, partition=partition, version=version
    )
    assert written == NONE
    assert session.committed(group, topic, require_stable=True) == (NONE, -1)
