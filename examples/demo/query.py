"""The demo's streaming query: from topic `lines` to topic `counts`, both with format "eos-kafka".

It runs as a separate process, so that it can be killed: `python -m examples.demo.query BOOTSTRAP CHECKPOINT`.
"""

import logging
import sys
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from examples.demo.lines import IDENTIFIER, LINES_KEY
from examples.demo.progress import clear, shown

OFFSETS_PER_MICRO_BATCH = 200_000


def count_identifiers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the identifiers of one partition of one micro-batch."""
    counts: Counter[bytes] = Counter()
    for batch in batches:
        lines = batch.column("value").to_pylist()
        counts.update(IDENTIFIER.findall(b"\n".join(lines)))
        counts[LINES_KEY] += len(lines)
    if counts:
        yield pa.record_batch(
            {
                "key": pa.array(list(counts), pa.binary()),
                "value": pa.array([str(count) for count in counts.values()], pa.string()),
            }
        )


def main(bootstrap_servers: str, checkpoint: str) -> None:
    """Process the available lines, print each micro-batch, and end."""
    logging.basicConfig(level=logging.WARNING)
    with shown(lambda: "Spark is starting"):
        spark = SparkSession.builder.appName("eos-kafka demo").getOrCreate()
    lines = (
        spark.readStream.format("eos-kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_MICRO_BATCH)
        .load()
    )
    query = (
        lines.select("value")
        .mapInArrow(count_identifiers, "key binary, value string")
        .writeStream.format("eos-kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", "counts")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    last = -1
    ended = False
    with shown(lambda: f"micro-batch {last + 1} is running" if last >= 0 else "Spark is at work"):
        while not ended:
            ended = query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress["batchId"] > last:
                    last = progress["batchId"]
                    clear()
                    print(
                        f"    micro-batch {last}: {progress['numInputRows']} lines "
                        f"in {progress['durationMs']['triggerExecution']} ms",
                        flush=True,
                    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
