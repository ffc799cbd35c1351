"""Transactions whose topic, records or group are deleted, whose sequence is reused, or that were ended already."""

from functools import partial
from itertools import pairwise

import pytest
from confluent_kafka.admin import NewTopic
from kafka.protocol.admin import DeleteGroupsRequest, DeleteRecordsRequest

from broker_core.errors import ErrorCode
from tests.support.clients import DEADLINE_S, Kafka, admin, make_topic, unique
from tests.support.group_session import GroupSession
from tests.support.protocols import (
    CLASSIC,
    COMMITTED,
    END,
    PRODUCE,
    V2,
    both_ends,
    both_protocols,
    bumped,
    headers,
    markers,
    wait_for_state,
    write,
)
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession, record_batch
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE


def make_again(kafka: Kafka, session: RawSession, name: str) -> None:
    """Delete a topic and create one of the same name."""
    client = admin(kafka)
    client.delete_topics([name], operation_timeout=30)[name].result(DEADLINE_S)
    wait_until(lambda: name not in client.list_topics(timeout=DEADLINE_S).topics, f"{name} is gone")
    client.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_S)
    wait_until(lambda: session.fetch(name, 0, isolation=COMMITTED).error_code == NONE, f"{name} is back")


def test_marker_is_written_to_a_recreated_topic_of_the_same_name(kafka: Kafka, session: RawSession):
    name = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, name, V2)
    make_again(kafka, session, name)
    assert session.end(identity, commit=True, version=5)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    assert [(header.is_control, header.producer_epoch) for header in headers(session, name)] == [
        (True, identity.producer_epoch + 1)
    ]


@pytest.mark.parametrize("version", [5, 6], ids=["by name", "by id"])
def test_offset_sent_before_its_topic_was_made_again_is_not_committed(
    kafka: Kafka, client: RawClient, session: RawSession, version: int
):
    topic = make_topic(kafka)
    group = GroupSession(client, unique("group"), topic)
    identity = session.init()[1]
    assert group.commit_in_transaction(session.transactional_id, identity, "", -1, version=version) == NONE
    make_again(kafka, session, topic)
    assert session.end(identity, commit=True, version=5)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    assert session.committed(group.group, topic, require_stable=True) == (NONE, -1)


def test_offset_sent_after_its_topic_was_made_again_is_refused_by_the_old_id_only(
    kafka: Kafka, client: RawClient, session: RawSession
):
    topic = make_topic(kafka)
    group = GroupSession(client, unique("group"), topic)
    identity = session.init()[1]
    make_again(kafka, session, topic)
    send = partial(group.commit_in_transaction, session.transactional_id, identity, "", -1)
    assert send(version=6) == ErrorCode.UNKNOWN_TOPIC_ID
    # A refused offset begins no transaction.
    assert session.end(identity, commit=True, version=5)[0] == ErrorCode.INVALID_TXN_STATE
    assert send(version=5) == NONE
    assert session.end(identity, commit=True, version=5)[0] == NONE
    wait_until(lambda: session.committed(group.group, topic, require_stable=True) == (NONE, 7), "the group's offset")


# Rule C.7/2.
@pytest.mark.parametrize(("deleted_to", "stable"), [(1, 0), (3, 3), (4, 3), (8, 7), (9, 9)])
def test_last_stable_offset_is_the_batch_at_the_log_start(
    kafka: Kafka, session: RawSession, deleted_to: int, stable: int
):
    topic = make_topic(kafka)
    identity = session.init()[1]
    for first, after in pairwise((0, 3, 7, 9)):
        batch = record_batch([b"v"] * (after - first), identity, first)
        assert session.produce(topic, batch, version=PRODUCE[V2])[0] == NONE
    form = DeleteRecordsRequest.DeleteRecordsTopic
    deleted = form.DeleteRecordsPartition(partition_index=0, offset=deleted_to)
    answer = session.client.send(
        DeleteRecordsRequest(timeout_ms=30_000, topics=[form(name=topic, partitions=[deleted])]), 2
    )
    assert answer.topics[0].partitions[0].low_watermark == deleted_to
    held = session.fetch(topic, deleted_to, isolation=COMMITTED)
    assert (held.log_start_offset, held.last_stable_offset, held.high_watermark) == (deleted_to, stable, 9)
    assert (held.error_code, held.records or b"") == (NONE, b"")
    assert session.end(identity, commit=False, version=5)[0] == NONE
    wait_until(lambda: session.fetch(topic, deleted_to, isolation=COMMITTED).last_stable_offset == 10, "the marker")
    aborted = session.fetch(topic, deleted_to, isolation=COMMITTED).aborted_transactions
    assert [entry.first_offset for entry in aborted] == [0]


