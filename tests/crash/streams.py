"""Queries that run as long as they have input, as in production; those that stop are counted and restarted."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from broker_core.types import counted
from spark_eos.sink.naming import driver_id, group_id
from tests.crash.case import Case
from tests.crash.drivers import Driver, DriverPool
from tests.support.waiting import wait_until

# The number of micro-batches of waiting input, so that there is always some and never much.
AHEAD = 2
FEED_INTERVAL_S = 0.4
PROGRESS_DEADLINE_S = 240
MOST_STOPS = 40
# The number of Spark's tasks for one micro-batch.
TASKS = 2
_PAUSE_S = 0.1


class Stop(NamedTuple):
    """The error that stopped a query."""

    query: str
    micro_batch: int
    error: str

    def __str__(self) -> str:
        return f"{self.query} at micro-batch {self.micro_batch}: {first_words(self.error)}"


class Streams:
    """Queries in one driver, and their input; each query that stops is restarted, and `stops` has the reasons."""

    def __init__(
        self,
        pool: DriverPool,
        driver: Driver,
        cases: Sequence[Case],
        say: Callable[[str], None] = print,
        most_stops: int = MOST_STOPS,
    ) -> None:
        self.driver = driver
        self.cases = list(cases)
        self.stops: list[Stop] = []
        self._pool = pool
        self._say = say
        self._most_stops = most_stops
        self._lock = threading.RLock()
        self._is_fed = self._is_running = True
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        for case in cases:
            driver.start(case)
        self._thread = threading.Thread(target=self._watch, name="streams", daemon=True)
        self._thread.start()

    def let_pass(self, seconds: float) -> None:
        """Let the queries run for a while."""
        self._is_over.wait(seconds)
        self._check()

    def wait_for_progress(self, micro_batches: int = 1) -> None:
        """Wait until each query has committed so many more micro-batches."""
        wanted = {case.prefix: committed(case) + micro_batches for case in self.cases}
        self.wait_until(
            lambda: all(committed(case) >= wanted[case.prefix] for case in self.cases),
            f"the queries commit {micro_batches} more micro-batches",
        )

    def wait_until(self, probe: Callable[[], bool], what: str, deadline_s: float = PROGRESS_DEADLINE_S) -> None:
        """Wait for a condition that the queries cause."""

        def is_true() -> bool:
            self._check()
            return probe()

        try:
            wait_until(is_true, what, deadline_s=deadline_s, pause_s=_PAUSE_S)
        except AssertionError as failure:
            stops = "; ".join(map(str, self.stops[-3:]))
            raise AssertionError(
                f"{failure}; {counted(len(self.stops), 'stop')} so far, the last ones: {stops}"
            ) from None

    def kill_driver(self) -> None:
        """Send SIGKILL to the driver's JVM and remove its rules; nothing runs until `start_driver`."""
        with self._lock:
            self._is_running = False
            self.driver.disarm()
            self.driver.kill()

    def start_driver(self, hold: tuple[Case, str] | None = None) -> None:
        """Start all queries in a fresh driver, one of which may be held at a point."""
        driver = self._pool.take()
        with self._lock:
            self.driver.close()
            self.driver = driver
            if hold is not None:
                self.hold(*hold)
            for case in self.cases:
                driver.start(case)
            self._is_running = True

    def hold(self, case: Case, point: str) -> None:
        """Hold the next processes of a query that reach a point, as many as it has tasks."""
        case.held.unlink(missing_ok=True)
        self.driver.arm(case, *(case.rule(point, "hold", None) for _ in range(TASKS)))

    def is_held(self, case: Case, deadline_s: float = PROGRESS_DEADLINE_S) -> bool:
        """Return whether a query reaches the point where it is held."""
        try:
            self.wait_until(case.held.exists, f"{case.prefix} is held", deadline_s)
        except AssertionError:
            self._check()
            return False
        return True

    def release(self) -> None:
        """Remove all rules, and let the held processes continue."""
        self.driver.disarm()
        for case in self.cases:
            case.release()

    def finish(self, meanwhile: Callable[[], None]) -> None:
        """Add no more input, wait until all of it is committed, and stop the queries."""
        self._is_fed = False
        self.release()

        def all_committed() -> bool:
            meanwhile()
            return all(inputs_committed(case) == case.micro_batches for case in self.cases)

        self.wait_until(all_committed, "the queries commit all there is")
        with self._lock:
            self._is_running = False
            for case in self.cases:
                self.driver.stop(case)
        wait_until(lambda: all(self.driver.has_ended(case) for case in self.cases), "the queries end")
        for case in self.cases:
            error = self.driver.error(case)
            if error is not None:
                self.stops.append(Stop(case.prefix, committed(case), error))

    def close(self) -> None:
        """Stop watching the queries."""
        self._is_over.set()
        self._thread.join(PROGRESS_DEADLINE_S)

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the streams are no longer watched: {self._failure}") from self._failure

    def _watch(self) -> None:
        fed_s = 0.0
        try:
            while not self._is_over.wait(_PAUSE_S):
                fed_s += _PAUSE_S
                with self._lock:
                    if self._is_running:
                        self._start_stopped()
                if self._is_fed and fed_s >= FEED_INTERVAL_S:
                    self._feed()
                    fed_s = 0.0
        except Exception as failure:
            self._failure = failure

    def _start_stopped(self) -> None:
        for case in self.cases:
            if not self.driver.has_ended(case):
                continue
            error = self.driver.error(case) or "it ended without an error"
            self.stops.append(Stop(case.prefix, committed(case), error))
            self._say(f"  stopped: {self.stops[-1]}")
            assert len(self.stops) < self._most_stops, f"{self.stops[-1]}"
            if "set onLostTransaction=rewrite" in error:
                case.more_options["onLostTransaction"] = "rewrite"
            self.driver.start(case)

    def _feed(self) -> None:
        for case in self.cases:
            if case.micro_batches - inputs_committed(case) < AHEAD:
                case.add_micro_batch()


def committed(case: Case) -> int:
    """Count the micro-batches that Spark has recorded as committed."""
    folder = case.checkpoint / "commits"
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()] if folder.exists() else []
    return max(numbers, default=-1) + 1


def inputs_committed(case: Case) -> int:
    """Count the inputs of the committed micro-batches."""
    number = committed(case)
    return case.last_inputs()[number - 1] + 1 if number else 0


def names_of(case: Case) -> tuple[str, str]:
    """Return the driver's transactional id and the consumer group of a query that has been started."""
    query = json.loads((Path(case.checkpoint) / "metadata").read_text())["id"]
    return driver_id(case.prefix, query), group_id(case.prefix, query)


def first_words(error: str) -> str:
    """Shorten Spark's text of a failure to the sink's message, or to its cause."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    for sign in ("spark_eos.errors.", "Error: ", "Caused by"):
        found = [line for line in lines if sign in line]
        if found:
            return found[-1][:500]
    return lines[0][:500]
