"""The demo: `make demo`.

The lines of Python's standard library are sent to topic `lines` in transactions, some of which are aborted on purpose.
A Spark streaming query counts identifiers and writes the counts of each micro-batch to topic `counts`. The query is
killed twice with SIGKILL: between prepare and decide, where its transactions must leave no trace, and between decide
and complete, where they must all take effect. At the end a confluent-kafka read_committed consumer sums the counts in
`counts`; the sum must equal a plain count of the files.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from broker_core import EmbeddedBroker
from examples.demo.check import count_transactions, read_committed_counts
from examples.demo.lines import LINES_KEY, Produced, count_directly, produce, read_lines
from examples.demo.progress import clear, shown

_ROOT = Path(__file__).parents[2]
_PRODUCERS = 2
_SEED = 20
_KILLS = (
    ("driver.before_decide", 1, "between prepare and decide"),
    ("driver.after_decide", 3, "between decide and complete"),
)
_RUN_SECONDS = 150

_started = time.monotonic()


def say(text: str) -> None:
    """Print one line of progress with the seconds since the start."""
    clear()
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", flush=True)


def main() -> int:
    """Run the demo and return the exit code: 0 if every line was counted exactly once."""
    lines = read_lines()
    expected = count_directly(lines)
    say(f"Python's standard library has {len(lines)} lines with {len(expected) - 1} different identifiers")
    with EmbeddedBroker(topics={"lines": 4, "counts": 2}) as kafka, tempfile.TemporaryDirectory() as folder:
        say(f"embedded broker is up at {kafka.bootstrap_servers}")
        produced = Produced()
        with shown(lambda: f"{produced.lines} of {len(lines)} lines produced"):
            produce(kafka.bootstrap_servers, "lines", lines, _PRODUCERS, _SEED, produced)
        say(
            f"{produced.lines} lines produced in {produced.committed} committed transactions; "
            f"{produced.aborted_lines} more in {produced.aborted} aborted ones"
        )
        restarts = run_query(kafka.bootstrap_servers, Path(folder))
        with shown(lambda: "reading topic counts"):
            counted, rows = read_committed_counts(kafka.bootstrap_servers, "counts")
        committed, aborted = count_transactions(kafka, "counts")
    say(
        f"topic counts: {rows} rows visible, {committed} transactions committed, {aborted} aborted; "
        f"{restarts} restarts after SIGKILL"
    )
    return report(expected, counted)


def run_query(bootstrap_servers: str, folder: Path) -> int:
    """Run the query to its end, killing it at each point of `_KILLS`; return how often it was restarted."""
    for index, (failpoint, micro_batch, place) in enumerate(_KILLS):
        held = folder / f"held-{index}"
        process = start_query(bootstrap_servers, folder, f"{failpoint}=hold:{held}@{micro_batch}")
        try:
            wait_for(held, process)
            say(f"query is held {place} in micro-batch {micro_batch}: SIGKILL to Spark and all its workers")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    process = start_query(bootstrap_servers, folder, "")
    try:
        code = process.wait(timeout=_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if code != 0:
        raise RuntimeError(f"the query ended with exit code {code}; its output is above")
    say("query has processed everything")
    return len(_KILLS)


def start_query(bootstrap_servers: str, folder: Path, failpoints: str) -> "subprocess.Popen[bytes]":
    """Start the query in its own process group."""
    say("starting the Spark query")
    # The folder's module lets failpoints act.
    paths = [str(_ROOT / "tests" / "support" / "preload"), str(_ROOT)]
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo.query", bootstrap_servers, str(folder / "checkpoint")],
        env={
            **os.environ,
            "SPARK_EOS_FAILPOINTS": failpoints,
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        start_new_session=True,
    )


def wait_for(held: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the query has reached its failpoint."""
    deadline = time.monotonic() + _RUN_SECONDS
    while not held.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the query ended with exit code {process.returncode} before it reached the failpoint")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query did not reach the failpoint within {_RUN_SECONDS} s")
        time.sleep(0.05)


def report(expected: Counter[bytes], counted: Counter[bytes]) -> int:
    """Compare the counts, print the result in the last line, and return the exit code."""
    if counted == expected:
        print(
            f"EXACTLY ONCE: all {expected[LINES_KEY]} lines and {expected.total() - expected[LINES_KEY]} identifiers "
            "were counted exactly once."
        )
        return 0
    wrong = [key for key in expected.keys() | counted.keys() if expected[key] != counted[key]]
    for key in sorted(wrong)[:10]:
        print(f"  {key.decode()}: expected {expected[key]}, counted {counted[key]}")
    print(
        f"NOT EXACTLY ONCE: {len(wrong)} of {len(expected)} counts are wrong "
        f"({counted[LINES_KEY]} of {expected[LINES_KEY]} lines counted)."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
