"""Many queries led to their points: inject all faults at once, restart, and count what readers see.

All cases of a wave share one driver and are held at the same moment, so that one killed JVM or broker, or one pause,
serves all of them.
"""

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.crash.case import Case
from tests.crash.drivers import Driver, DriverPool
from tests.crash.feed import Feed
from tests.crash.matrix import Fault, Pair
from tests.crash.wire import Loss
from tests.crash.world import AT_A_TIME, END_DEADLINE_S, MOST_STARTS, World
from tests.support.spark_eos.sink_topic import open_transactions
from tests.support.waiting import wait_until

# Cases without a pause must not time out, however slow the machine is.
LONG_TIMEOUT = "300s"
SHORT_TIMEOUT_S = 15
# On a slow machine a query's transactions may time out before it reaches its point; each retry has twice the time.
_MOST_ATTEMPTS = 4
_LONGEST_JITTER_S = 0.3
# The share of the sink's cells whose rows come from Kafka; each costs a second of processor time for Python's start.
_FED = 1 / 6
_IN_FIRST_MICRO_BATCH = (Fault.LOSE_ANSWER, Fault.MAKE_TOPIC_AGAIN)


@dataclass
class Watched:
    """A cell of the matrix and its query."""

    pair: Pair
    case: Case
    micro_batch: int = 0
    loss: Loss | None = None
    starts: int = 0
    attempts: int = 1


