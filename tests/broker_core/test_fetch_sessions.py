"""Fetch sessions (KIP-227): a client says once what it fetches, then only what changes."""

from types import SimpleNamespace as Body

import pytest

from broker_core.broker.fetch_sessions import FetchKey, FetchSessions
from broker_core.errors import ErrorCode, KafkaError

VERSION, OWNER = 12, "User:alice"


def body(session_id=0, epoch=0, topics=(), forgotten=()):
    return Body(
        session_id=session_id, session_epoch=epoch,
        topics=[Body(topic=name, topic_id=name, partitions=[
            Body(partition=p, fetch_offset=offset, partition_max_bytes=100, current_leader_epoch=-1,
                 last_fetched_epoch=-1)]) for name, p, offset in topics],
        forgotten_topics_data=[Body(topic=name, topic_id=name, partitions=[p]) for name, p in forgotten])


def code_of(sessions, request, version=VERSION, owner=OWNER):
    with pytest.raises(KafkaError) as caught:
        sessions.open(request, version, owner)
    return caught.value.code


def test_a_sessionless_fetch_leaves_nothing_behind():
    context = FetchSessions(10).open(body(epoch=-1, topics=[("t", 0, 5)]), VERSION, OWNER)
    assert (context.session, context.incremental, context.targets[0].fetch_offset) == (None, False, 5)


def test_an_incremental_fetch_knows_what_was_said_before():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5), ("u", 0, 6)]), VERSION, OWNER).session
    context = sessions.open(body(session.session_id, 1, topics=[("t", 0, 8)], forgotten=[("u", 0)]), VERSION, OWNER)
    assert context.incremental
    assert [(t.key, t.fetch_offset) for t in context.targets] == [(FetchKey("t", 0), 8)]


def test_each_request_of_a_session_has_the_next_epoch():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER).session
    assert code_of(sessions, body(session.session_id, 2)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.open(body(session.session_id, 1), VERSION, OWNER)
    assert code_of(sessions, body(session.session_id, 1)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_refused():
    assert code_of(FetchSessions(10), body(99, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_does_not_change_between_names_and_ids():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER).session
    assert code_of(sessions, body(session.session_id, 1), version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_epoch_closes_the_session():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER).session
    sessions.open(body(session.session_id, -1, topics=[("t", 0, 5)]), VERSION, OWNER)
    assert code_of(sessions, body(session.session_id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_longest_unused_session_goes_when_the_slots_are_full():
    sessions = FetchSessions(2)
    first, second = (sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER).session for _ in range(2))
    sessions.open(body(first.session_id, 1), VERSION, OWNER)
    sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER)
    assert code_of(sessions, body(second.session_id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(body(first.session_id, 2), VERSION, OWNER)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_session_is_not_there_for_another_user(epoch):
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER).session
    assert code_of(sessions, body(session.session_id, 1), owner="User:bob") == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(body(session.session_id, epoch), VERSION, "User:bob")
    assert sessions.open(body(session.session_id, 1), VERSION, OWNER).targets[0].key == FetchKey("t", 0)
