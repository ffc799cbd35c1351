"""`spark_eos.place_by_partition`: fewer markers, and each row in the partition that it would have had anyway."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_eos
from spark_eos import place_by_partition
from tests.support.spark_eos.sink_query import end, run_each, start
from tests.support.spark_eos.sink_topic import Topic, make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
TASKS, PARTITIONS, ROWS = 20, 50, 10_000


def keyed_rows(spark: SparkSession, tasks: int = TASKS, count: int = ROWS) -> DataFrame:
    rows = spark.range(0, count, numPartitions=tasks)
    return rows.selectExpr("cast(id as string) as key", "cast(id as string) as value")


def partitions_of(topic: Topic) -> dict[bytes, int]:
    return {message.value(): message.partition() for message in topic.messages()}


def test_markers_are_as_many_as_partitions_and_rows_are_where_the_sink_puts_them(
    kafka_address: str, spark: SparkSession
) -> None:
    without, placed = (make_topic(kafka_address, PARTITIONS) for _ in range(2))
    spark_eos.write(keyed_rows(spark), **without.options())
    spark_eos.write(place_by_partition(keyed_rows(spark), TASKS, **placed.options()), **placed.options())
    where = partitions_of(without)
    touched = {(partition, int(value) * TASKS // ROWS) for value, partition in where.items()}
    assert without.markers() == [sum(each == number for each, _ in touched) for number in range(PARTITIONS)]
    assert len(touched) > 0.99 * TASKS * PARTITIONS
    assert placed.markers() == [1] * PARTITIONS
    assert partitions_of(placed) == where
    assert len(where) == ROWS


def test_more_tasks_than_partitions_share_a_partition(kafka_address: str, spark: SparkSession) -> None:
    topic = make_topic(kafka_address, 4)
    frame = place_by_partition(keyed_rows(spark), TASKS, **topic.options())
    spark_eos.write(frame, **topic.options())
    assert topic.markers() == [TASKS // 4] * 4
    assert len(topic.values()) == ROWS


def test_a_stream_writes_one_marker_for_each_partition(kafka_address: str, spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic(kafka_address, 6)
    keyed_rows(spark, 4).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("key string, value string").parquet(str(tmp_path / "rows"))
    end(start(place_by_partition(rows, **topic.options()), str(tmp_path / "checkpoint"), topic.options()))
    assert topic.markers() == [1] * 6
    assert topic.values() == sorted(str(number) for number in range(ROWS))


def test_a_function_of_foreach_batch_places_its_rows(kafka_address: str, spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic(kafka_address, 6)
    keyed_rows(spark, 4).write.parquet(str(tmp_path / "rows"))

    def write(frame: DataFrame, _: int) -> None:
        placed = place_by_partition(frame, 3, **topic.options())
        placed.write.format("eos-kafka").mode("append").options(**topic.options()).save()

    stream = spark.readStream.schema("key string, value string").parquet(str(tmp_path / "rows"))
    run_each(stream, write, tmp_path / "checkpoint")
    assert topic.markers() == [1] * 6


def test_rows_that_name_a_partition_stay_there_and_rows_without_a_key_are_spread(
    kafka_address: str, spark: SparkSession
) -> None:
    topic = make_topic(kafka_address, 8)
    frame = keyed_rows(spark).selectExpr(
        "if(key % 4 = 0, null, key) as key", "value", "if(key % 4 = 1, cast(key % 3 as int), null) as partition"
    )
    placed = place_by_partition(frame, 4, **topic.options())
    counts = placed.where("key is null").rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sum(counts) == ROWS // 4 and all(ROWS // 20 < count < ROWS // 12 for count in counts)
    spark_eos.write(placed, **topic.options())
    # One for the keys or the named partition, and at most one more for the rows without a key of each task.
    assert sum(topic.markers()) <= 8 + 4
    named = {value: number for value, number in partitions_of(topic).items() if int(value) % 4 == 1}
    assert named == {value: int(value) % 3 for value in named} and len(named) == ROWS // 4


def test_rows_that_name_topics_are_placed_by_topic_and_partition(kafka_address: str, spark: SparkSession) -> None:
    first, second = make_topic(kafka_address, 5), make_topic(kafka_address, 7)
    frame = keyed_rows(spark).selectExpr("key", "value", f"if(key % 2 = 0, '{first.name}', '{second.name}') as topic")
    kafka = {"kafka.bootstrap.servers": kafka_address}
    placed = place_by_partition(frame, topics=[first.name, second.name], tasks=6, **kafka)
    spark_eos.write(placed, **kafka)
    assert first.markers() + second.markers() == [1] * 12
    assert len(first.values()) + len(second.values()) == ROWS


def test_the_default_is_a_task_for_each_partition_up_to_four_for_each_core(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    limit = min(int(spark.conf.get("spark.sql.shuffle.partitions") or 0), 4 * spark.sparkContext.defaultParallelism)
    for partitions in (1, limit + 1):
        placed = place_by_partition(keyed_rows(spark), partitions=partitions, **options)
        assert placed.rdd.getNumPartitions() == min(partitions, limit)


def test_a_topic_that_does_not_exist_is_refused(kafka_address: str, spark: SparkSession) -> None:
    with pytest.raises(spark_eos.TopicError, match="nowhere"):
        place_by_partition(keyed_rows(spark), topic="nowhere", **{"kafka.bootstrap.servers": kafka_address})


def test_a_partitioner_of_the_client_is_refused(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.partitioner.class": "my.Partitioner"}
    with pytest.raises(spark_eos.OptionError, match="partitioner"):
        place_by_partition(keyed_rows(spark), partitions=3, **options)
