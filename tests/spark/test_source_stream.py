"""Topics read with `spark.readStream` in a real local Spark."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_eos.group_offsets import committed, new_group
from tests.support.spark_eos.sink_query import end, run_each
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.source_query import offsets_in
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


class Reading:
    """Streaming queries over one checkpoint, and the rows of each micro-batch."""

    def __init__(self, spark: SparkSession, address: str, checkpoint: Path) -> None:
        self.spark = spark
        self.address = address
        self.checkpoint = checkpoint
        self.micro_batches: dict[int, list[Any]] = {}
        self.query: StreamingQuery | None = None

    def start(self, available_now: bool = True, once: bool = False, **options: str) -> StreamingQuery:
        source = self.spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", self.address)
        writer = source.options(**options).load().writeStream.option("checkpointLocation", str(self.checkpoint))
        if once:
            writer = writer.trigger(once=True)
        elif available_now:
            writer = writer.trigger(availableNow=True)
        self.query = writer.foreachBatch(self._keep).start()
        return self.query

    def run(self, **options: Any) -> list[list[Any]]:
        """Run until everything is read that was there at the start, and return the rows of this run's micro-batches."""
        self.micro_batches = {}
        query = self.start(**options)
        assert query.awaitTermination(120), "the query did not end"
        return [rows for _, rows in sorted(self.micro_batches.items())]

    def shown(self) -> list[Any]:
        """Return all rows so far."""
        return [row for _, rows in sorted(self.micro_batches.items()) for row in rows]

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.selectExpr("partition", "offset", "cast(value as string) as text").collect()
        self.micro_batches[batch_id] = [row.text for row in sorted(rows, key=lambda row: (row.partition, row.offset))]


@pytest.fixture
def reading(spark: SparkSession, kafka_address: str, tmp_path: Path) -> Iterator[Reading]:
    opened = Reading(spark, kafka_address, tmp_path / "checkpoint")
    yield opened
    opened.stop()


def offset_log(checkpoint: Path, batch_id: int) -> Any:
    return json.loads((checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[2])


def test_available_now_reads_existing_records_and_continues_after_restart(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=2)
    send_plain(kafka_address, topic, ["a", "b"])
    send_plain(kafka_address, topic, ["c"], partition=1)
    assert reading.run(subscribe=topic, startingOffsets="earliest") == [["a", "b", "c"]]
    assert reading.run(subscribe=topic, startingOffsets="earliest") == []
    send_plain(kafka_address, topic, ["d"], partition=1)
    assert reading.run(subscribe=topic, startingOffsets="earliest") == [["d"]]
    assert offsets_in(offset_log(reading.checkpoint, 1)) == {topic: {"0": 2, "1": 2}}


def test_available_now_with_limits_uses_several_micro_batches(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, range(15))
    found = reading.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    assert found == [[str(number) for number in range(start, start + 5)] for start in (0, 5, 10)]


def test_once_trigger_ignores_limits(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, range(15))
    found = reading.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", once=True)
    assert [len(rows) for rows in found] == [15]


def test_continuous_query_reads_new_records_and_reports_the_latest_offset(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["before"])
    query = reading.start(available_now=False, subscribe=topic)
    wait_until(lambda: (reading.checkpoint / "offsets" / "0").exists() or query.lastProgress, "the query started")
    wait_until(lambda: any(progress.sources for progress in query.recentProgress), "progress is reported")
    send_plain(kafka_address, topic, ["after"])
    wait_until(lambda: reading.shown() == ["after"], "only what came later is shown")

    def reported() -> bool:
        sources = query.lastProgress.sources if query.lastProgress else []
        return bool(sources) and json.loads(sources[0].latestOffset or "{}") == {topic: {"0": 2}}

    wait_until(reported, "the latest offset is reported")
    assert sum(progress.numInputRows for progress in query.recentProgress) == 1


def test_nulls_headers_and_topics_by_pattern_are_read(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    topic = create_topic(kafka_address)
    producer = Producer({"bootstrap.servers": kafka_address})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1")]
    producer.produce(topic, None, b"k", headers=headers)
    producer.produce(topic, b"v", None)
    assert producer.flush(30) == 0
    source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = source.options(subscribePattern=f"{topic}.*", startingOffsets="earliest", includeHeaders="true").load()
    query = (
        frame.writeStream.format("memory").queryName("nulls_and_headers").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path)).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    rows = spark.table("nulls_and_headers").orderBy("offset").select("key", "value", "headers")
    expected = [(b"k", None, [("h", b"1")]), (None, b"v", None)]
    assert_df_equality(rows, spark.createDataFrame(expected, rows.schema))


# A query that fails in its first micro-batch reads the same rows when it is started again


class Runs:
    """The runs of one query, whose function fails or keeps the rows of each micro-batch."""

    def __init__(self, spark: SparkSession, address: str, checkpoint: Path) -> None:
        self._spark, self._address, self._checkpoint = spark, address, checkpoint
        self.seen: list[list[str]] = []

    def source(self, topic: str, options: dict[str, str]) -> DataFrame:
        reader = self._spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", self._address)
        return reader.option("subscribe", topic).options(**options).load()

    def run(self, frame: DataFrame, *, fails: bool = False) -> None:
        def keep(rows: DataFrame, _batch_id: int) -> None:
            if fails:
                raise RuntimeError("killed")
            self.seen.append(sorted(bytes(row.value).decode() for row in rows.collect()))

        with pytest.raises(PySparkException, match="killed") if fails else nullcontext():
            run_each(frame, keep, self._checkpoint)


def test_first_micro_batch_runs_again_whatever_options_say(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abc")
    runs = Runs(spark, kafka_address, tmp_path)
    runs.run(runs.source(topic, {"startingOffsets": "earliest"}), fails=True)
    send_plain(kafka_address, topic, "d")
    runs.run(runs.source(topic, {"startingTimestamp": "99999999999999"}))
    assert runs.seen == [["a", "b", "c"], ["d"]]


def test_source_added_to_an_old_query_keeps_its_first_start(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    old, added = (create_topic(kafka_address) for _ in range(2))
    send_plain(kafka_address, old, "a")
    runs = Runs(spark, kafka_address, tmp_path)
    earliest = {"startingOffsets": "earliest"}
    runs.run(runs.source(old, earliest))
    send_plain(kafka_address, added, "xyz")
    # As Spark writes the offset of a source that has not been read yet.
    offsets = tmp_path / "offsets" / "0"
    offsets.write_text(offsets.read_text() + "\n-")
    runs.run(runs.source(old, {}).union(runs.source(added, earliest)), fails=True)
    runs.run(runs.source(old, {}).union(runs.source(added, {})))
    assert runs.seen == [["a"], ["x", "y", "z"]]


# Progress in a consumer group


@pytest.mark.spark
def test_consumer_group_shows_query_progress(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    topic, group = create_topic(kafka_address, partitions=2), new_group()
    send_plain(kafka_address, topic, ["a", "b", "c"])
    send_plain(kafka_address, topic, ["d"], partition=1)

    def run() -> None:
        source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address).options(
            subscribe=topic, startingOffsets="earliest", commitOffsetsToGroup="true", maxOffsetsPerTrigger="3",
            **{"kafka.group.id": group},
        )  # fmt: skip
        writer = source.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        end(writer.format("noop").trigger(availableNow=True).start())

    run()
    assert committed(kafka_address, group) == {0: 3, 1: 1}
    send_plain(kafka_address, topic, ["e"], partition=1)
    run()
    assert committed(kafka_address, group) == {0: 3, 1: 2}
