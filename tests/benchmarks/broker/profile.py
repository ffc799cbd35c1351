"""The ten places where the broker spends most of its processor time, for three kinds of load."""

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path

from tests.benchmarks.broker.brokers import DISK, broker_core
from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import markdown
from tests.support.waiting import wait_until

PLACES = 10
# Linux counts the processor time of a process in steps of 4 ms, so this is eight seconds of it.
SAMPLES = 2_000
RECORDS, TRANSACTIONS, PRODUCERS = 500_000, 5_000, 100
QUICK = 10

_names = count()


def _produce(broker: Broker, share: int) -> None:
    topic = f"load-{next(_names)}"
    broker.load("create", topic=topic)
    broker.load("produce", topic=topic, records=RECORDS // share)
    broker.load("delete", topic=topic)


def _fetch(broker: Broker, share: int) -> None:
    broker.load("fetch", topic="records", records=RECORDS // share)


def _transactions(broker: Broker, share: int) -> None:
    broker.load(
        "transactions",
        topic="transactions",
        producers=PRODUCERS,
        total=TRANSACTIONS // share,
        prefix=f"load-{next(_names)}",
    )


LOADS: Mapping[str, Callable[[Broker, int], None]] = {
    "produce, 1,000 B records": _produce,
    "fetch, 1,000 B records": _fetch,
    f"transactions of {PRODUCERS} producers": _transactions,
}


def counted(broker: Broker, file: Path, load: Callable[[], None]) -> Counter[str]:
    """Return how often each place was seen during a load."""
    os.kill(broker.process_id, signal.SIGUSR1)
    load()
    file.unlink(missing_ok=True)
    os.kill(broker.process_id, signal.SIGUSR1)
    wait_until(file.exists, "the broker writes its counts", deadline_s=60)
    return Counter(json.loads(file.read_text()))


def _column(broker: Broker, file: Path, load: Callable[[Broker, int], None], share: int) -> list[str]:
    """Return the places where the broker spends most of its time under a load, each with its share."""
    load(broker, share)
    counts: Counter[str] = Counter()
    while counts.total() < SAMPLES // share:
        counts += counted(broker, file, partial(load, broker, share))
    return [f"`{place}` {times / counts.total():.0%}" for place, times in counts.most_common(PLACES)]


def measure(*, quick: bool) -> str:
    """Return the table of places, those with the most time first."""
    share = QUICK if quick else 1
    columns = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.json"
        sampled = ("tests.benchmarks.broker.sampled_broker", str(file))
        with broker_core(DISK, "--data-dir", str(Path(folder) / "data"), program=sampled) as broker:
            for topic in ("records", "transactions"):
                broker.load("create", topic=topic)
            broker.load("produce", topic="records", records=RECORDS // share)
            for name, load in LOADS.items():
                columns.append(_column(broker, file, load, share))
                print(f"{name}: {', '.join(columns[-1])}", file=sys.stderr, flush=True)
    rows = [[str(number), *(column[number - 1] for column in columns)] for number in range(1, PLACES + 1)]
    return markdown(["", *LOADS], rows)
