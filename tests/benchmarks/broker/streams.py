"""Kafka Streams: a stateful topology, exactly once, with a commit every 100 ms."""

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import Sample, Table, rounds
from tests.support.apache_kafka import fetch_jars, stop_process
from tests.support.child_process import start_child
from tests.support.java import java_command

JAVA = Path(__file__).resolve().parents[1] / "java"
COMMIT_INTERVAL_MS = 100
PARTITIONS = 4
RECORDS, RECORD_BYTES = 200_000, 100
QUICK = 10

_topics = count()


def _process(broker: Broker, records: int) -> Mapping[str, Sample]:
    """Run the topology over a topic that is already filled."""
    number = next(_topics)
    source, output = f"streams-{number}", f"streams-output-{number}"
    broker.load("create", topic=source, partitions=PARTITIONS)
    broker.load("create", topic=output, partitions=PARTITIONS)
    broker.load("produce", topic=source, records=records, size=RECORD_BYTES)
    jars = fetch_jars(JAVA / "streams-load-pom.xml")
    arguments = [broker.address, source, output, str(records), str(COMMIT_INTERVAL_MS)]
    with tempfile.TemporaryFile() as errors:
        process = start_child(
            [str(java_command()), "-cp", f"{jars}/*", str(JAVA / "StreamsLoad.java"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            assert process.stdout is not None
            marks = []
            for word in (b"warm", b"done"):
                line = process.stdout.readline()
                if not line.startswith(word):
                    errors.seek(0)
                    raise RuntimeError(f"{broker.name}: {line!r} {errors.read()[-3000:].decode()}")
                marks.append((int(line.split()[1]), time.perf_counter(), broker.processor_time()))
        finally:
            stop_process(process)
    # The first quarter warms the JVM of the client up.
    seen, seconds, used = (last - first for first, last in zip(*marks, strict=True))
    return {"records": Sample(seen / 1000, seconds, used)}


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of records a second."""
    table = Table("1,000 records", [broker.name for broker in brokers])
    found = rounds(brokers, 1 if quick else 2, _process, RECORDS // (QUICK if quick else 1))
    table.add(f"count by key, a commit each {COMMIT_INTERVAL_MS} ms", found["records"])
    return table.markdown()
