"""A process that a test has forked has a copy of the broker: it is refused, and keeps nothing open for the broker."""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from broker_core import EmbeddedBroker

_PATIENCE_S = 20
# ApiVersions 0, without a client id.
_ANY_REQUEST = bytes.fromhex("0000000a 0012 0000 00000007 ffff")


@contextmanager
def _forked(action: Callable[[], object]) -> Iterator[int]:
    """Fork a process that writes what a call returns, or its error, to a pipe, which is given, and then stays."""
    reader, writer = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        try:
            os.close(reader)
            try:
                text = str(action())
            except Exception as error:
                text = repr(error)
            os.write(writer, text.encode())
            os.close(writer)
            signal.pause()
        finally:
            os._exit(0)
    os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)


def _written(reader: int) -> str:
    assert select.select([reader], [], [], _PATIENCE_S)[0], "the forked process hangs"
    return os.read(reader, 1000).decode()


@pytest.mark.parametrize(
    "call",
    [
        lambda kafka: kafka.topics,
        lambda kafka: kafka.produce("orders", "one"),
        lambda kafka: kafka.fault(api="Fetch", action=lambda _: None),
        lambda kafka: kafka.broker(1).is_running,
        EmbeddedBroker.restart,
        EmbeddedBroker.snapshot,
    ],
    ids=["topics", "produce", "fault", "is_running", "restart", "snapshot"],
)
def test_call_in_a_forked_process_is_refused(call):
    with EmbeddedBroker(topics={"orders": 1}) as kafka, _forked(lambda: call(kafka)) as reader:
        assert f"the broker runs in process {os.getpid()}, which has forked this one" in _written(reader)
        assert kafka.topics == {"orders": 1}


def test_forked_process_finds_the_addresses_and_closes_nothing():
    def use() -> str:
        kafka.close()
        return kafka.bootstrap_servers

    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        with _forked(use) as reader:
            assert _written(reader) == kafka.bootstrap_servers
        kafka.produce("orders", "one")
        assert kafka.records("orders").values == [b"one"]


def test_brokers_restart_while_a_forked_process_lives():
    with EmbeddedBroker(brokers=2, topics={"orders": 1}) as kafka, _forked(int):
        before = kafka.bootstrap_servers
        kafka.restart()
        kafka.broker(2).crash()
        kafka.broker(2).start()
        assert kafka.bootstrap_servers == before
        for address in before.split(","):
            host, _, port = address.partition(":")
            socket.create_connection((host, int(port)), _PATIENCE_S).close()


def test_clients_are_cut_off_while_a_forked_process_lives():
    with EmbeddedBroker() as kafka:
        host, _, port = kafka.bootstrap_servers.partition(":")
        with socket.create_connection((host, int(port)), _PATIENCE_S) as client:
            client.sendall(_ANY_REQUEST)
            assert client.recv(1)
            with _forked(int):
                kafka.crash()
                while client.recv(1000):
                    pass
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((host, int(port)), _PATIENCE_S)


def test_folder_is_free_while_a_forked_process_lives(tmp_path):
    with EmbeddedBroker(listeners={}, data_dir=tmp_path, topics={"orders": 1}) as kafka, _forked(int):
        kafka.produce("orders", "one")
        kafka.close()
        with EmbeddedBroker(listeners={}, data_dir=tmp_path) as again:
            assert again.records("orders").values == [b"one"]


def test_port_that_another_program_has_taken_is_named():
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        host, _, port = kafka.bootstrap_servers.partition(":")
        kafka.broker(1).stop()
        kafka._thread.act(lambda server: server._ports.close())
        with socket.create_server((host, int(port))), pytest.raises(OSError, match=f"cannot listen on {host}:{port}: "):
            kafka.broker(1).start()
        assert not kafka.broker(1).is_running
        kafka.restart()
        assert kafka.topics == {"orders": 1}
