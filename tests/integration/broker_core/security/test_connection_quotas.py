"""Limits of connections and requests: one client cannot use up all of them, and unauthenticated ones cost little."""

import contextlib
import socket
import ssl
import struct
import threading

import pytest
import trustme
from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import EmbeddedBroker
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.server.connection_quotas import ConnectionQuotas
from broker_core.server.listeners import plan_listeners
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


def quotas(slot_released=lambda: None, **settings):
    config = BrokerConfig().override(
        {"listeners": "PLAINTEXT://a:1,SSL://a:2", **{key.replace("_", "."): text for key, text in settings.items()}}
    )
    return ConnectionQuotas(config, plan_listeners(config, brokers=1, host="h", port=0), slot_released)


def test_full_broker_accepts_a_connection_when_another_closes():
    left = []
    counted = quotas(lambda: left.append(1), max_connections="2")
    slots = [counted.acquire("PLAINTEXT", "1"), counted.acquire("SSL", "2")]
    assert not counted.has_free_slot("PLAINTEXT")
    assert not counted.has_free_slot("SSL")
    slots[0].close()
    slots[0].close()
    assert (counted.has_free_slot("SSL"), left) == (True, [1])
    counted.acquire("SSL", "2")
    assert not counted.has_free_slot("SSL")


def test_listener_may_have_its_own_connection_limit():
    counted = quotas(max_connections="5", **{"listener.name.ssl.max.connections": "1"})
    counted.acquire("SSL", "1")
    assert (counted.has_free_slot("SSL"), counted.has_free_slot("PLAINTEXT")) == (False, True)


def test_inter_broker_listener_is_exempt_from_the_connection_limit():
    counted = quotas(max_connections="1", inter_broker_listener_name="SSL")
    counted.acquire("PLAINTEXT", "1")
    assert (counted.has_free_slot("PLAINTEXT"), counted.has_free_slot("SSL"), counted.is_over_limit()) == (
        False,
        True,
        False,
    )
    counted.acquire("SSL", "1")
    assert counted.is_over_limit()
    assert (counted.is_protected("SSL"), counted.is_protected("PLAINTEXT")) == (True, False)


def test_connections_per_address_are_limited():
    counted = quotas(max_connections_per_ip="1", max_connections_per_ip_overrides="10.0.0.1:2, [::1]:0")
    slot = counted.acquire("SSL", "10.0.0.2")
    assert counted.acquire("PLAINTEXT", "10.0.0.2") is None
    slot.close()
    assert counted.acquire("PLAINTEXT", "10.0.0.2") is not None
    assert [counted.acquire("SSL", "10.0.0.1") is not None for _ in range(3)] == [True, True, False]
    assert counted.acquire("SSL", "::1") is None


@pytest.mark.parametrize(("one", "same"), [("10.0.0.1", "::ffff:10.0.0.1"), ("::1", "0:0:0:0:0:0:0:1")])
def test_address_is_normalized(one, same):
    counted = quotas(max_connections_per_ip="2")
    assert [counted.acquire("SSL", address) is not None for address in (one, same, one, same)] == [
        True,
        True,
        False,
        False,
    ]
    for written in (one, same):
        counted = quotas(max_connections_per_ip_overrides=f"{written}:1")
        assert [counted.acquire("SSL", address) is not None for address in (same, one)] == [True, False]


def test_per_address_override_may_name_a_host(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", {"db": ("10.0.0.7", 0)}[host])])
    counted = quotas(max_connections_per_ip_overrides="db:1")
    assert [counted.acquire("SSL", address) is not None for address in ("10.0.0.7", "10.0.0.7", "10.0.0.8")] == [
        True,
        False,
        True,
    ]


def test_per_address_override_is_read_as_by_java(monkeypatch):
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", {"localhost": ("127.0.0.1", 0)}[host])]
    )
    counted = quotas(max_connections_per_ip_overrides=" 10.0.0.1 : +1, 10.0.0.2:-1, :0,")
    assert [counted.acquire("SSL", "10.0.0.1") is not None for _ in range(2)] == [True, False]
    assert counted.acquire("SSL", "10.0.0.2") is None
    assert counted.acquire("SSL", "127.0.0.1") is None


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "10.0.0.1:x", "10.0.0.1:1_0", "10.0.0.1:2147483648", "no host:1", f"{'a' * 64}.test:1"]
)
def test_invalid_override_is_refused(text):
    with pytest.raises(ConfigError, match="max.connections.per.ip.overrides"):
        quotas(max_connections_per_ip_overrides=text)


def test_connection_rate_is_limited_and_others_wait():
    counted = quotas(max_connection_creation_rate="4")
    assert [counted.wait_ms("SSL", 10_000) for _ in range(6)] == [0, 0, 0, 0, 250, 500]
    assert counted.wait_ms("SSL", 60_000) == 0


