"""`spark_eos.write` and `spark_eos.foreach_batch_sink`: the same guarantees without Spark's data source API."""

import doctest
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_eos
import spark_eos.sink.dataframe_writes
from tests.support.spark_eos.sink_topic import make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
COUNT = 40


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + COUNT, numPartitions=2).selectExpr("cast(id as string) as value")


def expected(first: int = 0) -> list[str]:
    return sorted(str(number) for number in range(first, first + COUNT))


def test_the_examples_of_the_functions_run(spark: SparkSession) -> None:
    result = doctest.testmod(spark_eos.sink.dataframe_writes, extraglobs={"spark": spark})
    assert result.attempted and not result.failed


def test_a_named_job_is_written_once_and_refuses_other_rows(kafka_address: str, spark: SparkSession) -> None:
    topic = make_topic(kafka_address)
    for _ in range(2):
        spark_eos.write(rows(spark), jobId=topic.name, **topic.options())
    assert topic.values() == expected()
    with pytest.raises(spark_eos.DifferentRowsError):
        spark_eos.write(rows(spark, first=1), jobId=topic.name, **topic.options())
    assert topic.values() == expected()


def test_a_write_that_fails_leaves_nothing_open(kafka_address: str, spark: SparkSession) -> None:
    topic = make_topic(kafka_address)
    failing = rows(spark).selectExpr(f"if(value = '{COUNT - 1}', raise_error('no value'), value) as value")
    with pytest.raises(Exception, match="no value"):
        spark_eos.write(failing, transactionalIdPrefix=topic.name, **topic.options())
    wait_until(lambda: not open_transactions(kafka_address, topic.name), "its transactions end", deadline_s=30)
    spark_eos.write(rows(spark), **topic.options())
    assert topic.values() == expected()


def test_a_micro_batch_that_is_run_again_is_not_written_again(
    kafka_address: str, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(kafka_address)
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    files.mkdir()
    for number in range(2):
        (files / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(COUNT)))

    def run() -> None:
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(files))
            .writeStream.foreachBatch(spark_eos.foreach_batch_sink(**topic.options()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    run()
    written = sorted(f"{number}-{line}" for number in range(2) for line in range(COUNT))
    assert topic.values() == written
    for committed in (checkpoint / "commits" / "1", checkpoint / "commits" / ".1.crc"):
        committed.unlink()
    run()
    assert topic.values() == written
