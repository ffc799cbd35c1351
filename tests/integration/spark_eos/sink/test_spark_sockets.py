import logging
import os
import socket
from collections import Counter
from contextlib import suppress

import pytest

from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.spark_sockets import acknowledge_input, has_unix_sockets, report_sockets

needs_quick_acknowledgements = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux delays acknowledgements by a socket option"
)


@pytest.fixture(autouse=True)
def _tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHON_UNIX_DOMAIN_ENABLED", raising=False)
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_SOCK_PATH", raising=False)


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as worker:
            jvm, _ = server.accept()
            with jvm:
                yield worker, jvm


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PYTHON_UNIX_DOMAIN_ENABLED", "true", True),
        ("PYTHON_UNIX_DOMAIN_ENABLED", "True", True),
        ("PYTHON_UNIX_DOMAIN_ENABLED", "false", False),
        ("PYTHON_WORKER_FACTORY_SOCK_PATH", "/tmp/a.sock", True),
        ("PYTHON_WORKER_FACTORY_PORT", "4711", False),
    ],
)
def test_spark_socket_type_is_read_from_the_environment(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    assert has_unix_sockets() is expected


@needs_quick_acknowledgements
def test_received_task_data_is_acknowledged_immediately(pair):
    worker, _ = pair
    worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
    assert acknowledge_input() >= 2
    assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def descriptors() -> Counter[str]:
    """Return how many file descriptors of this process each open socket has, by the socket's name."""
    found = Counter[str]()
    for name in os.listdir("/proc/self/fd"):
        # Another thread may have closed it.
        with suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return Counter({link: count for link, count in found.items() if link.startswith("socket:")})


@needs_quick_acknowledgements
def test_other_file_descriptors_are_unchanged_and_none_leaks(pair):
    first, second = socket.socketpair(socket.AF_UNIX)
    with first, second, socket.socket() as unused, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        own = {os.readlink(f"/proc/self/fd/{each.fileno()}") for each in (*pair, first, second, unused, datagrams)}
        before = descriptors()
        assert acknowledge_input() >= 2
        after = descriptors()
    # Other threads may open and close sockets meanwhile, but the function alone duplicates a descriptor.
    assert {link: after[link] for link in own} == dict.fromkeys(own, 1)
    assert [link for link, count in before.items() if after[link] > count] == []


def test_sockets_stay_blocking_despite_a_default_timeout(pair):
    worker, _ = pair
    socket.setdefaulttimeout(5)
    try:
        acknowledge_input()
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(worker.fileno())


def test_unix_sockets_are_left_unchanged(pair, monkeypatch):
    monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", "true")
    assert acknowledge_input() == 0


def test_systems_without_quick_ack_are_left_unchanged(pair, monkeypatch):
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    assert acknowledge_input() == 0


def test_tcp_is_logged_once_per_process(caplog):
    process = ProcessState(REAL)
    with caplog.at_level(logging.INFO, "spark_eos.sink"):
        report_sockets(process)
        report_sockets(process)
    assert [record.getMessage().count("spark.python.unix.domain.socket.enabled=true") for record in caplog.records] == [
        1
    ]


def test_unix_sockets_are_not_logged(caplog, monkeypatch):
    monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", "true")
    with caplog.at_level(logging.INFO, "spark_eos.sink"):
        report_sockets(ProcessState(REAL))
    assert not caplog.records
