"""What the report of a failed test says about its brokers, and the pages of `--kafka-report`.

Every embedded broker of the process is noted when it starts: in a fixture, in a test, or in a function that they call.
A test's brokers have started during it, or its fixtures have started them, or they were started outside of all fixtures
and were used during the test.
"""

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.testing.observers import OBSERVERS
from broker_core.types import counted

if TYPE_CHECKING:
    from broker_core.embedded import EmbeddedBroker
    from broker_core.testing.broker_state import BrokerState, PartitionState

SHOWN_PARTITIONS = 8

_SHOWN_REQUESTS = 40
_SHOWN_LINES = 40
_SHOWN_BROKERS = 4
_NAMED_PAGES = 10
# Of one process. A run with thousands of failures is not read to the end, but its pages are kept.
_MOST_PAGES = 500
_PATIENCE_S = 10
_PAGE = "kafka report"
_NO_PAGE = "no page"
_WORKER = "kafka_report_worker"
_FAILURES: pytest.StashKey[int] = pytest.StashKey()
# pytest's names of what runs setup_module and setUpClass, such as _xunit_setup_module_fixture_tests.test_a.
_OF_PYTEST = re.compile("^_(?:xunit|unittest)_(.*?)_fixture_.*")


@dataclass(eq=False)
class _Observed:
    """A broker, with what started it, and what had happened to it before the current test."""

    broker: "EmbeddedBroker"
    name: str
    fixture: "pytest.FixtureDef[Any] | None"
    item: pytest.Item | None
    requests_before: int = 0
    uses_before: int = 0
    is_closed: bool = False
    is_silent: bool = False
    # Returns the state of a closed broker.
    closed_state: "Callable[[int], BrokerState] | None" = None

    @property
    def is_active(self) -> bool:
        """Whether requests came, or methods were called, during the current test."""
        return self.broker._thread.uses > self.uses_before or self.broker._requests.total > self.requests_before


