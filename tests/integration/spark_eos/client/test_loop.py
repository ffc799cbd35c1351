"""The client's event loop: one iteration for an exchange, bytes in order, cheap cancellation of timers."""

import contextlib
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.admin import ListTransactionsRequest

from broker_core import EmbeddedBroker
from spark_eos.client import transport
from spark_eos.client.event_loop import EventLoop, write_directly
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions

EXCHANGES = 20
TIMERS = 5_000
HOUR_S = 3_600.0
DEADLINE_S = 60


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


def test_exchange_takes_one_loop_turn_and_keeps_the_socket_registered():
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        describe_transactions(client, ["warm"])
        selector = client.transport._selector._selector
        calls: Counter[str] = Counter()

        def counted(name: str):
            real = getattr(selector, name)

            def call(*args, **kwargs):
                calls[name] += 1
                return real(*args, **kwargs)

            return patch.object(selector, name, call)

        with counted("select"), counted("register"), counted("modify"), counted("unregister"):
            for _ in range(EXCHANGES):
                describe_transactions(client, ["warm"])
    assert calls == {"select": EXCHANGES}


def test_connection_closed_by_the_broker_while_idle_loses_no_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "_IDLE_SECONDS", 0.0)
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        [node] = [each.node_id for each in client.brokers()]
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        client.send(node, request)
        sock = client.transport._manager._conns[node].transport._sock
        kafka.restart()
        assert select.select([sock], [], [], DEADLINE_S)[0], "the broker has left the connection open"
        client.send(node, request)


@pytest.mark.parametrize("sizes", [[10], [3_000_000, 10, 3_000_000, 1]])
def test_partially_sent_data_follows_in_order(loop: EventLoop, sizes: list[int]):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    transport = KafkaTCPTransport(loop, ours, host="test")
    write_directly(transport)
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    for data in sent:
        transport.write(data)
    received = bytearray()
    until = time.monotonic() + DEADLINE_S
    while len(received) < sum(sizes) and time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            received += theirs.recv(1 << 20)
        loop.poll(timeout_ms=0)
    assert received == b"".join(sent)
    transport.close()
    theirs.close()


def test_reset_socket_ends_the_connection_but_not_the_caller(loop: EventLoop):
    class Protocol:
        _sensors = None
        lost: BaseException | None = None

        def connection_lost(self, error: BaseException | None) -> None:
            self.lost = error

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport, protocol = KafkaTCPTransport(loop, ours, host="test"), Protocol()
    transport.set_protocol(protocol)
    write_directly(transport)
    theirs.close()
    transport.write(b"request")
    assert protocol.lost is None, "the caller still uses the connection"
    until = time.monotonic() + DEADLINE_S
    while protocol.lost is None and time.monotonic() < until:
        loop.poll(timeout_ms=0)
    assert protocol.lost is not None


def test_cancelled_timers_are_dropped_and_others_run(loop: EventLoop):
    ran: list[str] = []
    now = time.monotonic()
    timers = [loop.call_at(now + HOUR_S + number, lambda: ran.append("cancelled")) for number in range(TIMERS)]
    loop.call_at(now, lambda: ran.append("due"))
    moved = loop.call_at(now + HOUR_S, lambda: ran.append("moved"))
    loop.reschedule(now, moved)
    for timer in timers[1:]:
        loop.cancel(timer)
    assert len(loop._scheduled) < TIMERS // 10
    loop.cancel(timers[0])
    loop.poll(timeout_ms=0)
    loop.drain()
    assert sorted(ran) == ["due", "moved"]
    assert loop._next_scheduled_timeout(now) is None
