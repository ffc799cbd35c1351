"""A batch job that runs twice and writes once: `SPARK_CONF_DIR=conf python -m examples.idempotent_batch`.

A scheduler that does not know whether a job has ended starts it again. With the same `jobId` nothing is written twice.
"""

from pyspark.sql import SparkSession

from broker_core import EmbeddedBroker

COUNT = 100


def main() -> None:
    """Run the job twice under one id and once under another."""
    spark = SparkSession.builder.appName("idempotent batch").getOrCreate()
    with EmbeddedBroker(topics={"totals": 2}) as kafka:

        def run_job(job_id: str) -> int:
            """Write the day's totals; return how many records the topic has afterwards."""
            (
                spark.range(COUNT)
                .selectExpr("CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value")
                .write.format("eos-kafka")
                .mode("append")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("topic", "totals")
                .option("jobId", job_id)
                .save()
            )
            return (
                spark.read.format("eos-kafka")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", "totals")
                .load()
                .count()
            )

        counts = [run_job("totals-2026-01-01"), run_job("totals-2026-01-01"), run_job("totals-2026-01-02")]
    assert counts == [COUNT, COUNT, 2 * COUNT]
    print(
        f"PROVEN: {counts[0]} records after the job, {counts[1]} after it was run again, {counts[2]} after the next "
        "day's."
    )


if __name__ == "__main__":
    main()
