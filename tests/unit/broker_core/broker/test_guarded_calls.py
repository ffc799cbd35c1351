"""An exception in a waiting request closes its client's connection and affects no other client."""

import logging

import pytest

from broker_core.broker.handlers import fetch as fetching
from broker_core.broker.handlers import groups, produce
from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.support.broker_core.requests import TOPIC, fetch, first_join, init_producer, produced, records, transactional
from tests.support.broker_core.requests import produce as produce_request
from tests.support.direct import DirectClient, direct_cluster

WAIT_MS = 500


@pytest.fixture
def cluster():
    cluster = direct_cluster()
    cluster.controller.create_topic(TOPIC, 1)
    return cluster


def failing_for(owner, real):
    """Return the function with a bug that affects one client only."""

    def fail(context, *arguments, **named):
        if context.client_id == owner.client_id:
            raise ZeroDivisionError("a bug")
        return real(context, *arguments, **named)

    return fail


def two_waiting(cluster, request, version):
    """Return two clients with waiting requests; the first one triggers the bug."""
    clients = DirectClient(cluster), DirectClient(cluster)
    clients[0].client_id = "unlucky"
    for client in clients:
        client.post(request(), version)
        assert client.take() is None
    return clients


def logged(caplog):
    return [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]


@pytest.mark.parametrize("function", ["_is_worth_answering", "_answer"])
def test_fetch_that_fails_when_it_is_completed(cluster, monkeypatch, caplog, function):
    unlucky, other = two_waiting(cluster, lambda: fetch(0, max_wait_ms=WAIT_MS)[0], 11)
    monkeypatch.setattr(fetching, function, failing_for(unlucky, getattr(fetching, function)))
    writer = DirectClient(cluster)
    assert produced(writer, records()).error_code == 0
    assert (unlucky.closed, other.closed) == (True, False)
    assert bytes(other.take().responses[0].partitions[0].records)
    assert len(logged(caplog)) == 1
    assert cluster.purgatory.next_deadline_ms() is None


def test_fetch_that_fails_at_its_deadline(cluster, monkeypatch, caplog):
    unlucky, other = two_waiting(cluster, lambda: fetch(0, max_wait_ms=WAIT_MS)[0], 11)
    monkeypatch.setattr(fetching, "_answer", failing_for(unlucky, fetching._answer))
    cluster.advance(cluster.now_ms + WAIT_MS)
    assert (unlucky.closed, other.closed) == (True, False)
    assert other.take().responses[0].partitions[0].error_code == 0
    assert len(logged(caplog)) == 1


def test_join_whose_response_fails_while_another_request_is_handled(monkeypatch, caplog):
    cluster = direct_cluster(settings={"group.initial.rebalance.delay.ms": "3000"})
    cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    clients = [DirectClient(cluster) for _ in range(3)]
    clients[1].client_id = "unlucky"
    for number, client in enumerate(clients):
        client.post(first_join(f"i{number}"), 9)
    monkeypatch.setattr(groups, "_joined", failing_for(clients[1], groups._joined))
    for _ in range(4):
        cluster.advance(cluster.now_ms + 3000)
    assert [client.closed for client in clients] == [False, True, False]
    assert all(client.take().error_code == 0 for client in (clients[0], clients[2]))
    assert len(logged(caplog)) == 1


def test_produce_that_fails_when_it_queries_the_coordinator_again(cluster, monkeypatch, caplog):
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    monkeypatch.setattr(
        produce,
        "coordinator_answers",
        lambda _cluster, _id, _producer, partitions, _mode, _now_ms: (
            dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS),
            True,
        ),
    )
    writers = DirectClient(cluster), DirectClient(cluster)
    writers[0].client_id = "unlucky"
    for writer in writers:
        identity = init_producer(writer, writer.client_id)
        batch = transactional(identity)
        writer.post(*produce_request(batch, transactional_id=writer.client_id, version=12))
    asks_again = failing_for(writers[0], lambda _context, work, now_ms: produce._append_all(work, now_ms))
    monkeypatch.setattr(produce, "_verify", lambda work, now_ms: asks_again(work.context, work, now_ms))
    cluster.advance(cluster.now_ms + WAIT_MS)
    assert [writer.closed for writer in writers] == [True, False]
    assert writers[1].take() is not None
    assert len(logged(caplog)) == 1
