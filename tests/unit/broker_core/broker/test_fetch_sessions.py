"""Fetch sessions (KIP-227): a client sends its partitions once and only changes afterwards."""

from types import SimpleNamespace as Body

import pytest

from broker_core.broker.fetch_sessions import EVICTION_MS, FetchKey, FetchSessions
from broker_core.errors import ErrorCode, KafkaError
from tests.support.broker_core.requests import fetch_request
from tests.support.direct import DirectClient, direct_cluster

VERSION, OWNER, NOW = 12, "User:alice", 1_000_000


def body(session_id=0, epoch=0, topics=(), forgotten=()):
    return Body(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            Body(
                topic=name,
                topic_id=name,
                partitions=[
                    Body(
                        partition=p,
                        fetch_offset=offset,
                        partition_max_bytes=100,
                        current_leader_epoch=-1,
                        last_fetched_epoch=-1,
                    )
                ],
            )
            for name, p, offset in topics
        ],
        forgotten_topics_data=[Body(topic=name, topic_id=name, partitions=[p]) for name, p in forgotten],
    )


def code_of(sessions, request, version=VERSION, owner=OWNER):
    with pytest.raises(KafkaError) as caught:
        sessions.open(request, version, owner, NOW)
    return caught.value.code


def test_sessionless_fetch_creates_no_session():
    context = FetchSessions(10).open(body(epoch=-1, topics=[("t", 0, 5)]), VERSION, OWNER, NOW)
    assert (context.session, context.incremental, context.targets[0].fetch_offset) == (None, False, 5)


def test_incremental_fetch_remembers_earlier_partitions():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5), ("u", 0, 6)]), VERSION, OWNER, NOW).session
    change = body(session.session_id, 1, topics=[("t", 0, 8)], forgotten=[("u", 0)])
    context = sessions.open(change, VERSION, OWNER, NOW)
    assert context.incremental
    assert [(t.key, t.fetch_offset) for t in context.targets] == [(FetchKey("t", 0), 8)]


def test_each_session_request_has_the_next_epoch():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER, NOW).session
    assert code_of(sessions, body(session.session_id, 2)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.open(body(session.session_id, 1), VERSION, OWNER, NOW)
    assert code_of(sessions, body(session.session_id, 1)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_unknown_session_is_refused():
    assert code_of(FetchSessions(10), body(99, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_cannot_switch_between_topic_names_and_ids():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER, NOW).session
    assert code_of(sessions, body(session.session_id, 1), version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_final_epoch_closes_the_session():
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER, NOW).session
    sessions.open(body(session.session_id, -1, topics=[("t", 0, 5)]), VERSION, OWNER, NOW)
    assert code_of(sessions, body(session.session_id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# Eviction


def opened(sessions, now_ms, partitions=1):
    """Open a session and return it, or None if the cache refuses it."""
    topics = [(f"t{number}", 0, 5) for number in range(partitions)]
    context = sessions.open(body(topics=topics), VERSION, OWNER, now_ms)
    assert len(context.targets) == partitions
    return context.session


def used(sessions, session, now_ms):
    """Fetch in a session and return whether it still existed."""
    try:
        sessions.open(body(session.session_id, session.epoch), VERSION, OWNER, now_ms)
    except KafkaError as error:
        assert error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return False
    return True


def test_new_session_is_refused_while_all_slots_are_in_use():
    sessions = FetchSessions(2)
    kept = [opened(sessions, NOW), opened(sessions, NOW)]
    assert opened(sessions, NOW + EVICTION_MS, partitions=9) is None
    assert [used(sessions, each, NOW + EVICTION_MS) for each in kept] == [True, True]


def test_least_recently_used_session_is_evicted_after_two_minutes():
    sessions = FetchSessions(2)
    longest, other = opened(sessions, NOW, partitions=9), opened(sessions, NOW)
    assert used(sessions, longest, NOW + 10)
    assert used(sessions, other, NOW + 20)
    assert opened(sessions, NOW + 10 + EVICTION_MS) is None
    assert opened(sessions, NOW + 11 + EVICTION_MS) is not None
    assert [used(sessions, each, NOW + 12 + EVICTION_MS) for each in (longest, other)] == [False, True]


def test_smallest_session_older_than_two_minutes_is_evicted_for_a_larger_one():
    sessions = FetchSessions(3)
    small, large = opened(sessions, NOW, partitions=2), opened(sessions, NOW, partitions=4)
    then = NOW + EVICTION_MS + 1
    for now_ms in (NOW + 60_000, then):
        assert used(sessions, large, now_ms)
        assert used(sessions, small, now_ms)
    young = opened(sessions, then)
    assert opened(sessions, then, partitions=2) is None, "a session of the same size is not evicted"
    assert opened(sessions, then, partitions=3) is not None
    assert [used(sessions, each, then) for each in (small, large, young)] == [False, True, True]


def test_fetch_without_session_slots_is_sessionless():
    assert opened(FetchSessions(0), NOW) is None


def test_session_age_uses_broker_time():
    cluster = direct_cluster(settings={"max.incremental.fetch.session.cache.slots": "1"})
    cluster.controller.create_topic("t", 1)
    clients = [DirectClient(cluster) for _ in range(3)]

    def session_id(client):
        return client.ask(fetch_request("t", {}, session_epoch=0), 12).session_id

    assert [session_id(client) > 0 for client in clients] == [True, False, False]
    cluster.advance(cluster.now_ms + EVICTION_MS + 1)
    assert [session_id(client) > 0 for client in clients] == [True, False, False]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_session_is_unknown_to_another_user(epoch):
    sessions = FetchSessions(10)
    session = sessions.open(body(topics=[("t", 0, 5)]), VERSION, OWNER, NOW).session
    assert code_of(sessions, body(session.session_id, 1), owner="User:bob") == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(body(session.session_id, epoch), VERSION, "User:bob", NOW)
    assert sessions.open(body(session.session_id, 1), VERSION, OWNER, NOW).targets[0].key == FetchKey("t", 0)
