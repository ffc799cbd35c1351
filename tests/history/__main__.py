"""Make histories and judge them: `python -m tests.history --broker apache --seconds 60 --runs 3`.

The history of a run that failed is kept where `--keep` says. Apache Kafka 4.4.0 fails when it is killed: a transaction
that times out while its node comes back can end without its markers (KAFKA-20734), and the next commit of the same
producer then shows the records of the aborted one. `--fault pause` leaves the kills out.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.history.checker import check
from tests.history.format import INVOKE, Op, write_history
from tests.history.workload import FAULTS, run

BROKERS = ("broker_core", "apache")


def main() -> int:
    """Return 0 when every history was without fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default=BROKERS[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--fault", choices=FAULTS, action="append", help="all unless given")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            story = run(arguments.broker, Path(folder) / "broker", seed=seed, seconds=arguments.seconds,
                        ways=arguments.fault or FAULTS)
        anomalies = check(story.ops)
        print(f"{arguments.broker}, seed {seed}: {outline(story.ops)}; {dict(story.faults)}", flush=True)
        for anomaly in anomalies[:20]:
            print(f"  {anomaly.kind}: {anomaly.story}")
        if anomalies:
            failed += 1
            kept = arguments.keep / f"history-{arguments.broker}-{seed}.jsonl"
            write_history(kept, story.ops)
            print(f"  {len(anomalies)} anomalies; kept as {kept}")
    print(f"{arguments.runs} histories, {failed} with anomalies")
    return 1 if failed else 0


def outline(ops: list[Op]) -> str:
    """Count the operations by what they were and how they ended."""
    counts = Counter((op.function, op.kind) for op in ops if op.kind != INVOKE and op.function != "nemesis")
    return ", ".join(f"{count} {function} {kind}" for (function, kind), count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
