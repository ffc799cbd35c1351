"""Measure source and sink in Spark, each beside its peers in the same run: `python -m tests.benchmarks.bench_spark`.

The peers are a sink and a source in Python that do nothing (the minimum for anything written in Python), and Spark's
own `kafka` format, which Maven fetches; where that is not available, its column is missing. All variants of one
measurement run in turn, several times, in one session and against one broker, and the result is the median: read the
ratios.

`--session` names how Spark is set up:

- `stock`: pip's PySpark with its default options.
- `unix`: stock with `spark.python.unix.domain.socket.enabled=true` (Spark 4.1 and later), see docs/spark/latency.md.
- `tuned`: unix without the zipped copy of PySpark, and with the modules of Python workers loaded before they fork.

`--what` selects measurements and `--broker` the broker; the default is everything, against `broker_core`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from tests.benchmarks import spark_cold, spark_latency, spark_memory, spark_throughput
from tests.benchmarks.spark_bench import SESSIONS, Bench, describe, open_bench, run_quietly

_COLD = "cold"
_RECOMMENDED = ("unix",)
# Each measurement and its default sessions: the setup affects small work most.
_PARTS: dict[str, tuple[Callable[[Bench], None], Sequence[str]]] = {
    "latency": (spark_latency.measure, ("stock", "unix")),
    "tasks": (spark_throughput.measure_tasks, ("stock", "unix")),
    "placing": (spark_throughput.measure_placing, _RECOMMENDED),
    "throughput": (spark_throughput.measure_sink, _RECOMMENDED),
    "source": (spark_throughput.measure_source, _RECOMMENDED),
    "checkpoints": (spark_latency.measure_checkpoints, _RECOMMENDED),
    "memory": (spark_memory.measure, _RECOMMENDED),
}
_NUMBERS = ("repeats", "micro_batches", "rows", "megabytes")


def main() -> int:
    """Run every measurement in a process for its session: a JVM keeps its settings, and workers what they loaded."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_spark")
    parser.add_argument("--what", action="append", choices=[_COLD, *_PARTS], help="may be repeated; default: all")
    parser.add_argument(
        "--session",
        action="append",
        choices=list(SESSIONS),
        help="may be repeated; default: those that affect the measurement",
    )
    parser.add_argument("--broker", choices=["broker_core", "apache"], default="broker_core")
    parser.add_argument("--repeats", type=int, default=3, help="the number of measurements of each, after one warm-up")
    parser.add_argument(
        "--micro-batches", type=int, default=30, help="the number of micro-batches in each of them, for latency"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many each of those times, for throughput")
    parser.add_argument("--megabytes", type=int, default=500, help="how much a task writes, for memory")
    parser.add_argument("--inside", choices=list(SESSIONS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    what = arguments.what or [_COLD, *_PARTS]
    if arguments.inside:
        with open_bench(arguments.inside, arguments) as bench:
            for part in what:
                started = time.monotonic()
                _PARTS[part][0](bench)
                print(f"[{arguments.inside}] {part} took {time.monotonic() - started:.0f} s", flush=True)
        return 0
    print(f"Spark {describe(arguments)}", flush=True)
    started, failed = time.monotonic(), 0
    for session in arguments.session or SESSIONS:
        if _COLD in what:
            failed += spark_cold.measure(session, arguments.broker)
        chosen = [part for part in what if part in _PARTS and session in (arguments.session or _PARTS[part][1])]
        if chosen:
            command = [sys.executable, "-m", "tests.benchmarks.bench_spark", "--inside", session]
            command += [word for part in chosen for word in ("--what", part)] + ["--broker", arguments.broker]
            command += [f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in _NUMBERS]
            failed += not run_quietly(command)
    print(f"Spark took {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
