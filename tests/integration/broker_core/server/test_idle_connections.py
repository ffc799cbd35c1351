"""Connections without traffic are closed after connections.max.idle.ms, and no others."""

import threading

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import EmbeddedBroker, Hold
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TopicPartition
from tests.support.broker_core.requests import fetch_request
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

IDLE_S = 60
# More than the kernel buffers for a client that does not read.
LARGE = 32 * 2**20


@pytest.fixture
def kafka():
    settings = {"connections.max.idle.ms": str(IDLE_S * 1000), "message.max.bytes": str(2 * LARGE)}
    with EmbeddedBroker(clock="virtual", config=settings, topics={"t": 1}) as kafka:
        yield kafka


def look_after(kafka, seconds):
    """Let time pass, then look for idle connections as the server does between its deadlines."""
    kafka.clock.advance(seconds)
    kafka._thread.act(lambda server: server._advance())


def connections(kafka):
    return kafka._thread.act(lambda server: len(server.clients.connected))


def test_idle_connection_is_closed(kafka):
    with RawClient(kafka.bootstrap_servers) as client:
        client.send(ApiVersionsRequest(), 0)
        look_after(kafka, IDLE_S - 1)
        assert connections(kafka) == 1
        client.send(ApiVersionsRequest(), 0)
        look_after(kafka, IDLE_S - 1)
        assert connections(kafka) == 1
        look_after(kafka, 1)
        assert client.is_closed_by_peer()


def test_response_counts_as_activity(kafka):
    go_on = threading.Event()
    request = ApiVersionsRequest()
    with kafka.fault(api="ApiVersions", action=Hold(go_on)), RawClient(kafka.bootstrap_servers) as client:
        client.post(request, 0)
        wait_until(lambda: kafka.requests(api="ApiVersions"), "the request has come")
        look_after(kafka, IDLE_S - 10)
        go_on.set()
        assert client.collect(request).error_code == 0
        look_after(kafka, IDLE_S - 10)
        assert connections(kafka) == 1
        look_after(kafka, 10)
        assert client.is_closed_by_peer()


def fetch_all():
    return fetch_request("t", {"partition_max_bytes": 2 * LARGE}, max_bytes=2 * LARGE)


@pytest.mark.parametrize("reads", [True, False])
def test_client_reading_slowly_is_not_idle_but_one_not_reading_is(kafka, reads):
    def write(cluster):
        batch = build_batch([NewRecord(None, bytes(LARGE), (), cluster.now_ms)])
        cluster.logs.get(TopicPartition("t", 0), cluster.now_ms).append_as_leader(
            batch, now_ms=cluster.now_ms, leader_epoch=0
        )

    kafka._call(write)
    with RawClient(kafka.bootstrap_servers) as client:
        client.post(fetch_all(), 12)
        wait_until(lambda: unsent(kafka) > 0, "the answer is under way")
        for _ in range(4):
            if reads:
                before = unsent(kafka)
                while unsent(kafka) == before:
                    assert client._socket.recv(2**16)
            look_after(kafka, IDLE_S - 10)
        # The broker disconnects a client that does not read, although bytes for it are still unsent.
        wait_until(lambda: connections(kafka) == int(reads), "the server has decided")


def unsent(kafka):
    return kafka._thread.act(
        lambda server: sum(client._transport.get_write_buffer_size() for client in server.clients.connected)
    )
