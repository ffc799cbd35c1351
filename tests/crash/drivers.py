"""Spark drivers in separate processes; while one works, the next one starts, since that takes seconds."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash.case import Case
from tests.support.processes import Process, is_executor, send, tree
from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME
from tests.support.spark_eos.spark_session import ROOT, worker_environment
from tests.support.waiting import wait_until

BOOT_DEADLINE_S = 240
END_DEADLINE_S = 60


class Driver:
    """One driver: its queries, its armed failpoints, and the ways to break it."""

    def __init__(self, folder: Path, number: int, module: str = "tests.crash.driver") -> None:
        self._rules_file = folder / f"rules-{number}"
        self.log = folder / f"driver-{number}.log"
        self._rules: dict[str, str] = {}
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self._ended: dict[str, str | None] = {}
        self._jvm: int | None = None
        self._family: list[Process] = []
        self.is_killed = False
        environment = {
            **os.environ,
            **worker_environment(),
            ENVIRONMENT_NAME: f"@{self._rules_file}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def boot(self) -> None:
        """Wait until the JVM is up and warm."""
        wait_until(self._booted, "the driver boots", deadline_s=BOOT_DEADLINE_S)

    def arm(self, case: Case, *rules: str) -> None:
        """Replace the rules of one case; see `Case.rule`."""
        self._rules[case.prefix] = ";".join(rules)
        fresh = self._rules_file.with_suffix(".fresh")
        fresh.write_text(";".join(text for text in self._rules.values() if text))
        os.replace(fresh, self._rules_file)

    def disarm(self) -> None:
        """Remove all rules: processes read them at every visit of a failpoint."""
        self._rules.clear()
        self._rules_file.unlink(missing_ok=True)

    def start(self, case: Case, **options: str) -> None:
        """Start the query of a case."""
        self._ended.pop(case.prefix, None)
        self._command(
            {
                "name": case.prefix,
                "input": str(case.input),
                "source": case.source,
                "endless": case.endless,
                "checkpoint": str(case.checkpoint),
                "options": case.options | options,
            }
        )

    def stop(self, case: Case) -> None:
        """Stop the query of a case, which must have been started, as `query.stop()` does."""
        self._command({"stop": case.prefix})

    def has_ended(self, case: Case) -> bool:
        """Return whether the query of a case has ended, with or without an error."""
        self._drain()
        assert self._process.poll() is None or case.prefix in self._ended, self.tail()
        return case.prefix in self._ended

    def error(self, case: Case) -> str | None:
        """Return the error of the query of a case that has ended."""
        return self._ended[case.prefix]

    def kill(self) -> None:
        """Send SIGKILL to the JVM alone: its Python workers outlive it for a moment, as on a cluster."""
        assert self._jvm is not None
        self._family = tree(self._process.pid)
        self.is_killed = True
        send([each for each in self._family if each.pid in (self._jvm, self._process.pid)], signal.SIGKILL)

    def kill_executors(self) -> int:
        """Send SIGKILL to the JVM of each executor, as a cluster manager does, and return their number."""
        executors = [each for each in tree(self._process.pid) if is_executor(each)]
        send(executors, signal.SIGKILL)
        return len(executors)

    @property
    def jvm(self) -> int:
        """Return the process id of the JVM of a booted driver."""
        assert self._jvm is not None
        return self._jvm

    def processes(self) -> list[Process]:
        """Return the driver's processes and all that they have started."""
        return tree(self._process.pid)

    def pause(self) -> None:
        """Send SIGSTOP to the driver and all its workers."""
        self._family = tree(self._process.pid)
        send(self._family, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        send(self._family, signal.SIGCONT)

    def close(self) -> None:
        """End the driver and everything that it started."""
        # After a process was waited for, its number may belong to any other process.
        mine = tree(self._process.pid) if self._process.poll() is None else []
        send([*reversed(self._family), *reversed(mine)], signal.SIGKILL)
        self._process.kill()
        self._process.wait(END_DEADLINE_S)
        assert self._process.stdin is not None
        with suppress_broken_pipe():
            self._process.stdin.close()

    def tail(self) -> str:
        """Return the end of what the driver wrote."""
        return self.log.read_text(errors="replace")[-4000:]

    def _command(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        # This thread closes the stream: closing it in another thread would make reading fail.
        with self._process.stdout as reports:
            for line in reports:
                self._reports.put(json.loads(line))

    def _drain(self) -> None:
        while not self._reports.empty():
            report = self._reports.get()
            if "jvm" in report:
                self._jvm = report["jvm"]
            else:
                self._ended[report["name"]] = report["error"]

    def _booted(self) -> bool:
        self._drain()
        assert self._process.poll() is None, self.tail()
        return self._jvm is not None


@contextmanager
def suppress_broken_pipe() -> Iterator[None]:
    """Ignore that the other end of a pipe is dead."""
    try:
        yield
    except BrokenPipeError:
        return


class DriverPool:
    """Booted drivers; the next one starts in advance, up to `ahead` of them, and after that on demand."""

    def __init__(self, folder: Path, ahead: int) -> None:
        self._folder = folder
        self._ahead = ahead
        self._made: list[Driver] = []
        self._spare: Driver | None = self._make()

    def take(self, *, last: bool = False) -> Driver:
        """Return a booted driver; with `last`, no spare one is started."""
        driver = self._spare or self._make()
        driver.boot()
        self._spare = None if last or len(self._made) >= self._ahead else self._make()
        return driver

    def close(self) -> None:
        """End all drivers."""
        for driver in self._made:
            driver.close()

    def _make(self) -> Driver:
        driver = Driver(self._folder, len(self._made))
        self._made.append(driver)
        return driver


@contextmanager
def drivers(folder: Path, ahead: int = sys.maxsize) -> Iterator[DriverPool]:
    """Keep drivers until the block ends."""
    pool = DriverPool(folder, ahead)
    try:
        yield pool
    finally:
        pool.close()
