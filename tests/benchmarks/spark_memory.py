"""Measure the peak memory of a Python worker in a task that writes many rows, beside a sink that does nothing."""

import os
import tempfile
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.benchmarks.null_sink import NULL_FORMAT
from tests.benchmarks.spark_bench import OURS, Bench, create_topic
from tests.benchmarks.spark_throughput import rows
from tests.support.memory import resident_mib

ROW_BYTES = 10_000
PARTITIONS = 4
SMALL_MEGABYTES = 5
_CLEAR_PEAK = "5"


def measure(bench: Bench) -> None:
    """Print the highest resident memory of a worker for two amounts, to show what grows with the amount."""
    if bench.broker.embedded is None:
        print(f"[{bench.name}] memory: a worker's memory does not depend on the broker; run with --broker broker_core")
        return
    amounts = (SMALL_MEGABYTES, bench.arguments.megabytes // 4, bench.arguments.megabytes)
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(data_dir=folder) as broker:
        create_topic(broker.bootstrap_servers, "memory", PARTITIONS)
        for kind in (NULL_FORMAT, OURS):
            peaks = [peak(bench, broker.bootstrap_servers, kind, megabytes) for megabytes in amounts]
            line = ", ".join(f"{megabytes:,} MB: {found:.0f}" for megabytes, found in zip(amounts, peaks, strict=True))
            print(
                f"[{bench.name}] memory of a worker while one task writes, MiB at its peak, {kind}: {line} "
                "(buffer.memory is 64 MiB)",
                flush=True,
            )


def peak(bench: Bench, address: str, kind: str, megabytes: int) -> float:
    """Write so many MB in one task and return the highest resident memory of any worker meanwhile, in MiB."""
    for worker in workers():
        (Path("/proc") / str(worker) / "clear_refs").write_text(_CLEAR_PEAK)
    frame = rows(bench, megabytes * 1_000_000 // ROW_BYTES, 1, ROW_BYTES)
    writer = frame.write.format(kind).mode("append").option("kafka.bootstrap.servers", address)
    writer.option("topic", "memory").save()
    return max(resident_mib("VmHWM", worker) for worker in workers())


def workers() -> list[int]:
    """Return the processes that Spark's daemon has forked for tasks, among the descendants of this process."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(folder.name)] = (folder / "cmdline").read_bytes()
            except OSError:
                continue
    daemons = {pid for pid, command in commands.items() if command.endswith(b"pyspark.daemon\0pyspark.worker\0")}
    ours = {pid for pid in daemons if os.getpid() in (parents[pid], parents.get(parents[pid]))}
    return [pid for pid in daemons if parents[pid] in ours]