class FailureReports:
    """The part of the plugin that finds the brokers of a failed test, and describes them."""

    def __init__(self, config: pytest.Config) -> None:
        self._writes_pages: bool = config.getoption("--kafka-report")
        self._named_folder = Path(config.getoption("--kafka-report-dir"))
        # A test may change the working directory.
        self._folder = config.invocation_params.dir / self._named_folder
        self._running: list[_Observed] = []
        # Brokers that were closed during the current test.
        self._closed: deque[_Observed] = deque(maxlen=_SHOWN_BROKERS)
        self._setting_up: list[pytest.FixtureDef[Any]] = []
        self._item: pytest.Item | None = None
        self._is_setup = False
        self._pages = 0
        self._worker: str = getattr(config, "workerinput", {}).get(_WORKER, "")
        self._reported: list[str] = []
        OBSERVERS.append(self)

    def pytest_unconfigure(self) -> None:
        OBSERVERS.remove(self)

    # What happens during a test

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note what has happened before the test; a test may run several times."""
        self._item = item
        self._closed.clear()
        for each in self._running:
            each.requests_before, each.uses_before = each.broker._requests.total, each.broker._thread.uses
        self._is_setup = True
        try:
            return (yield)
        finally:
            self._is_setup = False

    def pytest_runtest_logfinish(self) -> None:
        self._closed.clear()
        self._item = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: "pytest.FixtureDef[Any]") -> Generator[None, object, object]:
        self._setting_up.append(fixturedef)
        try:
            return (yield)
        finally:
            self._setting_up.pop()

    def started(self, broker: "EmbeddedBroker") -> None:
        """Note a broker that has started, and what started it."""
        fixture = self._setting_up[-1] if self._setting_up else None
        name = broker.bootstrap_servers if broker.listeners else "no listener"
        if fixture is not None:
            name = _OF_PYTEST.sub(r"\1", fixture.argname) + f" ({name})"
        self._running.append(_Observed(broker, name, fixture, self._item))

    def closing(self, broker: "EmbeddedBroker") -> None:
        """Keep what a broker contains until the end of the test: it may fail later."""
        for each in [each for each in self._running if each.broker is broker]:
            self._running.remove(each)
            # Before a test, pytest closes what other parameters of its fixtures have started.
            is_left_over = self._is_setup and each.item is not self._item and not each.is_active
            if self._item is not None and not is_left_over:
                # `close` has to go on, whatever happens here.
                with suppress(Exception):
                    self._keep(each)
                self._closed.append(each)
            each.is_closed = True

    def _keep(self, each: _Observed) -> None:
        from broker_core.testing.broker_state import CLOSED, state_when_closed

        if each.broker._data_dir is None:
            each.closed_state = state_when_closed(each.broker)
        elif self._writes_pages or sys.exc_info()[1] is not None:
            # Later, the files may belong to another broker. It takes time, so only if it is likely to be shown.
            state = self._state(each)
            each.closed_state = lambda _: replace(state, note=state.note or CLOSED)

    # Reports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Describe the brokers of a failed test; a test that passes against its marker xfail has no error to show."""
        report = yield
        if report.failed and call.excinfo is not None:
            try:
                self._describe(item, report)
            except Exception as error:  # Whatever it is, the report of the test is worth more.
                report.sections.append(("kafka", f"the state of the broker could not be read: {error!r}"))
        return report

    def _describe(self, item: pytest.Item, report: pytest.TestReport) -> None:
        found = self._brokers_of(item, report.when)
        if not found:
            return
        shown = found[-_SHOWN_BROKERS:]
        states = [self._state(each) for each in shown]
        if len(states) > 1:
            states = [replace(state, name=each.name) for state, each in zip(states, shown, strict=True)]
        for state in states:
            report.sections += _sections(state)
        if len(found) > len(states):
            report.sections.append(("kafka", f"... {counted(len(found) - len(states), 'more broker')}"))
        if self._writes_pages:
            report.sections.append((_PAGE, self._write(item, report, states)))

    def _brokers_of(self, item: pytest.Item, when: str | None) -> list[_Observed]:
        """Return the brokers that a test has used, the latest at the end."""
        fixtures = fixtures_of(item)
        # Values of fixtures that were not reached are not among them.
        names = getattr(item, "fixturenames", ())
        requested = _requested_by(item)

        def is_used(each: _Observed) -> bool:
            # A fixture of a module may fail in the teardown of a test that does not request it.
            if each.item is item or ((each.fixture is None or when == "teardown") and each.is_active):
                return True
            if each.fixture is None:
                return False
            name = each.fixture.argname
            found = fixtures.get(name)
            is_its = found is each.fixture or (found is None and name in names)
            # A fixture with autouse may have a broker that few of the tests use.
            return is_its and (each.is_active or name in requested)

        return [each for each in (*self._closed, *self._running) if is_used(each)]

    def _state(self, each: _Observed) -> "BrokerState":
        from broker_core.testing.broker_state import CLOSED_UNKNOWN, requests_of, state_of

        if each.closed_state is not None:
            return each.closed_state(each.requests_before)
        if each.is_closed:
            return replace(requests_of(each.broker, each.requests_before), note=CLOSED_UNKNOWN)
        found: Future[BrokerState] = Future()

        def read() -> None:
            try:
                found.set_result(state_of(each.broker, each.requests_before))
            except Exception as error:
                found.set_exception(error)

        try:
            if not each.is_silent:
                # A broker whose thread is blocked, such as by the function of a fault, would never answer.
                threading.Thread(target=read, name="broker-state", daemon=True).start()
                return found.result(_PATIENCE_S)
        except TimeoutError:
            each.is_silent = True
        note = f"The broker's thread did not answer within {_PATIENCE_S} s: is the function of a fault blocked?"
        return replace(requests_of(each.broker, each.requests_before), note=note)

    def _write(self, item: pytest.Item, report: pytest.TestReport, states: "Sequence[BrokerState]") -> str:
        from broker_core.report_page import write_page

        if self._pages >= _MOST_PAGES:
            return f"{_NO_PAGE}: {counted(self._pages, 'page')} of earlier failures were written"
        number = item.stash[_FAILURES] = item.stash.get(_FAILURES, 0) + 1
        failure = report.longreprtext if report.when == "call" else f"In {report.when}:\n\n{report.longreprtext}"
        try:
            path = write_page(self._folder, item.nodeid + self._worker, number, failure, states)
        except OSError as error:
            return f"{_NO_PAGE}: {error}"
        self._pages += 1
        return str(self._named_folder / path.name)

    # The workers of pytest-xdist, and the summary

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let workers that run the same tests write different pages."""
        node.workerinput[_WORKER] = f" in {node.gateway.id}" if node.config.option.dist == "each" else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reported += [content for title, content in report.sections if title == _PAGE]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        missing = [each for each in self._reported if each.startswith(_NO_PAGE)]
        written = [each for each in self._reported if not each.startswith(_NO_PAGE)]
        for path in written[:_NAMED_PAGES]:
            terminalreporter.write_line(f"{_PAGE}: {path}")
        if len(written) > _NAMED_PAGES:
            more = counted(len(written) - _NAMED_PAGES, "more page")
            terminalreporter.write_line(f"{_PAGE}: {more} in {self._named_folder}")
        if missing:
            terminalreporter.write_line(f"{_PAGE}: {counted(len(missing), 'failure')} without a page; {missing[-1]}")


def fixtures_of(item: pytest.Item) -> "Mapping[str, pytest.FixtureDef[Any]]":
    # pytest offers only their names.
    found: Mapping[str, pytest.FixtureDef[Any]] = getattr(getattr(item, "_request", None), "_fixture_defs", {})
    return found


def _requested_by(item: pytest.Item) -> set[str]:
    """Return the names of the fixtures that a test requests, also by others and while it runs, but not by autouse."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return set()
    pending = [*info.argnames, *(fixtures_of(item).keys() - set(info.names_closure))]
    pending += [name for mark in item.iter_markers("usefixtures") for name in mark.args]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [other for each in info.name2fixturedefs.get(name, ()) for other in each.argnames]
    return found


