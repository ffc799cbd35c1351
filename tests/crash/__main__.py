"""Repeat the whole crash matrix with random timing: `make crash ROUNDS=20`, or `python -m tests.crash --rounds 20`.

Prints the seed first, then each cell that failed, then the number of runs by point and fault, and a verdict. On
`apache3`, three nodes of Apache Kafka, a round is one run of each scenario of `tests/crash/scenarios.py`:
`python -m tests.crash --broker apache3 --rounds 10 --cuts 10`. There a query that stops fails its round, too.
"""

import argparse
import math
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from broker_core.types import counted
from tests.crash.cluster_rounds import KIND, STOPPED, ClusterRounds
from tests.crash.drivers import Driver, DriverPool, drivers
from tests.crash.matrix import STEPS, Fault, Pair, waves
from tests.crash.wave import Wave
from tests.crash.world import NO_ANSWER, World, world

BROKERS = ("broker_core", "apache", KIND)
TRANSACTION_VERSIONS = (2, 1)
_started = time.monotonic()


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - _started:6.0f} s] {text}", flush=True)


def main() -> int:
    """Run the rounds; return 0 if every cell of every round passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--broker", choices=BROKERS, action="append", help="default: all")
    parser.add_argument("--transaction-version", type=int, choices=TRANSACTION_VERSIONS, help="default: each in turn")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no round after this many")
    parser.add_argument("--cuts", type=int, default=5, help=f"on {KIND}, in each round: the number of nodes to cut off")
    parser.add_argument(
        "--scenario", action="append", default=[], help=f"on {KIND}: the scenarios whose name contains this"
    )
    parser.add_argument("--keep", help="a new folder for all files, which are kept")
    arguments = parser.parse_args()
    say(f"{counted(arguments.rounds, 'round')} with --seed {arguments.seed}")
    failures: list[str] = []
    with folder_for(arguments.keep) as name, drivers(Path(name)) as pool:
        chance = random.Random(arguments.seed)
        matrix = Rounds(pool, chance)
        cluster = ClusterRounds(pool, chance, say, cuts=arguments.cuts, names=arguments.scenario)
        # The rounds end their processes before this process ends.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
        for kind in arguments.broker or BROKERS:
            for number in range(1, arguments.rounds + 1):
                if time.monotonic() - _started > 60 * arguments.minutes:
                    say(f"time is up: {number - 1} of {arguments.rounds} rounds on {kind}")
                    break
                version = arguments.transaction_version or TRANSACTION_VERSIONS[(number - 1) % 2]
                rounds = cluster if kind == KIND else matrix
                failed = rounds.run(kind, Path(name) / f"{kind}-{number}", version)
                say(
                    f"{kind}, round {number}, transactions V{version}: {rounds.total()} runs so far, "
                    + (f"{len(failed)} FAILED" if failed else "all held")
                )
                for failure in failed:
                    print(f"  {failure}", flush=True)
                failures += failed
    for each in (matrix, cluster):
        if each.total():
            print(each.table())
    say(
        f"{matrix.total() + cluster.total()} runs, {counted(len(failures), 'failure')} (seed {arguments.seed}); "
        f"{matrix.ended_hanging + cluster.ended_hanging} transactions that Apache Kafka left hanging were ended"
    )
    stops = sum(STOPPED in failure for failure in failures)
    print(
        "NOT EXACTLY ONCE."
        if len(failures) > stops
        else f"EXACTLY ONCE, but {counted(stops, 'query', 'queries')} stopped."
        if stops
        else "EXACTLY ONCE in every run."
    )
    return 1 if failures else 0


class Rounds:
    """Rounds of the matrix in one driver after another; a driver serves until a wave kills it."""

    def __init__(self, pool: DriverPool, chance: random.Random) -> None:
        self._pool = pool
        self._chance = chance
        self._runs: Counter[tuple[str, str]] = Counter()
        self._spare: Driver | None = None
        self.ended_hanging = 0

    def total(self) -> int:
        """Count the runs."""
        return self._runs.total()

    def table(self) -> str:
        """Show the number of runs by point and fault."""
        return table(self._runs)

    def run(self, kind: str, folder: Path, transaction_version: int) -> list[str]:
        """Run every cell once on a fresh broker, and return what went wrong."""
        failures = []
        with world(kind, folder, transaction_version) as here:
            for cells in waves(transaction_version, self._chance):
                failures += self._run_wave(here, cells)
                say(f"  {len(cells)} x {cells[0].fault}")
            for each in here.ended_hanging:
                what = "left alone" if each.commit is None else f"{'commit' if each.commit else 'abort'} marker written"
                print(f"  KAFKA-20734: {each}: {what}", flush=True)
            self.ended_hanging += len(
                {(each.transactional_id, each.place.producer_epoch) for each in here.ended_hanging}
            )
        return failures

    def _run_wave(self, here: World, cells: list[Pair]) -> list[str]:
        before = self._spare or self._pool.take()
        wave = Wave(here, self._pool, before, self._chance)
        self._runs.update((str(cell.step), cell.fault) for cell in cells)
        try:
            failures = wave.run(cells)
        except (AssertionError, *NO_ANSWER) as failure:
            # A query that does not end or does not reach its point fails its wave; the other waves continue.
            failures = [f"{cells[0].fault}, {len(cells)} cells together: {failure}"]
            say(failures[0])
            wave.driver.kill()
            here.restart_broker()
        if wave.driver.is_killed:
            wave.driver.close()
            wave.driver = self._pool.take()
        if wave.driver is not before:
            before.close()
        self._spare = wave.driver
        return failures


def folder_for(keep: str | None) -> AbstractContextManager[str]:
    """Return a folder that is deleted afterwards, or the one to keep."""
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="crash-")
    Path(keep).mkdir(parents=True)
    return nullcontext(keep)


def table(runs: Counter[tuple[str, str]]) -> str:
    """Show the number of runs by point and fault."""
    width = max(len(str(step)) for step in STEPS)
    lines = [" " * width + "".join(f" | {fault}" for fault in Fault)]
    for step in STEPS:
        counts = "".join(f" | {runs[str(step), fault] or '-':>{len(fault)}}" for fault in Fault)
        lines.append(f"{step!s:{width}}{counts}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
