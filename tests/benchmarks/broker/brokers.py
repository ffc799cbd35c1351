"""The three brokers that are measured, each in a process of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.broker.load import Broker
from tests.support.apache_kafka import Unavailable, apache_kafka, stop_process
from tests.support.child_process import start_child

MEMORY, DISK, APACHE = "memory", "disk", "Apache Kafka"
NAMES = (MEMORY, DISK, APACHE)
# The options of Apache Kafka's own start script.
APACHE_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)

# An installed package is compiled, so the source tree's modules are too, whatever the caller's environment says.
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def broker_core(name: str, *arguments: str, program: Sequence[str] = ("broker_core",)) -> Iterator[Broker]:
    """Run `broker-core` with these arguments, or another module, and what comes first for it, that has them too."""
    command = [sys.executable, "-m", *program, "--port", "0", "--log-level", "ERROR", *arguments]
    process = start_child(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=COMPILED,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split(" on ", 1)[1].split(" ", 1)[0]
        yield Broker(name, address, process.pid)
    finally:
        stop_process(process)


@contextmanager
def _with_settings(name: str, settings: Mapping[str, str]) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        arguments = ["--config", str(file)]
        if name == DISK:
            arguments += ["--data-dir", str(Path(folder) / "data")]
        with broker_core(name, *arguments) as broker:
            yield broker


@contextmanager
def _apache(settings: Mapping[str, str]) -> Iterator[Broker]:
    with apache_kafka(settings, jvm=APACHE_JVM) as node:
        yield Broker(APACHE, node.bootstrap_servers, node.process.pid)


@contextmanager
def running(names: Sequence[str] = NAMES, settings: Mapping[str, str] | None = None) -> Iterator[list[Broker]]:
    """Start the brokers of these names; where Apache Kafka cannot run, a line says why and it is left out."""
    given = settings or {}
    makers = {
        MEMORY: lambda: _with_settings(MEMORY, given),
        DISK: lambda: _with_settings(DISK, given),
        APACHE: lambda: _apache(given),
    }
    with ExitStack() as stack:
        brokers = []
        for name in names:
            try:
                brokers.append(stack.enter_context(makers[name]()))
            except Unavailable as problem:
                print(f"{name}: {problem}", file=sys.stderr)
        yield brokers
