"""The metrics endpoint of this process: a port for it, and its content."""

import socket
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spark_eos.metrics_endpoint import ServedPorts
from spark_eos.runtime import process_state

_DEADLINE_S = 60


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test as in a process that serves no metrics yet."""
    monkeypatch.setattr(process_state().part(ServedPorts), "by_place", {})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def scraped(port: int | None) -> dict[str, float]:
    """Read an endpoint as Prometheus does: values by name and labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_DEADLINE_S) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
