"""A broker of either kind in a process of its own, which can be killed and restarted on its files."""

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import DATA, ApacheKafka, apache_kafka
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_DEADLINE_S = 120
STOP_DEADLINE_S = 60
# A transaction that Apache Kafka aborts before its partitions have leaders again hangs (KAFKA-20734). So the search
# for timed-out transactions does not run right after the start, as it does not by default (10 s) either.
APACHE_SETTINGS = SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "4000"}
# Of several listeners each has its name before it.
_LISTENING = re.compile(r"listening on (?:[A-Z_]+ )?(\S+:\d+)")


def address_in(output: str) -> str | None:
    """Return the address of the first listener that a broker says it has."""
    found = _LISTENING.search(output)
    return found and found[1]


class Broker(Protocol):
    """One broker through its restarts, at one address."""

    address: str
    # One folder for each partition; readable after a clean stop.
    data: Path

    def start(self) -> None:
        """Start on the folder's files and wait until the broker serves clients."""

    def kill(self) -> None:
        """Send SIGKILL and wait until the process is gone."""

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has closed its logs and ended."""

    def pause(self) -> None:
        """Send SIGSTOP."""

    def resume(self) -> None:
        """Send SIGCONT."""

    def close(self) -> None:
        """End the process."""


class BrokerCore:
    """`python -m broker_core` in a process."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = SETTINGS, address: str = "") -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = address
        self.data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "broker.properties").write_text(lines)

    def start(self) -> None:
        """Start on the folder's files; without an address, the first start chooses a port, which later ones keep."""
        output = self._folder / "output"
        port = self.address.rpartition(":")[2] or "0"
        command = [
            sys.executable,
            "-m",
            "broker_core",
            "--port",
            port,
            "--log-level",
            "WARNING",
            "--data-dir",
            str(self.data),
            "--config",
            str(self._folder / "broker.properties"),
        ]
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self._process = process

        def address() -> str | None:
            assert process.poll() is None, output.read_text()[-3000:]
            return address_in(output.read_text())

        try:
            self.address = wait_until(address, "broker_core listens", deadline_s=START_DEADLINE_S) or ""
        except AssertionError:
            self.close()
            raise

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(STOP_DEADLINE_S)
        assert status == 0, f"broker_core ended with {status}: {(self._folder / 'output').read_text()[-3000:]}"

    def pause(self) -> None:
        """Send SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self.kill()


class Apache:
    """A KRaft node of Apache Kafka in a process, in the version of the conformance tests or in another one."""

    def __init__(self, folder: Path, version: str | None = None) -> None:
        self._folder = folder
        self._version = version
        self._block = ExitStack()
        self._node: ApacheKafka | None = None
        self.address = ""
        self.data = folder / DATA
        folder.mkdir(parents=True)

    def start(self) -> None:
        """Start on the folder's files and the same port."""
        self._node = self._block.enter_context(apache_kafka(APACHE_SETTINGS, self._folder, version=self._version))
        self.address = self._node.bootstrap_servers

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._node is not None
        self._node.kill()
        self._block.close()

    def stop(self) -> None:
        """Send SIGTERM."""
        assert self._node is not None
        self._node.stop()
        self._block.close()

    def pause(self) -> None:
        """Send SIGSTOP."""
        assert self._node is not None
        self._node.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self._node is not None
        self._node.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process."""
        self._block.close()


def make_broker(kind: str, folder: Path, apache_version: str | None = None) -> Broker:
    """Return a broker that is not started yet."""
    return BrokerCore(folder) if kind == "broker_core" else Apache(folder, apache_version)