def _sections(state: "BrokerState") -> Iterator[tuple[str, str]]:
    which = f": {state.name}" if state.name else ""
    requests = [str(each) for each in state.requests[-_SHOWN_REQUESTS:]] or ["none came"]
    left_out = state.earlier_requests + len(state.requests[:-_SHOWN_REQUESTS])
    if left_out:
        requests.insert(0, f"... {counted(left_out, 'earlier request')}")
    yield f"kafka requests{which}", "\n".join(requests)
    lines = [state.note] if state.note else []
    if state.is_known:
        lines += [_listing(each) for each in state.partitions[:SHOWN_PARTITIONS]]
        more = state.more_partitions + len(state.partitions[SHOWN_PARTITIONS:])
        if more:
            lines.append(f"... {counted(more, 'more partition')}")
        elif not state.partitions:
            lines.append("none was written")
    yield f"kafka partitions{which}", "\n".join(lines)


def _listing(partition: "PartitionState") -> str:
    """Return the listing of a partition with its newest batches."""
    first, *batches = partition.view.dump().splitlines()
    left_out = len(batches) + 1 - _SHOWN_LINES
    if partition.first_offset > partition.view.log_start_offset:
        return "\n".join([first, "  ... earlier batches", *batches[1 - _SHOWN_LINES :]])
    if left_out > 0:
        first += f"\n  ... {counted(left_out, 'earlier batch', 'earlier batches')}"
    return "\n".join([first, *batches[1 - _SHOWN_LINES :]])
