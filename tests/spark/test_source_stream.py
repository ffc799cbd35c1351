"""Topics read with `spark.readStream` in a real local Spark."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_eos.source_data import (
    abort,
    add_partitions,
    commit,
    create_topic,
    delete_records,
    delete_topic,
    send,
    send_plain,
    transactional_producer,
)
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


def test_available_now_ignores_min_offsets(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, range(3))
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "100"}
    assert [len(rows) for rows in reading.run(**options)] == [3]
    send_plain(kafka_address, topic, range(3))
    assert [len(rows) for rows in reading.run(**options)] == [3]


def test_four_edge_cases_in_micro_batches_of_three_offsets(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address)
    abort(producer, topic, ["x", "x"])  # 0..1, marker 2: a whole micro-batch invisible
    abort(producer, topic, ["x"])  # 3, marker 4
    commit(producer, topic, ["a", "b"])  # 5..6, marker 7: first offsets of the second, gap in the third
    commit(producer, topic, ["c"])  # 8, marker 9
    abort(producer, topic, ["x"])  # 10, marker 11: last offsets invisible
    found = reading.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    assert found == [[], ["a"], ["b", "c"], []]
    assert offsets_in(offset_log(reading.checkpoint, 3)) == {topic: {"0": 12}}


def test_open_transaction_blocks_the_stream_until_it_ends(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    send(producer, topic, ["a"])
    send_plain(kafka_address, topic, ["b"])
    query = reading.start(available_now=False, subscribe=topic, startingOffsets="earliest")
    wait_until(lambda: query.lastProgress is not None or query.exception(), "the query runs")
    assert reading.shown() == []
    producer.commit_transaction(30)
    wait_until(lambda: reading.shown() == ["a", "b"], "both records are shown")


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


def test_added_partitions_are_read_from_their_start(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["a"])
    assert reading.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2") == [["a"]]
    add_partitions(kafka_address, topic, 2)
    send_plain(kafka_address, topic, ["b", "c"], partition=1)
    assert reading.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2") == [["b", "c"]]


def test_pattern_finds_new_topics_and_drops_deleted_ones(reading: Reading, kafka_address: str) -> None:
    family = f"family-{uuid.uuid4().hex[:8]}"
    options = {"subscribePattern": f"{family}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    assert reading.run(**options) == [[]]
    first = create_topic(kafka_address, name=f"{family}-1")
    send_plain(kafka_address, first, ["a"])
    assert reading.run(**options) == [["a"]]
    second = create_topic(kafka_address, name=f"{family}-2")
    send_plain(kafka_address, second, ["b"])
    delete_topic(kafka_address, first)
    assert [row for rows in reading.run(**options) for row in rows] == ["b"]
    with pytest.raises(PySparkException, match=f"PARTITIONS_DELETED.*{second}-0"):
        delete_topic(kafka_address, second)
        reading.run(**options | {"failOnDataLoss": "true"})


def test_topic_recreated_between_runs_is_reported(reading: Reading, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["a", "b"])
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert reading.run(**options) == [["a", "b"]]
    delete_topic(kafka_address, topic)
    create_topic(kafka_address, name=topic)
    send_plain(kafka_address, topic, ["c"])
    with pytest.raises(PySparkException, match=f"TOPIC_RECREATED.*{topic}-0 was read up to offset 2"):
        reading.run(**options)
    assert reading.run(**options | {"failOnDataLoss": "false"}) == [["c"]]


@pytest.mark.parametrize("fail", [True, False])
def test_data_loss_between_runs_is_reported(reading: Reading, kafka_address: str, fail: bool) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["a"])
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fail).lower()}
    assert reading.run(**options) == [["a"]]
    send_plain(kafka_address, topic, ["b", "c", "d"])
    delete_records(kafka_address, topic, 3)
    if fail:
        with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
            reading.run(**options)
    else:
        assert reading.run(**options) == [["d"]]


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"subscribe": "no-such-topic"}, "Unknown topic or partition: no-such-topic"),
    ],
)
def test_invalid_input_is_reported(reading: Reading, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        reading.run(**options)
