"""Repeat the whole crash matrix with random timing: `make crash ROUNDS=20`, or `python -m tests.crash --rounds 20`.

Prints the seed first, then each cell that failed, then the number of runs by point and fault, and a verdict.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.crash.drivers import DriverPool, drivers
from tests.crash.matrix import STEPS, Fault, Pair, pairs
from tests.crash.wave import Wave
from tests.crash.world import World, world

BROKERS = ("broker_core", "apache")
# As many queries at once as two cores and their memory bear.
CELLS_IN_A_WAVE = 15
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
    arguments = parser.parse_args()
    say(f"{arguments.rounds} rounds with --seed {arguments.seed}")
    runs: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="crash-") as name, drivers(Path(name)) as pool:
        rounds = Rounds(pool, random.Random(arguments.seed), runs)
        for kind in arguments.broker or BROKERS:
            for number in range(1, arguments.rounds + 1):
                failed = rounds.run(kind, Path(name) / f"{kind}-{number}")
                say(f"{kind}, round {number}: " + (f"{len(failed)} FAILED" if failed else "all held"))
                for failure in failed:
                    print(f"  {failure}", flush=True)
                failures += failed
    print(table(runs))
    say(f"{sum(runs.values())} runs, {len(failures)} failed (seed {arguments.seed})")
    print("EXACTLY ONCE in every run." if not failures else "NOT EXACTLY ONCE.")
    return 1 if failures else 0


class Rounds:
    """Run rounds in one driver after another, each for as long as no wave has killed it; `runs` counts."""

    def __init__(self, pool: DriverPool, chance: random.Random, runs: Counter[tuple[str, str]]) -> None:
        self._pool = pool
        self._chance = chance
        self._runs = runs
        self._driver = pool.take()

    def run(self, kind: str, folder: Path) -> list[str]:
        """Run every cell once on a fresh broker, and say what went wrong."""
        with world(kind, folder) as here:
            return [failure for cells in waves(self._chance) for failure in self._run_wave(here, cells)]

    def _run_wave(self, here: World, cells: list[Pair]) -> list[str]:
        wave = Wave(here, self._pool, self._driver, self._chance)
        self._runs.update((str(cell.step), cell.fault) for cell in cells)
        try:
            failures = wave.run(cells)
        except AssertionError as failure:
            # A query that does not end, or does not come to its point, fails its wave; the others go on.
            failures = [f"{cells[0].fault}, {len(cells)} cells together: {failure}"]
            wave.driver.kill()
            here.broker.kill()
            here.broker.start()
        if wave.driver.is_killed:
            wave.driver.close()
            wave.driver = self._pool.take()
        if wave.driver is not self._driver:
            self._driver.close()
        self._driver = wave.driver
        return failures


def waves(chance: random.Random) -> Iterator[list[Pair]]:
    """Give all cells in groups of one fault, in random company."""
    for fault in Fault:
        cells = list(pairs(fault))
        chance.shuffle(cells)
        for start in range(0, len(cells), CELLS_IN_A_WAVE):
            yield cells[start:start + CELLS_IN_A_WAVE]


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
