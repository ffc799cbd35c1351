"""This process's side of the export: it starts the exporter if there is none, and sends what has changed.

A thread does so, because a micro-batch must not wait. The thread sends at most ten times a second, however many changes
there are.
"""

import atexit
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spark_eos.errors import OptionError
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS, Changes, ProcessMetrics
from spark_eos.metrics_export.meeting_place import DriverProcess, connect, driver_process, receive
from spark_eos.options.metrics import OTLP_OPTION, PORT_OPTION, TEXTFILE_OPTION, MetricsTargets
from spark_eos.runtime import Runtime, shared_state

logger: Final = logging.getLogger("spark_eos.metrics")
_PAUSE_SECONDS: Final = 0.1
_FOLLOWING_SECONDS: Final = 1.0
# For a start of the exporter on a busy machine, and until another start.
_START_SECONDS: Final = 30.0
# -S and -E: the path of this process is all that the exporter needs.
_CODE: Final = "import sys; sys.path[:] = sys.argv[3:]; from spark_eos.metrics_export.exporter import main; main()"


def check_exportable(targets: MetricsTargets | None) -> None:
    """Refuse targets if the library for them is missing, before any data is read or written."""
    if targets is None:
        return
    option = TEXTFILE_OPTION if targets.port is None else PORT_OPTION
    if targets.port is not None or targets.textfile is not None:
        try:
            import prometheus_client  # noqa: F401
        except ImportError as error:
            raise _missing(option, "prometheus-client", "metrics") from error
    if targets.otlp_endpoint is not None:
        try:
            import opentelemetry.exporter.otlp.proto.http
            import opentelemetry.sdk  # noqa: F401
        except ImportError as error:
            raise _missing(OTLP_OPTION, "opentelemetry-exporter-otlp-proto-http", "otlp") from error


def _missing(option: str, package: str, extra: str) -> OptionError:
    return OptionError(
        f"Option '{option}' needs the package {package}, which is not installed on the driver",
        remedy=f"Run `pip install '.[{extra}]'` in a clone of eos-kafka on the driver, or remove '{option}'",
    )


def publish(targets: MetricsTargets | None, wait_seconds: float = 0.0) -> None:
    """Send what this process has counted since the last time, and wait at most so long until it is delivered.

    Nothing stops the query: a problem is logged once.
    """
    if targets is not None:
        shared_state().part(MetricsSender).publish(targets, wait_seconds)


@contextmanager
def published(targets: MetricsTargets | None, wait_seconds: float = 0.0) -> Iterator[None]:
    """Send what the process counts in this block at its end, and every second while it lasts."""
    if targets is None:
        yield
        return
    sender = shared_state().part(MetricsSender)
    try:
        with sender.following(targets):
            yield
    finally:
        sender.publish(targets, wait_seconds)


class MetricsSender:
    """The thread of a process that sends its metrics."""

    def __init__(self, _runtime: Runtime, driver: DriverProcess | None = None) -> None:
        self.driver = driver
        self.ports: list[int | None] = []
        self.sides: tuple[ProcessMetrics, ...] = (SINK_METRICS, SOURCE_METRICS)
        self._changed = threading.Condition()
        self._targets: dict[MetricsTargets, None] = {}
        self._wanted = self._done = 0
        self._waiting = self._followed = 0
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._problems: list[str] = []
        self._logged: set[str] = set()

    def publish(self, targets: MetricsTargets, wait_seconds: float = 0.0) -> None:
        with self._changed:
            self._begin(targets)
            self._wanted += 1
            self._changed.notify_all()
        if wait_seconds:
            self.flush(wait_seconds)
        self._log_problems()

    @contextmanager
    def following(self, targets: MetricsTargets) -> Iterator[None]:
        with self._changed:
            self._begin(targets)
            self._followed += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._followed -= 1

    def _begin(self, targets: MetricsTargets) -> None:
        self._targets[targets] = None
        if self._thread is None:
            self.driver = self.driver or driver_process()
            self._thread = threading.Thread(target=self._run, name="eos-kafka metrics", daemon=True)
            self._thread.start()
            atexit.register(self.flush, seconds=1.0)

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent that was published; return whether it is."""
        with self._changed:
            wanted = self._wanted
            self._waiting += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._done >= wanted, seconds)
            finally:
                self._waiting -= 1

    def _log_problems(self) -> None:
        """Log in the thread of the caller, where Spark collects the log."""
        with self._changed:
            new = [each for each in dict.fromkeys(self._problems) if each not in self._logged]
            self._logged = self._logged.intersection(self._problems) | set(new)
        for problem in new:
            logger.warning("%s. The query continues without them", problem)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._done or self._followed > 0)
                self._changed.wait_for(lambda: self._wanted > self._done, _FOLLOWING_SECONDS)
                wanted, targets = self._wanted, list(self._targets)
            changes = {side.prefix: side.changes() for side in self.sides}
            if wanted == self._done and not any(changes.values()):
                continue
            try:
                problems = self._delivered(targets, changes)
            except Exception as error:
                problems = [f"metrics cannot be exported: {error}"]
                for side in self.sides:
                    side.take_back(changes[side.prefix])
            with self._changed:
                self._problems = problems
                self._done = wanted
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting) and self._wanted > self._done, _PAUSE_SECONDS)

    def _delivered(self, targets: list[MetricsTargets], changes: dict[str, Changes]) -> list[str]:
        """Send the changes, and return what the exporter reports; raise if they are not sent."""
        with self._connected() as connection:
            changed = {prefix: each for prefix, each in changes.items() if each}
            connection.sendall(pickle.dumps((targets, changed)))
            try:
                connection.shutdown(socket.SHUT_WR)
                answer = json.loads(receive(connection))
            except (OSError, ValueError):
                # Sent is counted: sent again, it might be counted twice.
                return self._problems
        self.ports = answer["ports"]
        return list(answer["problems"])

    def _connected(self) -> socket.socket:
        assert self.driver is not None
        clock = shared_state().runtime.clock
        until: float | None = None
        while True:
            try:
                return connect(self.driver, timeout_s=5.0)
            except (FileNotFoundError, ConnectionRefusedError):
                if until is None:
                    self._start(self.driver)
                    until = clock.monotonic() + _START_SECONDS
                elif clock.monotonic() > until:
                    raise
                clock.sleep(0.05)

    def _start(self, driver: DriverProcess) -> None:
        """Start an exporter; if another process does so at the same time, one of the two ends."""
        if self._process is not None:
            self._process.poll()
        # Spark's files may be on no path but this process's.
        path = [os.path.abspath(each) for each in sys.path]
        nothing = subprocess.DEVNULL
        # A session of its own: no signal to the group of a worker reaches it, and it blocks no terminal.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _CODE, *map(str, driver), *path],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            cwd="/",
            start_new_session=True,
        )