def test_sequence_reused_after_a_v1_abort_is_a_duplicate(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, CLASSIC)
    assert session.end(identity, commit=False, version=4)[0] == NONE
    session.add_until_done(identity, topic)
    again = record_batch([b"x"], identity, 0)
    # The error is about the aborted batch: a client whose sequences start again must request a new epoch.
    assert session.produce(topic, again, version=PRODUCE[CLASSIC]) == (NONE, 0)
    following = session.produce(topic, record_batch([b"x"], identity, 1), version=PRODUCE[CLASSIC])[0]
    assert following == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert session.fetch(topic, 0, isolation=COMMITTED).high_watermark == 2


# Rule E.2/4.
def test_group_deleted_with_pending_offsets_gets_none_of_them(kafka: Kafka, session: RawSession):
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    assert session.commit_plainly(group, topic, 1) == NONE
    assert session.commit_in_transaction(identity, group, topic, 5, version=5) == NONE
    answer = session.client.send(DeleteGroupsRequest(groups_names=[group]), 2)
    assert answer.results[0].error_code == NONE
    assert session.committed(group, topic, require_stable=True) == (NONE, -1)
    assert session.end(identity, commit=True, version=5)[0] == NONE
    wait_for_state(session, "CompleteCommit")
    assert session.committed(group, topic, require_stable=True) == (NONE, -1)


@both_protocols
@both_ends
def test_client_may_end_a_transaction_aborted_by_an_administrator(
    kafka: Kafka, session: RawSession, protocol: int, commit: bool
):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, protocol)
    assert session.write_marker(topic, identity, commit=False, coordinator_epoch=0) == NONE
    assert session.end(identity, commit=commit, version=END[protocol])[0] == NONE
    wait_for_state(session, "CompleteCommit" if commit else "CompleteAbort")
    assert [header.base_offset for header in markers(session, topic)] == [1, 2]
    aborted = session.fetch(topic, 0, isolation=COMMITTED).aborted_transactions
    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(identity.producer_id, 0)]


@both_ends
def test_empty_abort_after_a_transaction(kafka: Kafka, session: RawSession, commit: bool):
    topic = make_topic(kafka)
    identity = session.init()[1]
    write(session, identity, topic, V2)
    identity = session.end(identity, commit=commit, version=5)[1]
    wait_for_state(session, "CompleteCommit" if commit else "CompleteAbort")
    assert session.end(identity, commit=True, version=5)[0] == ErrorCode.INVALID_TXN_STATE
    assert session.end(identity, commit=False, version=5) == (NONE, bumped(identity))
    write(session, bumped(identity), topic, V2)


@pytest.mark.parametrize("version", [2, 5])
def test_offsets_of_an_unknown_group_open_a_transaction(kafka: Kafka, session: RawSession, version: int):
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    if version < 5:
        assert session.add_offsets(identity, group) == NONE
    assert session.commit_in_transaction(identity, group, topic, 3, version=version) == NONE
    assert session.describe().transaction_state == "Ongoing"
    assert session.end(identity, commit=False, version=END[V2 if version == 5 else CLASSIC])[0] == NONE
    wait_until(lambda: session.committed(group, topic, require_stable=True) == (NONE, -1), "the abort marker")
