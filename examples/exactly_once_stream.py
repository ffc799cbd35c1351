"""A stream through a broker that loses responses: `SPARK_CONF_DIR=conf python -m examples.exactly_once_stream`.

The broker loses one response to a write and one to a commit, both after they took effect. Each record is there once.
"""

import tempfile

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from broker_core import Disconnect, EmbeddedBroker

COUNT = 300


def main() -> None:
    """Stream from one topic to another, then count what read_committed consumers see."""
    spark = SparkSession.builder.appName("exactly-once stream").getOrCreate()
    with EmbeddedBroker(topics={"in": 2, "out": 2}) as kafka, tempfile.TemporaryDirectory() as checkpoint:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        for number in range(COUNT):
            producer.produce("in", str(number))
        producer.flush(30)
        lost = [
            kafka.fault(api="Produce", topic="out", when="after_apply", action=Disconnect(), times=1),
            kafka.fault(api="EndTxn", when="after_apply", action=Disconnect(), times=1),
        ]
        query = (
            spark.readStream.format("eos-kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", "in")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", COUNT // 2)
            .load()
            .selectExpr("key", "value")
            .writeStream.format("eos-kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", "out")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = (
            spark.read.format("eos-kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", "out")
            .load()
            .selectExpr("CAST(value AS STRING)")
            .collect()
        )
        kafka.assert_quiescent(clients_may_wait=True)
    assert [fault.hits for fault in lost] == [1, 1]
    assert sorted(int(row.value) for row in rows) == list(range(COUNT))
    print(f"PROVEN: {len(rows)} records, each of {COUNT} once, though two answers were lost.")


if __name__ == "__main__":
    main()
