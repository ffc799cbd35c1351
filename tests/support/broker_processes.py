"""Run a broker of either kind in a process of its own, kill it, and start it again on what it left behind."""

import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_DEADLINE_S = 120
# What Apache Kafka aborts before its partitions have leaders again hangs (KAFKA-20734): so not right after its start,
# as it does not by default (10 s) either.
APACHE_SETTINGS = SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "4000"}
_LISTENING = re.compile(r"listening on (\S+:\d+)")


class Broker(Protocol):
    """Be one broker through its restarts; its address stays."""

    address: str

    def start(self) -> None:
        """Start on the folder's files and wait until clients are served."""

    def kill(self) -> None:
        """Send SIGKILL and wait until the process is gone."""

    def pause(self) -> None:
        """Send SIGSTOP."""

    def resume(self) -> None:
        """Send SIGCONT."""

    def close(self) -> None:
        """Leave nothing running."""


class BrokerCore:
    """Run `python -m broker_core`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        folder.mkdir(parents=True)
        lines = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
        (folder / "broker.properties").write_text(lines)

    def start(self) -> None:
        """Start on the folder's files; the first time on a free port, which is kept."""
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
            str(self._folder / "data"),
            "--config",
            str(self._folder / "broker.properties"),
        ]
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self._process = process

        def address() -> str | None:
            assert process.poll() is None, output.read_text()[-3000:]
            found = _LISTENING.search(output.read_text())
            return found and found[1]

        self.address = wait_until(address, "broker_core listens", deadline_s=START_DEADLINE_S) or ""

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave nothing running."""
        if self._process is not None:
            self.kill()


class Apache:
    """Run a KRaft node of Apache Kafka."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._block = ExitStack()
        self._node: ApacheKafka | None = None
        self.address = ""
        folder.mkdir(parents=True)

    def start(self) -> None:
        """Start on the folder's files and the same port."""
        self._node = self._block.enter_context(apache_kafka(APACHE_SETTINGS, self._folder))
        self.address = self._node.bootstrap_servers

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._node is not None
        self._node.kill()
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
        """Leave nothing running."""
        self._block.close()


def make_broker(kind: str, folder: Path) -> Broker:
    """Make a broker that is not started yet."""
    return BrokerCore(folder) if kind == "broker_core" else Apache(folder)
