"""Measure the broker beside Apache Kafka, in one run: `python -m tests.benchmarks.bench_broker`.

Each broker is a separate process. The client is not Python: a load generator in Go (tests/benchmarks/go) does the work
and reports how long it took, and how much processor time the broker's process used for it. `memory` keeps its logs in
memory, `disk` syncs before each response, Apache Kafka writes to the file system and leaves syncing to it.

`--write` puts the tables into docs/contributing/benchmarks.md. `--compiled` measures the compiled build.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.broker import (
    growth,
    latency,
    memory,
    profile,
    recovery,
    starts,
    streams,
    throughput,
    transactions,
)
from tests.benchmarks.broker.brokers import running
from tests.benchmarks.broker.load import generator
from tests.support import compiled
from tests.support.apache_kafka import Unavailable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "contributing" / "benchmarks.md"
# Parts that share running brokers.
SHARED: dict[str, Callable[..., str]] = {
    "throughput": throughput.measure,
    "transactions": transactions.measure,
    "latency": latency.measure,
    "streams": streams.measure,
    "growth": growth.measure,
}
# Parts that start brokers of their own.
ALONE: dict[str, Callable[..., str]] = {
    "profile": profile.measure,
    "start": starts.measure,
    "memory": memory.measure,
    "recovery": recovery.measure,
}
PARTS = (*SHARED, *ALONE)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen parts and print a table for each."""
    parser = argparse.ArgumentParser(prog="bench_broker", description="Measure the broker beside Apache Kafka.")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, with commas (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="less work and one round, to see that everything runs")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--compiled", action="store_true", help=f"measure the compiled build: {', '.join(SHARED)}")
    arguments = parser.parse_args(argv)
    parts = arguments.only.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"--only has no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    if arguments.compiled:
        if alone := set(parts) & set(ALONE):
            parser.error(f"--compiled cannot measure {', '.join(sorted(alone))}: choose other parts with --only")
        # The brokers are processes that import the package from the current folder.
        os.chdir(compiled.update())
    try:
        generator()
    except Unavailable as problem:
        print(problem, file=sys.stderr)
        return 0
    shared = [part for part in SHARED if part in parts]
    if shared:
        with running() as brokers:
            for part in shared:
                report(part, partial(SHARED[part], brokers), arguments)
    for part in ALONE:
        if part in parts:
            report(part, ALONE[part], arguments)
    return 0


def report(part: str, measure: Callable[..., str], arguments: argparse.Namespace) -> None:
    """Measure one part, print its table, and put it into the page if asked."""
    started = time.perf_counter()
    print(f"{part}:", file=sys.stderr, flush=True)
    table = measure(quick=arguments.quick)
    command = f"python -m tests.benchmarks.bench_broker --only {part}" + " --quick" * arguments.quick
    command += " --compiled" * arguments.compiled
    seconds, load = time.perf_counter() - started, os.getloadavg()[1]
    machine = f"with Python {platform.python_version()} and a load average of {load:.0f} on {os.cpu_count()} cores"
    text = f"{table}\n\nMeasured by `{command}` in {seconds:.0f} s, {machine}."
    print(f"\n{text}\n", flush=True)
    if arguments.write:
        place = part + " compiled" * arguments.compiled
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), place, text), encoding="utf-8")


def rewritten(page: str, part: str, text: str) -> str:
    """Return the page with the text of one part between its two markers."""
    begin, end = f"<!-- measured: {part} -->\n", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begin)
    assert found, f"the page has no line {begin}"
    return before + begin + "\n" + text + "\n\n" + end + rest.partition(end)[2]


if __name__ == "__main__":
    sys.exit(main())
