"""The APIs for transaction tools (KIP-664, KIP-994, KIP-1152), on both brokers, by single requests."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.clients import Kafka, make_topic, unique
from tests.support.hanging import open_up
from tests.support.protocols import TXN_OFFSET_COMMIT, V2, wait_for_state
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession

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


# Rule F.3/2.
def test_unknown_states_are_reported(several: dict[str, RawSession]):
    """The response names them; if no other filter is given, it lists nothing."""
    both = several["open"].list_answer(states=["ongoing", "Empty"])
    assert both.unknown_state_filters == ["ongoing"]
    assert {entry.transaction_state for entry in both.transaction_states} == {"Empty"}
    none = several["open"].list_answer(states=["Sleeping", "Sleeping"])
    assert (none.error_code, none.unknown_state_filters, none.transaction_states) == (NONE, ["Sleeping"], [])


# Rules A.13 receiver/5, E.2/3 and F.5/4.
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
