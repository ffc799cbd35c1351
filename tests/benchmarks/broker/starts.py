"""Start-up: the import of the embedded broker, the time until a new broker acknowledges a first record, and restores.

Each figure is the median of several new processes, or of several restores.
"""

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Producer

from broker_core import EmbeddedBroker
from tests.benchmarks.broker.brokers import COMPILED, DISK, MEMORY, NAMES, running
from tests.benchmarks.broker.rounds import markdown

STARTS = 5
PARTITIONS = (10, 300)
DEADLINE_S = 120.0
IMPORT = "import time; t = time.process_time(); import broker_core.embedded; print((time.process_time() - t) * 1000)"
FIRST = "from tests.benchmarks.broker.starts import first_acknowledged as f; print(f())"
CONTROLLED = "from tests.benchmarks.broker.starts import controlled as f; print(f())"


def first_acknowledged() -> float:
    """Return the ms from the start of an embedded broker to its first acknowledged record, client included."""
    started = time.perf_counter()
    with EmbeddedBroker() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        producer.produce("first", b"x")
        assert producer.flush(DEADLINE_S) == 0
        return (time.perf_counter() - started) * 1000


def controlled() -> float:
    """Return the ms of processor time from the start of a control port to its first answer."""
    from broker_core.features.control.server import ControlServer

    with EmbeddedBroker() as kafka:
        started = time.process_time()
        with ControlServer(kafka) as control, urllib.request.urlopen(f"{control.url}/about") as answer:
            answer.read()
            return (time.process_time() - started) * 1000


def _in_new_interpreter(code: str, times: int) -> float:
    """Return the median of the figures that the code prints, without the first one, which may compile modules."""
    figures = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=COMPILED).stdout)
        for _ in range(1 + times)
    ]
    return statistics.median(figures[1:])


def _new_process(name: str) -> float:
    """Return the ms from the start of a broker's process to the first topic that it has created."""
    started = time.perf_counter()
    with running([name]) as brokers:
        for broker in brokers:
            broker.load("create", topic="first")
            return (time.perf_counter() - started) * 1000
    return float("nan")


def _restore(partitions: int, times: int, data_dir: Path | None = None) -> tuple[float, float]:
    """Return the ms of `snapshot` with the first `restore`, and the median ms of later ones.

    The snapshot has a record in each partition; one more record is written before each restore.
    """
    taken = []
    with EmbeddedBroker(topics={"first": partitions}, data_dir=data_dir) as kafka:
        kafka.produce("first", [(None, "x", (), None, each) for each in range(partitions)])
        started = time.perf_counter()
        snapshot = kafka.snapshot()
        taken.append((time.perf_counter() - started) * 1000)
        for _ in range(1 + times):
            kafka.produce("first", ["y"])
            started = time.perf_counter()
            kafka.restore(snapshot)
            taken.append((time.perf_counter() - started) * 1000)
    return taken[0] + taken[1], statistics.median(taken[2:])


def measure(*, quick: bool) -> str:
    """Return the table of start-up times."""
    times = 1 if quick else STARTS
    rows = [
        ["import of `broker_core.embedded`, processor time", f"{_in_new_interpreter(IMPORT, times):.0f}"],
        ["`EmbeddedBroker()` to its first acknowledged record", f"{_in_new_interpreter(FIRST, times):.0f}"],
        ["a control port to its first answer, processor time", f"{_in_new_interpreter(CONTROLLED, times):.0f}"],
    ]
    for name in NAMES:
        taken = statistics.median(_new_process(name) for _ in range(1 if quick else 3))
        if taken == taken:
            rows.append([f"a new process to its first topic, {name}", f"{taken:,.0f}"])
    for partitions in PARTITIONS:
        with tempfile.TemporaryDirectory() as folder:
            for name, place in ((MEMORY, None), (DISK, Path(folder) / "data")):
                first, later = _restore(partitions, times, place)
                rows.append([f"`snapshot` and the first `restore`, {partitions} partitions, {name}", f"{first:.1f}"])
                rows.append([f"each later `restore`, {partitions} partitions, {name}", f"{later:.1f}"])
    return markdown(["what", "ms"], rows)
