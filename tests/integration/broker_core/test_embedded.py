"""The embedded broker: it starts fast, leaves nothing behind, and explains what it does not support."""

import os
import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError
from broker_core.types import TopicPartition
from tests.support.broker_core.produce_consume import consume, produce
from tests.support.listener_brokers import check_ipv6
from tests.support.waiting import wait_until


def test_embedded_broker_serves_clients_and_closes():
    others = set(threading.enumerate())
    with EmbeddedBroker(topics={"t": 2}) as kafka:
        address = kafka.bootstrap_servers
        produce(address, "t", [b"1", b"2"])
        assert sorted(consume(address, "t", 2)) == [b"1", b"2"]
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    assert "embedded-broker" not in {thread.name for thread in set(threading.enumerate()) - others}


def test_several_brokers_share_the_partitions():
    with EmbeddedBroker(brokers=3, topics={"t": 6}) as kafka:
        assert len(kafka.bootstrap_servers.split(",")) == 3
        metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30)
        assert sorted(metadata.brokers) == [1, 2, 3]
        assert {p.leader for p in metadata.topics["t"].partitions.values()} == {1, 2, 3}
        produce(kafka.bootstrap_servers, "t", [b"%d" % n for n in range(100)])
        assert len(consume(kafka.bootstrap_servers, "t", 100)) == 100


def test_closed_broker_leaves_no_thread_or_file(tmp_path):
    def held():
        files = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if os.path.lexists(link)}
        return (
            {thread.name for thread in threading.enumerate()},
            {file for file in files if file.startswith(str(tmp_path))},
        )

    threads, _ = held()
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 4}) as kafka:
        produce(kafka.bootstrap_servers, "t", [b"1", b"2"])
        kafka._call(
            lambda cluster: [
                cluster.logs.appended(TopicPartition("t", partition))
                for partition in range(4)
                if cluster.logs.get(TopicPartition("t", partition), cluster.now_ms) is not None
            ]
        )
        assert held()[1]
    assert held() == (threads, set())


@pytest.mark.parametrize("arguments", [{"host": "::1"}, {"config": {"listeners": "PLAINTEXT://[::1]:0"}}])
def test_addresses_of_ipv6_are_in_brackets(arguments):
    check_ipv6()
    with EmbeddedBroker(topics={"t": 1}, **arguments) as kafka:
        address, _, port = kafka.bootstrap_servers.rpartition(":")
        assert address == "[::1]"
        produce(kafka.bootstrap_servers, "t", [b"one"])
        assert kafka.records("t").values == [b"one"]
        with pytest.raises(OSError, match=rf"cannot listen on \[::1\]:{port}"):
            EmbeddedBroker(host="::1", port=int(port)).start()


def test_malformed_frame_closes_only_its_connection(caplog):
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as bad:
            bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert bad.recv(100) == b""
        produce(kafka.bootstrap_servers, "t", [b"still here"])
    assert len([r for r in caplog.records if "closing connection" in r.message]) == 1


@pytest.mark.parametrize("options", [{"transaction_version": 3}, {"transaction_version": -1}, {"brokers": 0}])
def test_invalid_cluster_configuration_is_refused(options):
    with pytest.raises(ConfigError, match="transaction.version|brokers"):
        EmbeddedBroker(**options)


def test_broker_that_cannot_persist_stops_with_an_error(monkeypatch):
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        address = kafka.bootstrap_servers

        def broken():
            raise OSError(5, "the disk is gone")

        # This log only: other tests' brokers may run in this process.
        log = kafka._call(lambda cluster: cluster.logs.get(TopicPartition("t", 0), cluster.now_ms))
        monkeypatch.setattr(log, "take_unsynced", broken)
        producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 2000, "log_level": 0})
        answers = []
        producer.produce("t", b"1", on_delivery=lambda error, _: answers.append(error))
        producer.flush(30)
        assert answers[0] is not None
        with pytest.raises(RuntimeError, match="the disk is gone"):
            _ = kafka.bootstrap_servers
        host, port = address.split(":")

        def is_shut() -> bool:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except ConnectionRefusedError:
                return True
            return False

        wait_until(is_shut, "the server refuses connections")
