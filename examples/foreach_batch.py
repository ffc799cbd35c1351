"""Two topics written from foreachBatch, each record once: `SPARK_CONF_DIR=conf python -m examples.foreach_batch`.

The first time, the function fails between its two writes. Spark runs the micro-batch again; the write that was done is
identified by Spark's query id and batch id, reads the same rows again and writes nothing.
"""

import tempfile

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from broker_core import EmbeddedBroker

COUNT = 50


def main() -> None:
    """Run the query, let it fail between the writes, run it again."""
    spark = SparkSession.builder.appName("foreachBatch").getOrCreate()
    with EmbeddedBroker(topics={"in": 1, "orders": 1, "audit": 1}) as kafka, tempfile.TemporaryDirectory() as folder:
        fails = [True]

        def write(frame: DataFrame, topic: str) -> None:
            (
                frame.write.format("eos-kafka")
                .mode("append")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("topic", topic)
                .save()
            )

        def read(topic: str) -> int:
            return (
                spark.read.format("eos-kafka")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", topic)
                .load()
                .count()
            )

        def both(frame: DataFrame, _batch_id: int) -> None:
            write(frame, "orders")
            if fails.pop() if fails else False:
                raise RuntimeError("the power is gone")
            write(frame, "audit")

        def run() -> None:
            (
                spark.readStream.format("eos-kafka")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", "in")
                .option("startingOffsets", "earliest")
                .load()
                .selectExpr("key", "value")
                .writeStream.foreachBatch(both)
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )

        write(spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value"), "in")
        try:
            run()
        except StreamingQueryException:
            print(f"the first run failed: orders has {read('orders')}, audit has {read('audit')}")
        run()
        counts = read("orders"), read("audit")
    assert counts == (COUNT, COUNT)
    print(f"PROVEN: after the second run orders has {counts[0]} and audit has {counts[1]} of {COUNT}: nothing twice.")


if __name__ == "__main__":
    main()