class Wave:
    """Cells of the matrix that run together; `chance` draws the timing, None makes it fixed.

    `errors` has the errors with which the query of each cell stopped before it ended well.
    """

    def __init__(self, world: World, pool: DriverPool, driver: Driver, chance: random.Random | None = None) -> None:
        self._world = world
        self._pool = pool
        self._chance = chance
        self._too_late: list[Case] = []
        self.driver = driver
        self.errors: dict[str, list[str]] = {}

    def run(self, pairs: Sequence[Pair]) -> list[str]:
        """Run the cells and return what is wrong, cell by cell; `driver` is another one if this one was killed."""
        watched = self._make(pairs)
        for is_brief in (False, True):
            self._lead_to_points([each for each in watched if each.pair.step.is_brief is is_brief])
        inject = {
            Fault.KILL_WORKER: self._kill_workers,
            Fault.LOSE_ANSWER: self._lose_answers,
            Fault.MAKE_TOPIC_AGAIN: self._make_topics_again,
            Fault.KILL_BROKER: self._kill_broker,
            Fault.PAUSE: self._pause,
            Fault.KILL_DRIVER: self._kill_driver,
        }
        for fault in Fault:
            those = [each for each in watched if each.pair.fault is fault]
            if those:
                inject[fault](those)
                cases = [each.case for each in those]
                running = cases if fault is not Fault.KILL_DRIVER else ()
                late = self._too_late if fault is Fault.PAUSE else []
                errors = self._world.run_to_end(self.driver, [*cases, *late], running)
                self.errors |= {str(each.pair): errors[each.case.prefix] for each in those}
        self.driver.disarm()
        names = {each.case.topic: str(each.pair) for each in watched}
        names |= {case.topic: f"{case.prefix}, which timed out before its point" for case in self._too_late}
        wrong = self._world.judge([*(each.case for each in watched), *self._too_late])
        unlost = [f"{each.case.topic}: no response was lost" for each in watched if each.loss and not each.loss.lost]
        return [f"{names[text.partition(':')[0]]}: {text}" for text in [*wrong, *unlost]]

    def _make(self, pairs: Sequence[Pair]) -> list[Watched]:
        short = [pair for pair in pairs if pair.fault is Fault.PAUSE and not pair.step.is_of_dead_driver]
        long = [pair for pair in pairs if pair not in short]
        watched = []
        for group, timeout in ((long, LONG_TIMEOUT), (short, f"{SHORT_TIMEOUT_S}s")):
            feeds = [Feed() if pair.step.reads_kafka or self._draws_feed() else None for pair in group]
            cases = self._world.new_cases(len(group), feeds=feeds, transactionTimeout=timeout)
            watched += [Watched(pair, case) for pair, case in zip(group, cases, strict=True)]
        for each in watched:
            # Only the first micro-batch makes an identity, and nothing was written before it.
            if self._chance is not None and each.pair.fault not in _IN_FIRST_MICRO_BATCH:
                each.micro_batch = self._chance.randrange(2)
        return watched

    def _lead_to_points(self, watched: Sequence[Watched]) -> None:
        """Run each query, with its earlier run if it has one, until it is held at its point."""
        waiting, running = list(watched), list[Watched]()

        def all_held() -> bool:
            for each in [each for each in running if each.case.held.exists() or (each.loss and each.loss.lost)]:
                running.remove(each)
            for each in [each for each in running if self.driver.has_ended(each.case)]:
                error = self.driver.error(each.case)
                running.remove(each)
                waiting.append(each)
                if error is None or each.starts == MOST_STARTS:
                    self._try_again(each, error or "the query ended well")
            while waiting and len(running) < AT_A_TIME:
                running.append(waiting.pop(0))
                self._start(running[-1])
            return not running

        wait_until(all_held, f"{len(watched)} queries are held", deadline_s=END_DEADLINE_S)

    def _try_again(self, each: Watched, error: str) -> None:
        """Take a new query where transactions may have timed out too early; the first one is judged all the same."""
        is_short = each.case.more_options["transactionTimeout"] != LONG_TIMEOUT
        assert is_short and each.attempts < _MOST_ATTEMPTS, f"{each.pair} was not reached, {each.case.prefix}: {error}"
        self.driver.arm(each.case)
        each.case.more_options["transactionTimeout"] = LONG_TIMEOUT
        self._too_late.append(each.case)
        each.case = self._world.new_case(transactionTimeout=f"{SHORT_TIMEOUT_S << each.attempts}s")
        each.attempts += 1
        each.starts = 0

    def _start(self, each: Watched) -> None:
        step, case = each.pair.step, each.case
        each.starts += 1
        if step.earlier is not None and each.starts == 1:
            self.driver.arm(case, case.rule(step.earlier, "kill", each.micro_batch))
        else:
            rules = []
            if step.is_brief and each.pair.fault is Fault.LOSE_ANSWER:
                # Holding it would use up the decision's time, and the lost request is the first of its kind.
                self._lose(each)
            else:
                rules.append(case.rule(step.point, "hold", each.micro_batch if step.in_micro_batch else None))
            if step.beside is not None:
                point, _, action = step.beside.partition("=")
                rules.append(case.rule(point, action, each.micro_batch))
            self.driver.arm(case, *rules)
        self.driver.start(case)

    def _draws_feed(self) -> bool:
        return self._chance is not None and self._chance.random() < _FED

    def _jitter_s(self) -> float:
        """Draw a random moment."""
        return self._chance.random() * _LONGEST_JITTER_S if self._chance else 0

    def _release(self, those: Sequence[Watched]) -> None:
        for each in those:
            each.case.release()

    def _release_early(self, those: Sequence[Watched]) -> None:
        """In every other round, let the processes continue before the fault."""
        if self._chance is not None and self._chance.random() < 0.5:
            self._release(those)
            time.sleep(self._jitter_s())

    def _kill_workers(self, those: Sequence[Watched]) -> None:
        for each in those:
            pid = each.case.wait_until_held()
            os.kill(pid, signal.SIGKILL)
        self._release(those)

    def _lose_answers(self, those: Sequence[Watched]) -> None:
        for each in those:
            self._lose(each)
        self._release(those)

    def _lose(self, each: Watched) -> None:
        if each.loss is None:
            assert each.pair.answer is not None
            each.loss = each.pair.answer.loss(each.case)
            self._world.wire.losses.append(each.loss)

    def _make_topics_again(self, those: Sequence[Watched]) -> None:
        # Not early: what is committed by then goes with the topic.
        self._world.make_again([each.case for each in those])
        self._release(those)

    def _kill_broker(self, those: Sequence[Watched]) -> None:
        self._release_early(those)
        self._world.restart_broker(self._jitter_s())
        self._release(those)

    def _pause(self, those: Sequence[Watched]) -> None:
        """Let the transactions time out while the driver and its workers, or only the held processes, are paused."""
        is_whole = self._chance is None or self._chance.random() < 0.5
        if is_whole:
            self.driver.pause()
            self._release(those)
        prefixes = tuple(f"{each.case.prefix}." for each in those if not each.pair.step.is_of_dead_driver)
        dead_drivers = tuple(f"{each.case.prefix}." for each in those if each.pair.step.is_of_dead_driver)

        def none_open() -> bool:
            found = open_transactions(self._world.broker.address, "")
            return not any(
                each.startswith(prefixes) or (each.startswith(dead_drivers) and each.endswith(".driver"))
                for each in found
            )

        try:
            wait_until(none_open, "the transactions time out", deadline_s=END_DEADLINE_S, pause_s=0.5)
        finally:
            if is_whole:
                self.driver.resume()
            self._release(those)
        for each in those:
            # A restarted query needs no short timeout.
            each.case.more_options["transactionTimeout"] = LONG_TIMEOUT

    def _kill_driver(self, those: Sequence[Watched]) -> None:
        self._release_early(those)
        self.driver.kill()
        self._release(those)
        self.driver = self._pool.take()
