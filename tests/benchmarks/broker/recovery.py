"""Recovery: both brokers open one log, written by `broker_core` and left as a killed process leaves it.

They open it once with the producer snapshots of its rolls, so that only the last segment must be read, and once without
any, so that all of it must. Apache Kafka logs how long loading that partition took; the start of its JVM is not
included. Both find the files in the page cache.
"""

import os
import re
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import crc32c
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core.config import TopicConfig
from broker_core.log.partition_log import PartitionLog
from broker_core.records.batch import NewRecord, build_batch
from broker_core.server.disk import DiskStorage
from broker_core.types import TopicPartition
from tests.benchmarks.broker.rounds import markdown
from tests.support.apache_kafka import DATA, Unavailable, apache_kafka
from tests.support.waiting import wait_until

SEGMENT_BYTES = 128 * 1024 * 1024
PARTITION = TopicPartition("recovery", 0)
FOLDER = str(PARTITION).replace("/", "-")
CONFIG = TopicConfig().override({"segment.bytes": str(SEGMENT_BYTES)})
RECOVERY_POINTS, CLEAN_STOP = "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"
TAKEN = re.compile(rf"Completed load of Log\(.*topic={PARTITION.topic},.* in (\d+)ms")
DEADLINE_S = 300.0
SCENARIOS = {"with the snapshots of its rolls": True, "without any snapshot": False}


@dataclass(frozen=True)
class Shape:
    """What is in a log: batches of equal records, from producers in turn."""

    label: str
    batches: int
    records: int
    record_bytes: int
    producers: int


SHAPES = (
    # Batches of the size that Java's producer sends at its default batch.size, so there are many headers to read.
    Shape("1 GB: 10⁶ records of 10 producers", 62_500, 16, 1000, 10),
    Shape("1.1 GB: 10⁷ records of 10⁶ producers", 1_000_000, 10, 100, 1_000_000),
)
QUICK = 10


def write_log(root: Path, shape: Shape) -> int:
    """Write the log, sync it, leave it unclosed and return its end."""
    now_ms = int(time.time() * 1000)
    log = PartitionLog.open(DiskStorage(root), FOLDER, PARTITION, CONFIG, now_ms)
    records = [NewRecord(None, os.urandom(shape.record_bytes), (), now_ms)] * shape.records
    data = bytearray(build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0))
    for number in range(shape.batches):
        turn, producer_id = divmod(number, shape.producers)
        struct.pack_into(">qhi", data, 43, producer_id, 0, turn * shape.records)
        data[17:21] = crc32c.crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        log.append_as_leader(bytes(data), now_ms=now_ms, leader_epoch=0)
    log.sync()
    return log.log_end_offset


def copy_log(source: Path, target: Path, *, snapshots: bool) -> None:
    """Link the log's files into `target`; the files can be shared, because nothing changes them."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.suffix == ".log":
            os.link(path, target / path.name)
        elif snapshots or path.suffix != ".snapshot":
            shutil.copy(path, target / path.name)


def open_by_broker_core(source: Path, root: Path, shape: Shape, *, snapshots: bool) -> float:
    """Recover a copy of the log and return how many ms that took."""
    root.mkdir()
    copy_log(source, root / FOLDER, snapshots=snapshots)
    started = time.perf_counter()
    log = PartitionLog.open(DiskStorage(root), FOLDER, PARTITION, CONFIG, int(time.time() * 1000))
    taken_ms = (time.perf_counter() - started) * 1000
    assert log.log_end_offset == shape.batches * shape.records
    assert len(log.producer_state.entries) == shape.producers
    shutil.rmtree(root)
    return taken_ms


def open_by_apache(source: Path, node: Path, *, snapshots: bool) -> float:
    """Start a node on a copy of the log in the state of its last stop; return the ms that it reports for loading."""
    data, target = node / DATA, node / DATA / FOLDER
    metadata = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    copy_log(source, target, snapshots=snapshots)
    (target / "partition.metadata").write_bytes(metadata)
    (data / CLEAN_STOP).unlink(missing_ok=True)
    # After a kill, this is the recovery point of the segments: the last roll, or none.
    flushed = max(int(path.stem) for path in target.glob("*.log")) if snapshots else 0
    (data / RECOVERY_POINTS).write_text(f"0\n1\n{PARTITION.topic} {PARTITION.partition} {flushed}\n")
    (node / "server.log").unlink(missing_ok=True)
    found: list[int] = []

    def is_loaded() -> bool:
        found[:] = map(int, TAKEN.findall((node / "server.log").read_text(encoding="utf-8", errors="replace")))
        return bool(found)

    with apache_kafka({}, node, log_level="INFO") as kafka:
        wait_until(is_loaded, "Apache Kafka reports how long it took", deadline_s=DEADLINE_S, pause_s=0.1)
        kafka.stop()
    return float(found[0])


def make_topic(node: Path) -> None:
    """Make a node know the partition, and stop it."""
    with apache_kafka({}, node) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        settings = {"segment.bytes": str(SEGMENT_BYTES)}
        admin.create_topics([NewTopic(PARTITION.topic, 1, 1, config=settings)])[PARTITION.topic].result(DEADLINE_S)
        wait_until(
            (node / DATA / FOLDER / "partition.metadata").exists,
            "the partition's folder is there",
            deadline_s=DEADLINE_S,
        )
        kafka.stop()


def _rows(folder: Path, shape: Shape) -> Iterator[list[str]]:
    """Measure one log; where Apache Kafka cannot run, its column stays empty."""
    source, node = folder / "written" / FOLDER, folder / "node"
    assert write_log(folder / "written", shape) == shape.batches * shape.records
    taken = {
        scenario: [open_by_broker_core(source, folder / "core", shape, snapshots=snapshots)]
        for scenario, snapshots in SCENARIOS.items()
    }
    try:
        node.mkdir()
        make_topic(node)
        for scenario, snapshots in SCENARIOS.items():
            taken[scenario].append(open_by_apache(source, node, snapshots=snapshots))
    except Unavailable as problem:
        print(f"Apache Kafka: {problem}", file=sys.stderr)
    for scenario, (own, *peers) in taken.items():
        compared = [f"{peer:,.0f}" for peer in peers] + [f"{own / peer:.2f}" for peer in peers if peer]
        yield [f"{shape.label}, {scenario}", f"{own:,.0f}", *compared, *[""] * (2 - len(compared))]


def measure(*, quick: bool) -> str:
    """Return the table of recovery times."""
    rows: list[list[str]] = []
    for shape in SHAPES:
        if quick:
            label = f"a {QUICK}th of {shape.label}"
            shape = replace(
                shape, label=label, batches=shape.batches // QUICK, producers=max(10, shape.producers // QUICK)
            )
        with tempfile.TemporaryDirectory() as name:
            for row in _rows(Path(name), shape):
                rows.append(row)
                print(*row, sep=" | ", file=sys.stderr, flush=True)
    return markdown(["what", "`broker_core`, ms", "Apache Kafka, ms", "ratio"], rows)
