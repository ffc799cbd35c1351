"""Run one query for a long time, with failures, and see that nothing grows: `python -m tests.crash.soak --minutes 60`.

The query reads a topic and writes another one, while a reader counts what becomes visible. In the first tenth of the
time the broker and Spark's driver are killed. From then on both live, so that what they keep is seen: the query is
stopped and started, its Python workers are killed, answers are lost, the broker is paused, and no input arrives for
longer than ids live. After each of these a sample is taken. At the end the driver is killed once more.

The run fails if a sample kind grows after the first tenth (`growth.py`), or if a row is lost or doubled.
"""

import argparse
import itertools
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core.types import counted
from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.crash import growth
from tests.crash.case import Case
from tests.crash.drivers import drivers
from tests.crash.feed import Feed
from tests.crash.streams import Streams, committed
from tests.crash.wire import Loss, Wire
from tests.crash.world import PARTITIONS
from tests.support.broker_processes import BrokerCore
from tests.support.clients import LOG_NOTHING
from tests.support.memory import heap_bytes
from tests.support.processes import Process, send, tree
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.spark_eos.sink_topic import open_transactions

PRODUCE, END_TXN = 0, 26
# How often input arrives is in `Streams`; so many rows for each partition each time.
ROWS = 20
OFFSETS_AT_ONCE = 2_000
# Seven days by default.
ID_LIVES_S = 20
WARM_UP_SHARE = 0.1
PAUSE_S = 3
LEAST_SAMPLES = 6
DECISION_TOPIC = "decisions"
BROKER_SETTINGS = {
    "transactional.id.expiration.ms": str(1_000 * ID_LIVES_S),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": str(1_000 * ID_LIVES_S),
    "producer.id.expiration.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}
# Segments of the decision topic close, and are compacted, in seconds instead of hours.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}


class Broker(BrokerCore):
    """`broker_core` in a process, where ids expire soon."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SETTINGS | BROKER_SETTINGS)

    @property
    def process_id(self) -> int:
        """Return the id of the process that runs."""
        assert self._process is not None
        return self._process.pid


@dataclass
class Numbers(Case):
    """A query that copies numbers from one topic to another one."""

    sent: int = 0
    is_quiet: bool = False
    producer: Producer = None

    def add_micro_batch(self) -> None:
        """Send the next numbers, if input arrives now."""
        if self.is_quiet:
            return
        assert self.feed is not None
        for number in range(self.sent, self.sent + ROWS * PARTITIONS):
            self.producer.produce(self.feed.topic, str(number), str(number), partition=number % PARTITIONS)
        self.sent += ROWS * PARTITIONS
        self.producer.poll(0)


class Counting:
    """A reader that counts how often each number has become visible."""

    def __init__(self, address: str, topic: str) -> None:
        self.seen = bytearray()
        self.doubled = 0
        self.count = 0
        self._is_over = threading.Event()
        self._place = address, topic
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        address, topic = self._place
        settings = {"bootstrap.servers": address, "group.id": topic, "isolation.level": "read_committed"}
        with closing(Consumer({**settings, "enable.auto.commit": False, "log_level": LOG_NOTHING})) as consumer:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            while not self._is_over.is_set():
                for message in consumer.consume(1_000, timeout=0.2):
                    if message.error() is None:
                        self._note(int((message.value() or b"").split(b" ")[0]))

    def _note(self, number: int) -> None:
        self.seen.extend(bytes(max(0, number + 1 - len(self.seen))))
        self.doubled += self.seen[number]
        self.count += not self.seen[number]
        self.seen[number] = 1


class Soak:
    """One run: the broker, the query, what happens to them, and the samples."""

    def __init__(self, folder: Path, broker: Broker, wire: Wire, streams: Streams, case: Numbers) -> None:
        self._folder = folder
        self._broker = broker
        self._wire = wire
        self._streams = streams
        self._case = case
        self.samples: list[growth.Sample] = []
        self.done: dict[str, int] = {}

    def warm_up(self) -> None:
        """Kill what lives on from then on."""
        self._streams.wait_for_progress(2)
        self._broker.kill()
        self._broker.start()
        self._streams.wait_for_progress(2)
        self.replace_driver()

    def replace_driver(self) -> None:
        """Kill the driver, and continue in a new one."""
        self._streams.kill_driver()
        self._streams.start_driver()
        self._streams.wait_for_progress(2)

    def go_on(self, until: float, say: Callable[[str], None]) -> None:
        """Do one thing after another, and take a sample after each."""
        for act in itertools.cycle(
            (self._stop_query, self._lose_answers, self._kill_workers, self._pause_broker, self._be_quiet)
        ):
            if time.monotonic() > until:
                return
            act()
            self._streams.wait_for_progress(2)
            name = act.__name__.strip("_").replace("_", " ")
            self.done[name] = self.done.get(name, 0) + 1
            self.samples.append(self.sample())
            say(f"{name}: {', '.join(f'{kind} {value:,.0f}' for kind, value in self.samples[-1].items())}")

    def sample(self) -> growth.Sample:
        """Measure what may grow."""
        spark = self._streams.driver.processes()
        pythons = growth.memory_mib(each for each in spark if _is_python(each))
        broker = tree(self._broker.process_id)
        found = {
            growth.PYTHON.name: sum(pythons),
            growth.LARGEST.name: max(pythons),
            growth.BROKER.name: sum(growth.memory_mib(broker)),
            growth.SOCKETS.name: growth.sockets(each for each in spark if _is_worker(each)),
            growth.SPARKS_SOCKETS.name: growth.sockets(each for each in spark if not _is_worker(each)),
            growth.BROKER_SOCKETS.name: growth.sockets(broker),
            growth.DECISIONS.name: growth.size_kib(self._broker.data, f"{DECISION_TOPIC}-*/*.log"),
            growth.CHECKPOINT.name: growth.size_kib(self._case.checkpoint),
        }
        with KafkaClient(ClientOptions((self._broker.address,))) as client:
            found[growth.IDS.name] = len(list_transactions(client))
        heap = heap_bytes(self._streams.driver.jvm)
        return found if heap is None else {growth.HEAP.name: heap / 2**20, **found}

    def _stop_query(self) -> None:
        before = len(self._streams.stops)
        self._streams.driver.stop(self._case)
        self._streams.wait_until(lambda: len(self._streams.stops) > before, "the query has ended")

    def _lose_answers(self) -> None:
        for api_key in (PRODUCE, END_TXN):
            loss = Loss(api_key, (self._case.prefix.encode(),))
            self._wire.losses = [loss]
            self._streams.wait_until(lambda loss=loss: loss.lost, "an answer is lost")

    def _kill_workers(self) -> None:
        send([each for each in self._streams.driver.processes() if _is_worker(each)], signal.SIGKILL)

    def _pause_broker(self) -> None:
        self._broker.pause()
        self._streams.let_pass(PAUSE_S)
        self._broker.resume()

    def _be_quiet(self) -> None:
        self._case.is_quiet = True
        self._streams.let_pass(1.5 * ID_LIVES_S)
        self._case.is_quiet = False


def _command(process: Process) -> bytes:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_python(process: Process) -> bool:
    return b"java" not in _command(process).partition(b"\0")[0]


def _is_worker(process: Process) -> bool:
    return b"pyspark.daemon" in _command(process)


def run(minutes: float, say: Callable[[str], None]) -> list[str]:
    """Run for so many minutes, and return what is wrong."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name, ExitStack() as stack:
        folder = Path(name)
        broker = Broker(folder / "broker")
        stack.callback(broker.close)
        broker.start()
        wire = stack.enter_context(closing(Wire(broker.address)))
        feed = Feed(offsets_of_micro_batch=OFFSETS_AT_ONCE)
        case = Numbers(folder, wire.address, 0, {"decisionTopic": DECISION_TOPIC}, feed=feed, endless=True)
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": LOG_NOTHING})
        topics = [NewTopic(each, PARTITIONS, 1) for each in (case.topic, feed.topic)]
        for made in admin.create_topics([*topics, NewTopic(DECISION_TOPIC, 1, 1, config=COMPACTED)]).values():
            made.result(60)
        case.producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "log_level": 0})
        reader = stack.enter_context(closing(Counting(broker.address, case.topic)))
        pool = stack.enter_context(drivers(folder, ahead=3))
        streams = Streams(pool, pool.take(), [case], say, most_stops=sys.maxsize)
        stack.callback(streams.close)
        soak = Soak(folder, broker, wire, streams, case)
        began = time.monotonic()
        soak.warm_up()
        streams.let_pass(max(0, began + 60 * minutes * WARM_UP_SHARE - time.monotonic()))
        say(f"warm after {time.monotonic() - began:.0f} s and {counted(len(streams.stops), 'stop')}")
        soak.go_on(time.monotonic() + 60 * minutes * (1 - WARM_UP_SHARE), say)
        soak.replace_driver()
        case.is_quiet = True
        case.producer.flush(60)
        streams.wait_until(lambda: reader.count >= case.sent, "all rows are visible")
        streams.kill_driver()
        open_ids = open_transactions(broker.address, case.prefix)
        wrong = growth.grown(soak.samples)
        if len(soak.samples) < LEAST_SAMPLES:
            wrong.append(f"{len(soak.samples)} samples show nothing: let it run longer than {minutes} minutes")
        if reader.doubled:
            wrong.append(f"{counted(reader.doubled, 'row')} visible twice")
        if open_ids:
            wrong.append(f"open at the end: {', '.join(open_ids)}")
        say(
            f"{reader.count:,} rows in {committed(case):,} micro-batches, {counted(len(streams.stops), 'stop')} of the "
            f"query, {len(soak.samples)} samples; {', '.join(f'{act} {count}' for act, count in soak.done.items())}"
        )
        print(growth.table(soak.samples), flush=True)
        return wrong


def main() -> int:
    """Run; return 0 if nothing has grown and each row is visible once."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    minutes, began = parser.parse_args().minutes, time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    wrong = run(minutes, lambda text: print(f"[{time.monotonic() - began:6.0f} s] {text}", flush=True))
    print("\n".join(wrong) or "nothing grew; each row is visible once")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