def test_listener_may_have_its_own_connection_rate():
    counted = quotas(**{"listener.name.ssl.max.connection.creation.rate": "1"})
    assert [counted.wait_ms("SSL", 10_000), counted.wait_ms("SSL", 10_000)] == [0, 1000]
    assert [counted.wait_ms("PLAINTEXT", 10_000), counted.wait_ms("PLAINTEXT", 10_000)] == [0, 0]


# Over sockets


def serves(client):
    return client.send(ApiVersionsRequest(), 0).error_code == 0


def test_excess_connections_wait_until_one_closes():
    with EmbeddedBroker(config={"max.connections": "2"}) as kafka:
        with RawClient(kafka.bootstrap_servers) as first, RawClient(kafka.bootstrap_servers) as second:
            assert serves(first)
            assert serves(second)
            with RawClient(kafka.bootstrap_servers) as third:
                answered = threading.Event()
                waiting = threading.Thread(target=lambda: serves(third) and answered.set())
                waiting.start()
                assert not answered.wait(0.2)
                first.close()
                assert answered.wait(30)
                waiting.join()


def test_least_active_connection_is_closed_for_an_inter_broker_connection():
    settings = {"max.connections": "2", "inter.broker.listener.name": "INSIDE"}
    with EmbeddedBroker(listeners={"CLEAR": "PLAINTEXT", "INSIDE": "PLAINTEXT"}, config=settings) as kafka:
        with RawClient(kafka.bootstrap("CLEAR")) as quiet, RawClient(kafka.bootstrap("CLEAR")) as busy:
            assert serves(quiet)
            # The broker compares idle times in milliseconds of its clock.
            started = kafka._call(lambda cluster: kafka._server.clock.now_ms())
            wait_until(lambda: kafka._server.clock.now_ms() > started, "the clock moves", pause_s=0.001)
            assert serves(busy)
            with RawClient(kafka.bootstrap("INSIDE")) as inside:
                assert serves(inside)
                assert quiet.is_closed_by_peer()
                assert serves(busy)


def test_ipv4_mapped_ipv6_address_counts_as_ipv4(caplog):
    settings = {
        "max.connections.per.ip": "1",
        "listeners": "BOTH://[::]:0,OLD://127.0.0.1:0",
        "advertised.listeners": "BOTH://127.0.0.1:0",
        "listener.security.protocol.map": "BOTH:PLAINTEXT,OLD:PLAINTEXT",
    }
    with EmbeddedBroker(config=settings) as kafka:
        with RawClient(kafka.bootstrap("BOTH")) as first, caplog.at_level("WARNING"):
            assert serves(first)
            [client] = kafka._server.clients.connected
            assert client._connection.client_host == "127.0.0.1"
            for listener in ("OLD", "BOTH"):
                with RawClient(kafka.bootstrap(listener)) as second:
                    assert second.is_closed_by_peer()
    assert "closing connection from 127.0.0.1 at BOTH" in caplog.text


def test_each_broker_counts_its_own_connections():
    with EmbeddedBroker(brokers=2, config={"max.connections": "1"}) as kafka:
        one, other = kafka.bootstrap_servers.split(",")
        with RawClient(one) as first, RawClient(other) as second:
            assert serves(first)
            assert serves(second)


def test_connection_in_tls_handshake_occupies_a_slot(tls_broker):
    with socket.create_connection(tls_broker, 30), socket.create_connection(tls_broker, 30) as second:
        assert second.recv(1) == b""


@pytest.fixture
def tls_broker():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with EmbeddedBroker(listeners={"A": "SSL"}, tls=context, config={"max.connections.per.ip": "1"}) as kafka:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        yield host, int(port)


def test_request_size_limit_is_configurable():
    with EmbeddedBroker(config={"socket.request.max.bytes": "100"}) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            assert serves(client)
            client.send_bytes(struct.pack(">i", 101))
            assert client.is_closed_by_peer()


def test_slowly_sent_frame_uses_no_more_memory_than_a_token():
    with EmbeddedBroker(listeners={"S": "SASL_PLAINTEXT"}, config={"sasl.server.max.receive.size": "1000"}) as kafka:
        with RawClient(kafka.bootstrap("S")) as vandal:
            vandal.send_bytes(struct.pack(">i", 1000) + b"x" * 999)
            server = kafka._server
            wait_until(
                lambda: [client._connection._reader.buffered_bytes for client in server.clients.connected] == [1003],
                "all has arrived",
            )
            with contextlib.suppress(ConnectionError):
                vandal.send_bytes(b"x" * 10_000_000)
            assert vandal.is_closed_by_peer()
