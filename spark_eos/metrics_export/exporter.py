"""The exporter: a process that has the metrics of one driver, and ends with it."""

import json
import os
import sys
import threading
from contextlib import suppress
from typing import Final

from spark_eos.metrics_export.driver_process import DriverProcess, is_alive
from spark_eos.metrics_export.meeting_place import MeetingPlace
from spark_eos.metrics_export.messages import decode_changes, receive
from spark_eos.metrics_export.outputs import HttpOutput, Output, outputs_of
from spark_eos.metrics_export.store import MetricStore
from spark_eos.options.metrics import MetricsTargets

# How soon after its driver it ends, and how soon it tries a port again.
TICK_SECONDS: Final = 0.5
_MESSAGE_SECONDS: Final = 5.0


class Exporter:
    """The metrics of a driver, its outputs, and the socket where processes send changes."""

    def __init__(self, driver: DriverProcess) -> None:
        """Raise FileExistsError if the driver has an exporter."""
        self._driver = driver
        self._place = MeetingPlace(driver)
        self._store = MetricStore()
        self._outputs: dict[tuple[type[Output], object], Output] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Export until the driver has ended."""
        threading.Thread(target=self._receive_all, daemon=True).start()
        pause = threading.Event()
        while is_alive(self._driver) and self._place.is_mine:
            self._for_each_output("tick")
            pause.wait(TICK_SECONDS)
        self._place.close()
        self._for_each_output("close")

    def _for_each_output(self, method: str) -> None:
        with self._lock:
            for output in self._outputs.values():
                try:
                    getattr(output, method)()
                except Exception as error:
                    # One output must not end the others.
                    output.problem = f"metrics cannot be exported: {error!r}"

    def _receive_all(self) -> None:
        while True:
            try:
                connection, _ = self._place.listener.accept()
            except OSError:
                return
            # A process may be killed while it sends.
            with suppress(OSError, ValueError), connection:
                connection.settimeout(_MESSAGE_SECONDS)
                message = receive(connection)
                if message:
                    targets, changes = decode_changes(message)
                    self._store.apply(changes)
                    connection.sendall(json.dumps(self._answer(targets)).encode())

    def _answer(self, targets: list[MetricsTargets]) -> dict[str, object]:
        """Open new outputs, and return the state of all that a process has named."""
        problems, ports = [], []
        for each in targets:
            for argument, kind in outputs_of(each, self._store):
                output = self._output(argument, kind)
                if isinstance(output, HttpOutput):
                    ports.append(output.port)
                if output.problem:
                    problems.append(output.problem)
        return {"problems": problems, "ports": ports}

    def _output(self, argument: object, kind: type[Output]) -> Output:
        with self._lock:
            output = self._outputs.get((kind, argument))
            if output is None:
                output = self._outputs[kind, argument] = kind(argument, self._store)  # type: ignore[call-arg]
                output.tick()
            return output


def main() -> None:
    """Run in a process of its own, with a driver's id and start time as arguments."""
    with suppress(FileExistsError):
        Exporter(DriverProcess(int(sys.argv[1]), sys.argv[2])).run()
    # Threads of libraries must not keep the process.
    os._exit(0)
