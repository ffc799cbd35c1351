"""Record histories and check them: `python -m tests.history --broker apache --faults pause --seconds 60 --runs 3`.

The data folder of `broker_core` is inspected too, once after a kill and once after a clean stop. The history of a
failed run is kept in the folder of `--keep`. Apache Kafka 4.4.0 fails when it is killed: a transaction that times out
while its node restarts can end without its markers (KAFKA-20734), and the next commit of the same producer then shows
the records of the aborted one. With `--faults pause` there are no kills, and the run must pass.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.history.workload import FAULTS, LONGEST_PAUSE_S, WorkloadResult, run
from tests.support.history.anomalies import Anomaly
from tests.support.history.checker import check
from tests.support.history.format import INVOKE, Op, write_history

BROKERS = ("broker_core", "apache")
# Problems that are not anomalies of a history.
STUCK, FILES = "stuck", "broker's files"
_SHOWN = 20
_SHOWN_CHARACTERS = 500


@dataclass
class Tally:
    """The totals of all runs."""

    runs: int = 0
    seconds: float = 0
    operations: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[str] = field(default_factory=Counter)
    runs_with_anomalies: int = 0

    def add(self, result: WorkloadResult, anomalies: Iterable[str], seconds: float) -> None:
        """Add one run and the kinds of its anomalies."""
        before = self.anomalies.total()
        self.runs += 1
        self.seconds += seconds
        self.operations += sum(op.kind == INVOKE for op in result.ops)
        self.transactions.update(op.kind for op in result.ops if op.transaction is not None and op.kind != INVOKE)
        self.faults += result.faults
        self.anomalies.update(anomalies)
        self.runs_with_anomalies += self.anomalies.total() > before

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        return [
            f"{self.runs} runs in {self.seconds:.0f} s: {self.operations} operations, "
            f"{self.transactions.total()} transactions ({_listed(self.transactions)})",
            f"faults: {_listed(self.faults)}",
            f"anomalies: {_listed(self.anomalies)}; {self.runs_with_anomalies} runs had some",
        ]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if every history passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default=BROKERS[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="how long faults are injected in each run")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", choices=("all", *FAULTS), default="all")
    parser.add_argument("--longest-pause", type=float, default=LONGEST_PAUSE_S, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args(argv)
    tally = Tally()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            result = run(
                arguments.broker,
                Path(folder) / "broker",
                seed=seed,
                seconds=arguments.seconds,
                ways=FAULTS if arguments.faults == "all" else (arguments.faults,),
                longest_pause_s=arguments.longest_pause,
            )
        anomalies = check(result.ops)
        tally.add(result, kinds_of(result, anomalies), time.monotonic() - began)
        print(f"{arguments.broker}, seed {seed}: {outline(result.ops)}; {_listed(result.faults)}", flush=True)
        if report(result, anomalies):
            kept = arguments.keep / f"history-{arguments.broker}-{seed}.jsonl"
            write_history(kept, result.ops)
            print(f"  kept as {kept}", flush=True)
    for line in tally.lines():
        print(line)
    return 1 if tally.runs_with_anomalies else 0


def kinds_of(result: WorkloadResult, anomalies: Iterable[Anomaly]) -> list[str]:
    """Return the kind of each problem of a run."""
    return [*(str(each.kind) for each in anomalies), *[STUCK] * len(result.stuck), *[FILES] * len(result.problems)]


def report(result: WorkloadResult, anomalies: Sequence[Anomaly]) -> bool:
    """Print the problems of a run, at most some of each kind; return whether it has any."""
    lines = [
        *(f"{each.kind}: {each.story}" for each in anomalies[:_SHOWN]),
        *(f"{STUCK}: {each}" for each in result.stuck),
        *(f"{FILES}: {each}" for each in result.problems[:_SHOWN]),
    ]
    for line in lines:
        print(f"  {line[:_SHOWN_CHARACTERS]}", flush=True)
    return bool(lines)


def outline(ops: list[Op]) -> str:
    """Count the operations by function and outcome."""
    counts = Counter((op.function, op.kind) for op in ops if op.kind != INVOKE and op.function != "nemesis")
    return ", ".join(f"{count} {function} {kind}" for (function, kind), count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
