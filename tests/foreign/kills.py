"""Exactly-once applications of others that are killed while they work, and whose broker is killed or restarted.

Each application counts the lines of each key and writes "count line" for every line. A producer writes lines without
a pause while workers and broker end and start again; then a read_committed reader compares all that was written with
what one undisturbed run would write.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.foreign.outcomes import FAILED, PASSED, Outcomes
from tests.support.apache_kafka import Unavailable, fetch_jars
from tests.support.broker_processes import Broker, make_broker
from tests.support.child_process import start_child
from tests.support.java import java_command, java_problem
from tests.support.waiting import wait_until

FOLDER: Final = Path(__file__).parent
INPUT, OUTPUT = "lines", "counts"
PARTITIONS: Final = 3
KEYS: Final = 10
KILL_WORKER, KILL_BROKER, RESTART_BROKER = "SIGKILL of a worker", "SIGKILL of the broker", "a restart of the broker"
# What happens one after the other, each after the application wrote more lines.
KILLS: Final = (KILL_WORKER, KILL_BROKER, KILL_WORKER, KILL_BROKER, KILL_WORKER)
RESTARTS: Final = (KILL_WORKER, RESTART_BROKER, KILL_WORKER, RESTART_BROKER, KILL_WORKER)
# After SIGKILL, a single node of Apache Kafka 4.3 or 4.4 loses the markers of the transactions that end while it comes
# back (KAFKA-20734), so that the application stops. This is the newest version without that fault.
KILLABLE_APACHE: Final = "4.2.2"
LINES_BETWEEN: Final = 100
PAUSE_S: Final = 0.01
DEADLINE_S: Final = 600
LOGGING: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
REQUEST_S: Final = 30
# After a restart of the only broker, librdkafka 2.16 does not find it again without this.
# A broker that is killed would fill the log of every client.
CLIENT: Final = {"metadata.recovery.strategy": "none", "log_level": 0}
MISSING, DOUBLED, DISORDERED = "every line is counted", "no line is counted twice", "lines of a key keep their order"


@dataclass(frozen=True)
class Application:
    """A Java program, the POM with its libraries, the number of processes, and options of the JVM."""

    program: str
    pom: str
    workers: int
    options: Sequence[str] = ()


STREAMS: Final = Application("StreamsCount", "kafka-streams-pom.xml", 2, ("-Xmx256m",))
# Flink's own start script opens these packages to its serializers.
FLINK: Final = Application(
    "FlinkCount",
    "flink-kafka-pom.xml",
    1,
    (
        "-Xmx768m",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    ),
)


def run_with_faults(
    application: Application, faults: Sequence[str], kind: str, log: Path, apache_version: str | None = None
) -> Outcomes:
    """Run an application through the ends of its workers and its broker, and judge what it wrote."""
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    compiler = shutil.which("javac", path=os.pathsep.join([str(Path(str(java_command())).parent), os.environ["PATH"]]))
    if compiler is None:
        raise Unavailable("The Java compiler is missing: no javac on the PATH; install a JDK.")
    jars = fetch_jars(FOLDER / application.pom)
    with tempfile.TemporaryDirectory(prefix="foreign-") as name, log.open("wb") as output:
        folder = Path(name)
        source = FOLDER / "java" / f"{application.program}.java"
        subprocess.run(
            [compiler, "-cp", f"{jars}/*", "-d", str(folder / "classes"), str(source)], check=True, timeout=DEADLINE_S
        )
        broker = make_broker(kind, folder / "broker", apache_version)
        broker.start()
        workers = _Workers(application, jars, folder, broker, output)
        try:
            return _run(broker, workers, faults)
        finally:
            workers.close()
            broker.close()


def judge(written: Mapping[str, Sequence[str]], seen: Mapping[str, Sequence[str]]) -> Outcomes:
    """Compare the lines of each key with the counts that a reader saw."""
    broken = set()
    for key in {*written, *seen}:
        expected = [f"{index + 1} {line}" for index, line in enumerate(written.get(key, ()))]
        found = Counter(seen.get(key, ()))
        if set(expected) - found.keys():
            broken.add(MISSING)
        if any(number > 1 for number in found.values()) or found.keys() - set(expected):
            broken.add(DOUBLED)
        places = {line: index for index, line in enumerate(expected)}
        order = [places[line] for line in dict.fromkeys(seen.get(key, ())) if line in places]
        if order != sorted(order):
            broken.add(DISORDERED)
    return {each: FAILED if each in broken else PASSED for each in (MISSING, DOUBLED, DISORDERED)}


class _Workers:
    """The application's processes."""

    def __init__(self, application: Application, jars: Path, folder: Path, broker: Broker, output: IO[bytes]) -> None:
        self._application = application
        self._classes = f"{folder / 'classes'}:{jars}/*"
        self._folder = folder
        self._broker = broker
        self._output = output
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._turn = 0

    def start(self) -> None:
        """Start every worker that does not run."""
        for number in range(self._application.workers):
            process = self._processes.get(number)
            if process is not None and process.poll() is None:
                continue
            command = [
                str(java_command()),
                LOGGING,
                *self._application.options,
                "-cp",
                self._classes,
                self._application.program,
            ]
            command += [self._broker.address, str(self._folder / f"worker-{number}"), INPUT, OUTPUT]
            self._processes[number] = start_child(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Send SIGKILL to the next worker in turn."""
        process = self._processes[self._turn % self._application.workers]
        self._turn += 1
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()


class _Lines(threading.Thread):
    """A producer of lines, which goes on through restarts of the broker."""

    def __init__(self, address: str) -> None:
        super().__init__(name="lines", daemon=True)
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **CLIENT})
        self._ends = threading.Event()
        self.written: dict[str, list[str]] = defaultdict(list)
        self.errors: list[KafkaError] = []

    def run(self) -> None:
        number = 0
        while not self._ends.wait(PAUSE_S):
            key = f"key{number % KEYS}"
            line = f"{key} {number}"
            self._producer.produce(INPUT, line, key, on_delivery=self._delivered)
            self.written[key].append(line)
            self._producer.poll(0)
            number += 1

    def end(self) -> None:
        """Write no more, and wait until the broker has all lines."""
        self._ends.set()
        self.join()
        left = self._producer.flush(DEADLINE_S)
        assert left == 0 and not self.errors, f"{left} lines were not written: {self.errors[:3]}"

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(error)


class _Reader:
    """A read_committed reader of all that the application wrote."""

    def __init__(self, address: str) -> None:
        settings = {"isolation.level": "read_committed", "enable.auto.commit": False, "group.id": "reader", **CLIENT}
        self._consumer = Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest", **settings})
        self._consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
        self.seen: dict[str, list[str]] = defaultdict(list)
        self.total = 0

    def has(self, total: int) -> bool:
        """Read on, and return whether as many lines were seen."""
        for message in self._consumer.consume(500, 0.5):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                self.seen[key.decode()].append(value.decode())
                self.total += 1
        return self.total >= total

    def read_to_the_end(self) -> None:
        """Read until every partition's position is its last stable offset, which has no open transaction before it."""

        def at_the_end() -> bool:
            self.has(0)
            try:
                return all(
                    place.offset >= self._consumer.get_watermark_offsets(place, timeout=REQUEST_S)[1]
                    for place in self._consumer.position(self._consumer.assignment())
                )
            except KafkaException:
                return False

        wait_until(at_the_end, "the reader is at the end", deadline_s=DEADLINE_S)

    def close(self) -> None:
        self._consumer.close()


def _run(broker: Broker, workers: _Workers, faults: Sequence[str]) -> Outcomes:
    admin = AdminClient({"bootstrap.servers": broker.address, **CLIENT})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in (INPUT, OUTPUT)]
    for created in admin.create_topics(topics, request_timeout=REQUEST_S).values():
        created.result(REQUEST_S)
    workers.start()
    lines = _Lines(broker.address)
    lines.start()
    reader = _Reader(broker.address)

    def wait_for_more(what: str) -> None:
        target = reader.total + LINES_BETWEEN
        wait_until(lambda: reader.has(target), f"the application writes on after {what}", deadline_s=DEADLINE_S)

    wait_for_more("the start")
    for fault in faults:
        if fault == KILL_WORKER:
            workers.kill()
            workers.start()
        else:
            (broker.kill if fault == KILL_BROKER else broker.stop)()
            broker.start()
        wait_for_more(fault)
    lines.end()
    total = sum(map(len, lines.written.values()))
    with suppress(AssertionError):
        # What is missing shows in the comparison.
        wait_until(lambda: reader.has(total), f"{total} lines are counted", deadline_s=DEADLINE_S)
    reader.read_to_the_end()
    reader.close()
    return judge(lines.written, reader.seen)
