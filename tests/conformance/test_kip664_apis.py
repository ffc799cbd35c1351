"""The APIs for transaction tools (KIP-664, KIP-994, KIP-1152), on both brokers, by single requests."""

from typing import Any

import pytest
from kafka.protocol.producer import WriteTxnMarkersRequest

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
    """Return an id with an open transaction, one with a complete one and one with none, by a word for each."""
    topic, name = make_topic(kafka), unique("list")
    sessions = {word: RawSession(client, f"{name}-{word}") for word in ("open", "done", "none")}
    open_up(sessions["open"], topic)
    done = open_up(sessions["done"], topic)
    assert sessions["done"].end_until_done(done, commit=False, version=4)[0] == NONE
    wait_for_state(sessions["done"], "CompleteAbort")
    sessions["none"].init()
    return sessions


def listed(several: dict[str, RawSession], version: int, **filters: Any) -> dict[str, str]:
    """List with filters and return the states of these ids, whatever others there are."""
    names = {str(session.transactional_id): word for word, session in several.items()}
    found = several["open"].list(version=version, **filters)
    return {names[name]: state for name, (_, state) in found.items() if name in names}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_ids_are_listed_by_state_and_producer_in_every_version(several: dict[str, RawSession], version: int):
    """Filters are joined by and, their values by or; no filter keeps everything."""
    everything = {"open": "Ongoing", "done": "CompleteAbort", "none": "Empty"}
    assert listed(several, version) == everything
    assert listed(several, version, states=["Ongoing", "Empty"]) == {"open": "Ongoing", "none": "Empty"}
    producer_ids = {word: session.describe().producer_id for word, session in several.items()}
    two = [producer_ids["open"], producer_ids["done"]]
    assert listed(several, version, producer_ids=two) == {"open": "Ongoing", "done": "CompleteAbort"}
    assert listed(several, version, producer_ids=two, states=["Empty", "Ongoing"]) == {"open": "Ongoing"}
    assert listed(several, version, states=["Dead"]) == {}


def test_unknown_states_are_reported(several: dict[str, RawSession]):
    """They come back by name; where nothing else is filtered by, nothing is listed."""
    both = several["open"].list_answer(states=["ongoing", "Empty"])
    assert both.unknown_state_filters == ["ongoing"]
    assert {entry.transaction_state for entry in both.transaction_states} == {"Empty"}
    none = several["open"].list_answer(states=["Sleeping"])
    assert (none.error_code, none.unknown_state_filters, none.transaction_states) == (NONE, ["Sleeping"], [])


def test_ids_are_listed_by_duration(several: dict[str, RawSession]):
    """Those that run longer; one that never began counts as running since ever, and so does every old tool's."""
    hour_ms = 3_600_000
    assert listed(several, 2, duration_ms=hour_ms) == {"none": "Empty"}
    assert listed(several, 1, duration_ms=hour_ms) == {"none": "Empty"}
    assert set(listed(several, 2, duration_ms=-1)) == {"open", "done", "none"}


def test_description_lists_partitions_waiting_for_their_marker(kafka: Kafka, session: RawSession):
    """While a transaction is prepared, those whose marker is written are left out: so a tool knows what still comes."""
    blocked = leave_prepared(session, make_topic(kafka), make_topic(kafka), V2, commit=True)
    found = session.describe()
    assert (found.transaction_state, found.producer_id) == ("PrepareCommit", blocked.identity.producer_id)
    assert [(entry.topic, entry.partitions) for entry in found.topics] == [(blocked.blocked, [0])]
    assert session.list(states=["PrepareCommit"])[str(session.transactional_id)][0] == found.producer_id


def test_producers_are_described_before_during_and_after_a_transaction(kafka: Kafka, session: RawSession):
    """No coordinator epoch before the first marker; no start offset and no sequence after the last."""
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
    """In `__consumer_offsets` the group coordinator replays it: pending offsets are gone, none waits for them."""
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    assert session.commit_in_transaction(identity, group, topic, 5, version=TXN_OFFSET_COMMIT[V2]) == NONE
    assert session.committed(group, topic, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    [partition] = session.describe().topics[0].partitions
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    answer = session.client.send(
        WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    transaction_result=False,
                    topics=[marker.WritableTxnMarkerTopic(name=CONSUMER_OFFSETS_TOPIC, partition_indexes=[partition])],
                    coordinator_epoch=0,
                    transaction_version=0,
                )
            ]
        ),
        version,
    )
    [result] = answer.markers
    assert [(part.partition_index, part.error_code) for part in result.topics[0].partitions] == [(partition, NONE)]
    assert session.committed(group, topic, require_stable=True) == (NONE, -1)
