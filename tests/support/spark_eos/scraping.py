"""Exporters for tests, whose driver is a process of the test, and what they serve."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spark_eos.metrics_export.meeting_place import DriverProcess, _stat, socket_path
from spark_eos.metrics_export.sender import MetricsSender
from spark_eos.runtime import REAL, shared_state
from tests.support.waiting import wait_until

DEADLINE_S = 60


class Driver:
    """A process that stands for Spark's driver."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["sleep", "600"])
        self.identity = DriverProcess(self._process.pid, _stat(self._process.pid).started)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for_exporter_end(self) -> None:
        wait_until(lambda: not socket_path(self.identity).exists(), "the exporter's end", deadline_s=DEADLINE_S)


@contextmanager
def running_driver() -> Iterator[Driver]:
    driver = Driver()
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait_for_exporter_end()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Run a test as in a process of a driver that has no exporter yet."""
    with running_driver() as found:
        monkeypatch.setitem(shared_state()._parts, MetricsSender, MetricsSender(REAL, found.identity))
        yield found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


_REFUSING: Final[list[socket.socket]] = []


def refusing_port() -> int:
    """Return a port at which nothing listens, and which no other process gets while this one runs."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    _REFUSING.append(held)
    return int(held.getsockname()[1])


def scraped(port: int | None) -> dict[str, float]:
    """Read an endpoint as Prometheus does: values by name and labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        return parsed(answer.read().decode())


def parsed(text: str) -> dict[str, float]:
    """Return the values of Prometheus' text by name and labels."""
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
