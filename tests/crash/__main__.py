"""Repeat the whole crash matrix with random timing: `make crash ROUNDS=20`, or `python -m tests.crash --rounds 20`.

Prints the seed first, then each cell that failed, then the number of runs by point and fault, and a verdict.
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

from tests.crash.drivers import DriverPool, drivers
from tests.crash.matrix import STEPS, Fault, Pair, waves
from tests.crash.wave import Wave
from tests.crash.world import NO_ANSWER, World, world

BROKERS = ("broker_core", "apache")
TRANSACTION_VERSIONS = (2, 1)
_started = time.monotonic()


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - _started:6.0f} s] {text}", flush=True)


def main() -> int:
    """Run the rounds; returns 0 when every cell of every round held."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--broker", choices=BROKERS, action="append", help="both unless given")
    parser.add_argument("--transaction-version", type=int, choices=TRANSACTION_VERSIONS, help="in turns unless given")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no round after so many")
    parser.add_argument("--keep", help="a new folder for all files, which stay")
    arguments = parser.parse_args()
    say(f"{arguments.rounds} rounds with --seed {arguments.seed}")
    runs: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    with folder_for(arguments.keep) as name, drivers(Path(name)) as pool:
        rounds = Rounds(pool, random.Random(arguments.seed), runs)
        # So that who ends it finds nothing left running.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
        for kind in arguments.broker or BROKERS:
            for number in range(1, arguments.rounds + 1):
                if time.monotonic() - _started > 60 * arguments.minutes:
                    say(f"time is up: {number - 1} of {arguments.rounds} rounds on {kind}")
                    break
                version = arguments.transaction_version or TRANSACTION_VERSIONS[(number - 1) % 2]
                failed = rounds.run(kind, Path(name) / f"{kind}-{number}", version)
                say(f"{kind}, round {number}, transactions V{version}: {runs.total()} runs so far, "
                    + (f"{len(failed)} FAILED" if failed else "all held"))
                for failure in failed:
                    print(f"  {failure}", flush=True)
                failures += failed
    print(table(runs))
    say(f"{sum(runs.values())} runs, {len(failures)} failed (seed {arguments.seed}); "
        f"{rounds.mended} transactions that Apache Kafka left hanging were ended")
    print("EXACTLY ONCE in every run." if not failures else "NOT EXACTLY ONCE.")
    return 1 if failures else 0


class Rounds:
    """Run rounds in one driver after another, each for as long as no wave has killed it; `runs` counts."""

    def __init__(self, pool: DriverPool, chance: random.Random, runs: Counter[tuple[str, str]]) -> None:
        self._pool = pool
        self._chance = chance
        self._runs = runs
        self._driver = pool.take()
        self.mended = 0

    def run(self, kind: str, folder: Path, transaction_version: int) -> list[str]:
        """Run every cell once on a fresh broker, and say what went wrong."""
        failures = []
        with world(kind, folder, transaction_version) as here:
            for cells in waves(transaction_version, self._chance):
                failures += self._run_wave(here, cells)
                say(f"  {len(cells)} x {cells[0].fault}")
            for each in here.mended:
                what = "left alone" if each.commit is None else f"{'commit' if each.commit else 'abort'} marker written"
                print(f"  KAFKA-20734: {each}: {what}", flush=True)
            self.mended += len({(each.transactional_id, each.place.producer_epoch) for each in here.mended})
        return failures

    def _run_wave(self, here: World, cells: list[Pair]) -> list[str]:
        wave = Wave(here, self._pool, self._driver, self._chance)
        self._runs.update((str(cell.step), cell.fault) for cell in cells)
        try:
            failures = wave.run(cells)
        except (AssertionError, *NO_ANSWER) as failure:
            # A query that does not end, or does not come to its point, fails its wave; the others go on.
            failures = [f"{cells[0].fault}, {len(cells)} cells together: {failure}"]
            say(failures[0])
            wave.driver.kill()
            here.restart_broker()
        if wave.driver.is_killed:
            wave.driver.close()
            wave.driver = self._pool.take()
        if wave.driver is not self._driver:
            self._driver.close()
        self._driver = wave.driver
        return failures


def folder_for(keep: str | None) -> AbstractContextManager[str]:
    """Give a folder that is deleted, or the one that is to be kept."""
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
