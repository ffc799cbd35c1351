"""Where the time of the tests goes: `python -m tests.support.slow ARGUMENTS OF PYTEST`, or `-p tests.support.slow`.

After the tests it prints the slowest tests, fixtures and files, the sum of each tier, and how long each process of
pytest-xdist was idle. Beside the time that passed is the processor time of the process and of what it started, JVMs for
example: on a machine that does other work, only the processor time can be compared.
"""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pytest

from tests.support.processes import ProcessorWatch, ticks_of_descendants

_TIERS: Final = {"architecture": "check", "unit": "check", "integration": "integration", "spark": "spark"}
_LOOK_INTERVAL_S: Final = 0.2
# A look at a JVM and its workers takes milliseconds, and each test would cause twenty: one serves all of this time.
_SAME_LOOK_S: Final = 0.05


class Part(NamedTuple):
    """A test's phase or a fixture: its name, the process that ran it, when it ended, and its seconds."""

    name: str
    worker: str
    ended: float
    passed: float
    busy: float


class Watch:
    """The seconds that pass in a block, and the processor seconds of this process and all its descendants."""

    def __init__(self) -> None:
        self._started, self._busy = time.monotonic(), self._look()

    @staticmethod
    def _look() -> float:
        return time.process_time() + _descendants()()

    def read(self) -> tuple[float, float]:
        """Return both."""
        return time.monotonic() - self._started, self._look() - self._busy


@cache
def _descendants() -> Callable[[], float]:
    """Return what returns the processor time of this process's descendants since the first call.

    A thread looks too: a JVM whose Python process ends before it takes its time with it.
    """
    watch, lock = ProcessorWatch(os.getpid(), ticks_of_descendants), threading.Lock()
    found, good_until = 0.0, 0.0

    def look() -> float:
        nonlocal found, good_until
        with lock:
            if time.monotonic() > good_until:
                found = watch.look()
                good_until = time.monotonic() + _SAME_LOOK_S
            return found

    def look_often() -> None:
        while True:
            time.sleep(_LOOK_INTERVAL_S)
            look()

    threading.Thread(target=look_often, name="looks at processes", daemon=True).start()
    return look


class SlowTests:
    """The plugin in each process: it notes times in reports, and the process that has the terminal prints them."""

    def __init__(self, *, shown: int) -> None:
        self._shown = shown
        self._phases: list[Part] = []
        self._fixtures: list[list[Any]] = []
        self._watches: dict[str, tuple[float, float]] = {}
        self._workers: dict[str, dict[str, Any]] = {}
        self._process = Watch()
        self._collected = (0.0, 0.0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self._measured("setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._measured("call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        yield from self._measured("teardown")

    def _measured(self, phase: str) -> Iterator[None]:
        watch = Watch()
        try:
            yield
        finally:
            self._watches[phase] = watch.read()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report = yield
        # Simple attributes travel to the other process with the report.
        report.slow = list(self._watches.pop(call.when, (call.duration, 0.0)))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[object]:
        watch = Watch()
        try:
            return (yield)
        finally:
            place = request.node.nodeid.partition("::")[0] if fixturedef.scope != "session" else "the whole run"
            self._fixtures.append([f"{fixturedef.argname} ({fixturedef.scope}) in {place}", *watch.read()])

    def pytest_collection_finish(self) -> None:
        self._collected = self._process.read()

    def pytest_runtest_logreport(self, report: Any) -> None:
        node = getattr(report, "node", None)
        worker = node.gateway.id if node is not None else "one process"
        self._phases.append(Part(report.nodeid, worker, time.monotonic(), *getattr(report, "slow", (0.0, 0.0))))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        passed, busy = self._process.read()
        found = {"fixtures": self._fixtures, "collected": self._collected, "passed": passed, "busy": busy}
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["slow"] = found
        elif not self._workers:
            self._workers["one process"] = found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        if "slow" in output:
            self._workers[node.gateway.id] = output["slow"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield from _table("tiers", _sums(self._phases, _tier), None)
        yield from _table("files", _sums(self._phases, _file), self._shown)
        yield from _table("tests with their fixtures", _sums(self._phases, lambda part: part.name), self._shown)
        fixtures = [Part(name, "", 0.0, *times) for each in self._workers.values() for name, *times in each["fixtures"]]
        yield from _table("fixtures with their fixtures", _sums(fixtures, lambda part: part.name), self._shown)
        yield ""
        yield "processes: seconds until the tests were collected, in tests, idle between them, and waiting at the end"
        end = max((part.ended for part in self._phases), default=0.0)
        for worker, found in sorted(self._workers.items()):
            own = [part for part in self._phases if part.worker == worker]
            tests, last = sum(part.passed for part in own), max((part.ended for part in own), default=end)
            collected, waiting = found["collected"][0], end - last
            idle = max(found["passed"] - collected - tests - waiting, 0.0)
            yield (
                f"  {worker}: {collected:.1f} ({found['collected'][1]:.1f} of a processor), {tests:.1f}, "
                f"{idle:.1f}, {waiting:.1f}; {found['busy']:.1f} of processors in all"
            )


def _tier(part: Part) -> str:
    suite = _file(part).removeprefix("tests/").partition("/")[0]
    return _TIERS.get(suite, suite)


def _file(part: Part) -> str:
    return part.name.partition("::")[0]


def _sums(parts: Iterable[Part], name: Any) -> list[tuple[str, int, float, float]]:
    """Return name, how many different parts, and both sums of seconds; most processor time first."""
    found: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        found[name(part)].append(part)
    rows = [
        (key, len({part.name for part in own}), sum(part.passed for part in own), sum(part.busy for part in own))
        for key, own in found.items()
    ]
    return sorted(rows, key=lambda row: -max(row[2], row[3]))


def _table(title: str, rows: Sequence[tuple[str, int, float, float]], shown: int | None) -> Iterator[str]:
    yield ""
    yield f"{title}: seconds that passed, seconds of processors"
    for name, count, passed, busy in rows[:shown]:
        yield f"{passed:9.2f} {busy:9.2f}  {name}" + (f" ({count} tests)" if count > 1 else "")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how much is printed."""
    parser.addoption("--slowest", type=int, default=50, help="how many tests, files and fixtures are printed (50)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin, in the processes of pytest-xdist too."""
    config.pluginmanager.register(SlowTests(shown=config.getoption("slowest")), "slow tests")


if __name__ == "__main__":
    sys.exit(pytest.main(["-p", "tests.support.slow", *sys.argv[1:]]))
