"""What the suites of Spark's own Kafka source check, line by line: where it is checked here, or why it is not.

Named are tests by their files below `tests`; those without a file are below.
What its sink suite checks is in the sink's tests.
"""

import ast
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from spark_eos.errors import OptionError
from tests.support.spark_eos.source_data import (
    abort,
    add_partitions,
    commit,
    create_topic,
    delete_records,
    delete_topic,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.source_query import Query, running
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]

CHECKLIST: dict[str, tuple[str, ...]] = {
    # KafkaMicroBatchSourceSuite
    "Trigger.AvailableNow, 15 records by 5": (
        "spark/test_source_stream::test_available_now_with_limits_takes_several_micro_batches",
        "integration/spark_eos/source/test_available_now::test_what_comes_after_the_start_is_for_the_next_run"),
    "AvailableNow and topics that change": (
        "integration/spark_eos/source/test_available_now::test_the_four_ways_to_be_wrong",
        "integration/spark_eos/source/test_available_now::test_a_topic_that_is_deleted_under_the_query_ends_it",
        "integration/spark_eos/source/test_available_now::test_a_log_that_becomes_shorter_than_at_the_start_ends_the_query"),
    "(de)serialization of initial offsets": (
        "spark/test_source_stream::test_available_now_reads_what_was_there_and_goes_on_after_a_restart",),
    "rate limits beyond a long (SPARK-26718)": ("unit/spark_eos/source/test_offsets::test_limits_beyond_a_long",),
    "maxOffsetsPerTrigger over 101, 11 and 1 records": (
        "unit/spark_eos/source/test_offsets::test_spark_example_101_11_1_limit_10",
        "spark/test_source_beside_sparks::test_the_same_micro_batches"),
    "Trigger.Once ignores limits": ("spark/test_source_stream::test_once_ignores_limits",),
    "minOffsetsPerTrigger and maxTriggerDelay": (
        "unit/spark_eos/source/test_offsets::test_too_little_waits_until_the_longest_delay",
        "test_the_least_is_waited_for",
        "spark/test_source_stream::test_available_now_does_not_wait_for_the_least"),
    "composite limits": (
        "unit/spark_eos/source/test_offsets::test_both_limits_together", "test_the_least_and_the_most"),
    "numInputRows counts delivered rows": (
        "spark/test_source_stream::test_a_continuous_query_shows_new_records_and_reports_the_latest_offset",
        "test_a_frame_used_twice_gives_its_rows_twice"),
    "pattern with topic deletions": (
        "spark/test_source_stream::test_a_pattern_finds_topics_created_later_and_lets_deleted_ones_go",),
    "topic created anew between micro-batches": (
        "spark/test_source_stream::test_a_topic_created_anew_between_runs",
        "integration/spark_eos/source/test_leaders::test_a_running_query_notices_a_topic_that_was_created_anew"),
    "initial offset file: extra byte, 2.1.0, future version": (
        "Not ours: the Python data source API keeps no such file, Spark writes the first offset into its own log.",
        "spark/test_source_beside_sparks::test_one_checkpoint_serves_both"),
    "watermark on the timestamp column": ("test_a_watermark_on_the_timestamp",),
    "topic deleted while a job runs": ("test_a_topic_deleted_while_the_query_runs",),
    "two sources, one without new data (SPARK-22956)": ("test_two_sources_of_which_one_has_nothing_new",),
    "group.id prefix and override": (
        "unit/spark_eos/options/test_source_options::test_the_group_that_lag_tools_look_at",
        "spark/test_source_group_commits::test_a_group_shows_how_far_a_query_is"),
    "self-join: one offset in the log": (
        "Not ours: Spark's planner makes two sources of a frame used twice, of its own rate source too (4.3).",
        "test_a_frame_used_twice_gives_its_rows_twice"),
    "read_committed, four corner cases by 3": (
        "spark/test_source_stream::test_four_corner_cases_in_micro_batches_of_three_offsets",
        "integration/spark_eos/source/test_interleavings::test_the_source_sees_what_brute_force_sees"),
    "read_uncommitted": ("test_uncommitted_records_in_micro_batches_of_three_offsets",),
    "prefetched data beyond the micro-batch (SPARK-25495)": (
        "Nothing is kept from one task to the next, so nothing can be reused.",
        "integration/spark_eos/source/test_fetch::test_small_answers_any_range_same_rows_as_the_judge"),
    "null keys and values (SPARK-27494)": (
        "spark/test_source_batch::test_all_columns",
        "spark/test_source_stream::test_nulls_headers_and_topics_by_pattern"),
    "minPartitions (SPARK-30656), illegal values": (
        "spark/test_source_batch::test_more_tasks_than_partitions", "spark/test_source_batch::test_bad_input_is_named"),
    "maxRecordsPerPartition": ("unit/spark_eos/source/test_offsets::test_max_records_first_then_min_partitions",),
    "V1 or V2 source": ("Not ours: a Python data source is always V2.",),
    "includeHeaders and a checkpoint of Spark 2.4": (
        "Not ours: the schema of the source is in no checkpoint.",
        "spark/test_source_beside_sparks::test_one_checkpoint_serves_both"),
    "custom metrics": (
        "The Python data source API has no source metrics: offsets behind the latest follow from latestOffset.",
        "test_the_latest_offset_is_reported_whatever_the_limit"),
    # KafkaSourceSuiteBase
    "a clean stop": ("test_a_topic_deleted_while_the_query_runs",),
    "assign, subscribe, pattern x five ways to start, restarts, added partitions": (
        "test_every_way_to_subscribe_and_to_start",
        "spark/test_source_stream::test_added_partitions_are_read_from_their_start"),
    "no record as young as the starting time": ("test_no_record_as_young_as_the_start",),
    "bad options, unsupported Kafka settings, any case": (
        "unit/spark_eos/options/test_source_options::test_wrong_options_are_refused",
        "spark/test_source_stream::test_bad_input_is_named",
        "spark/test_source_beside_sparks::test_the_same_refusals"),
    "column types, headers": (
        "spark/test_source_batch::test_schema_is_sparks", "spark/test_source_batch::test_all_columns"),
    "KafkaSourceStressSuite": ("test_topics_come_and_go_and_grow",),
    # KafkaRelationSuite
    "earliest to latest, defaults, explicit offsets, headers": (
        "spark/test_source_batch::test_starting_and_ending_by_offset_and_time",
        "spark/test_source_beside_sparks::test_the_same_rows"),
    "batch ends are bound at every run": (
        "Spark asks a Python data source for partitions once for each load().",
        "spark/test_source_batch::test_ends_are_looked_up_at_the_first_run"),
    "timestamps, alone and together, global and by partition; precedence": (
        "spark/test_source_batch::test_starting_and_ending_by_offset_and_time",
        "spark/test_source_beside_sparks::test_the_same_rows",
        "unit/spark_eos/options/test_source_options::test_one_time_beats_times_and_those_beat_offsets",
        "unit/spark_eos/options/test_source_options::test_the_same_precedence_at_the_end"),
    "no match for start fails, for end is latest": ("unit/spark_eos/source/test_planner::test_no_record_that_young",),
    "the same frame in a union with itself": ("spark/test_source_batch::test_ends_are_looked_up_at_the_first_run",),
    "starting offsets bound after retention": ("test_retention_between_load_and_run",),
    "bad batch options": (
        "unit/spark_eos/options/test_source_options::test_wrong_batch_options",
        "spark/test_source_batch::test_bad_input_is_named"),
    "read_committed and read_uncommitted in batches": (
        "spark/test_source_batch::test_four_corner_cases_of_read_committed",
        "spark/test_source_batch::test_an_open_transaction_holds_back_what_follows"),
}  # fmt: skip


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_named_test_is_there() -> None:
    here = Path(__file__)
    names = [each for entries in CHECKLIST.values() for each in entries if " " not in each]
    for name in names:
        module, _, test = name.rpartition("::")
        assert test in names_in(here.parents[1] / f"{module}.py" if module else here), name
    assert all(any(" " in each or "::" in each or each in names for each in entries) for entries in CHECKLIST.values())


# Without Spark: what it calls, in its order.

STARTS = {
    "latest": ({"startingOffsets": "latest"}, []),
    "earliest": ({"startingOffsets": "earliest"}, ["a0", "a1", "b0", "b1"]),
    "offsets": ({"startingOffsets": '{"T":{"0":-2,"1":1}}'}, ["a0", "a1", "b1"]),
    "offsets at the end": ({"startingOffsets": '{"T":{"0":-1,"1":0}}'}, ["b0", "b1"]),
    "times": ({"startingOffsetsByTimestamp": '{"T":{"0":2000,"1":1000}}'}, ["a1", "b0", "b1"]),
    "one time": ({"startingTimestamp": "2000"}, ["a1", "b1"]),
}


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("subscription", ["assign", "subscribe", "subscribePattern"])
def test_every_way_to_subscribe_and_to_start(
    kafka_address: str, subscription: str, start: str, fail_on_data_loss: str
) -> None:
    topic = create_topic(kafka_address, 2)
    for partition, letter in enumerate("ab"):
        for number in range(2):
            value = f"{letter}{number}"
            send_plain(kafka_address, topic, [value], partition=partition, timestamp=1_000 * (number + 1))
    named = {"assign": f'{{"{topic}":[0,1]}}', "subscribe": topic, "subscribePattern": f"{topic[:-1]}."}[subscription]
    where, expected = STARTS[start]
    options = {subscription: named, "failOnDataLoss": fail_on_data_loss}
    options |= {name: value.replace("T", topic) for name, value in where.items()}
    with running(kafka_address, **options) as query:
        assert (query.texts() or query.texts()) == expected, "the first micro-batch may stay empty"
        send_plain(kafka_address, topic, ["c"])
        assert query.texts() == ["c"]
    send_plain(kafka_address, topic, ["d"], partition=1)
    query = Query(kafka_address, query.position, **options)
    assert query.texts() == ["d"], "what came while the query was down"
    if subscription != "assign":
        add_partitions(kafka_address, topic, 3)
        send_plain(kafka_address, topic, ["e"], partition=2)
        # A broker hears of it a moment after the controller has answered.
        assert wait_until(query.texts, "a partition added under the query") == ["e"]
    assert query.texts() == []
    query.reader.stop()


@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern"])
def test_no_record_as_young_as_the_start(kafka_address: str, subscription: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["old"], timestamp=1_000)
    options = {subscription: topic, "startingTimestamp": "5000"}
    with pytest.raises(OptionError, match="No offset matched"):
        Query(kafka_address, **options)
    with running(kafka_address, startingOffsetsByTimestampStrategy="latest", **options) as query:
        assert query.trigger() == []
        send_plain(kafka_address, topic, ["new"], timestamp=2_000)
        assert query.texts() == ["new"]


def test_the_least_is_waited_for(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abc")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    with running(kafka_address, **options) as query:
        assert query.texts() == ["a", "b", "c"], "the first micro-batch always runs"
        send_plain(kafka_address, topic, "defg")
        assert query.texts() == []
        send_plain(kafka_address, topic, "h")
        assert query.texts() == ["d", "e", "f", "g", "h"]


def test_the_least_and_the_most(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "3",
               "maxOffsetsPerTrigger": "4"}  # fmt: skip
    send_plain(kafka_address, topic, range(9))
    with running(kafka_address, **options) as query:
        assert [len(query.trigger()) for _ in range(3)] == [4, 4, 0]
        send_plain(kafka_address, topic, range(2))
        assert [len(query.trigger()) for _ in range(2)] == [3, 0]


def test_uncommitted_records_in_micro_batches_of_three_offsets(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address)
    abort(producer, topic, ["x", "y"])  # 0..1, marker 2
    commit(producer, topic, ["a"])  # 3, marker 4
    abort(producer, topic, ["z"])  # 5, marker 6
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    with running(kafka_address, **options, **{"kafka.isolation.level": "read_uncommitted"}) as query:
        assert [query.texts() for _ in range(3)] == [["x", "y"], ["a", "z"], []]
    with running(kafka_address, **options) as query:
        assert [query.texts() for _ in range(3)] == [[], ["a"], []]


def test_the_latest_offset_is_reported_whatever_the_limit(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with running(kafka_address, maxOffsetsPerTrigger="3", **options) as query:
        assert query.reader.reportLatestOffset() is None
        query.trigger()
        assert (query.position, query.reader.reportLatestOffset()) == ({topic: {"0": 3}}, {topic: {"0": 10}})
        send_plain(kafka_address, topic, range(2))
        query.trigger()
        assert query.reader.reportLatestOffset() == {topic: {"0": 12}}
    with running(kafka_address, **options) as query:
        query.trigger()
        assert query.position == query.reader.reportLatestOffset()


@pytest.mark.parametrize("seed", range(3))
def test_topics_come_and_go_and_grow(kafka_address: str, seed: int) -> None:
    """No record is read twice, and of topics that are not deleted every record is read."""
    chance, family = random.Random(seed), f"stress-{uuid.uuid4().hex[:8]}"
    topics: dict[str, int] = {}
    written: dict[str, set[str]] = {}
    read: list[str | None] = []
    options = {"subscribePattern": f"{family}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false",
               "maxOffsetsPerTrigger": "20", "kafka.metadata.max.age.ms": "0"}  # fmt: skip
    with running(kafka_address, **options) as query:
        for step in range(40):
            choice = chance.random()
            topic = chance.choice(sorted(topics)) if topics else None
            if topic is None or choice < 0.1:
                topic = create_topic(kafka_address, 1, name=f"{family}-{step}")
                topics[topic], written[topic] = 1, set()
            elif choice < 0.15:
                delete_topic(kafka_address, topic)
                del topics[topic], written[topic]
            elif choice < 0.25:
                topics[topic] += 1
                add_partitions(kafka_address, topic, topics[topic])
            elif choice < 0.7:
                values = [f"{topic} {step} {number}" for number in range(chance.randint(1, 9))]
                send_plain(kafka_address, topic, values, partition=chance.randrange(topics[topic]))
                written[topic] |= set(values)
            else:
                read += query.texts()
        while rows := query.texts():
            read += rows
    assert len(read) == len(set(read))
    assert {value for values in written.values() for value in values} <= set(read)


# With Spark.


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "checkpoint"


def stream(spark: SparkSession, address: str, **options: str) -> DataFrame:
    source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", address)
    return source.options(**{"startingOffsets": "earliest"} | options).load()


def run(frame: DataFrame, checkpoint: Path) -> tuple[list[list[str]], list[Any]]:
    """Run until what is there is read; give the values of each micro-batch and the progress."""
    seen: list[list[str]] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        seen.append(sorted(row[0] for row in rows.selectExpr("cast(value as string)").collect()))

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120), "the query did not end"
    return seen, list(query.recentProgress)


@pytest.mark.spark
def test_a_watermark_on_the_timestamp(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    topic = create_topic(kafka_address)
    for second in (1, 2, 12, 60):
        send_plain(kafka_address, topic, ["x"], timestamp=1_600_000_000_000 + 1_000 * second)
    counted = (
        stream(spark, kafka_address, subscribe=topic).withWatermark("timestamp", "5 seconds")
        .groupBy(window("timestamp", "10 seconds")).count()
    )  # fmt: skip
    writer = counted.writeStream.format("memory").queryName("watermarked").outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    rows = spark.sql("select unix_seconds(window.start) % 100 as start, count from watermarked order by 1")
    # The last window is still open.
    assert_df_equality(rows, spark.createDataFrame([(0, 2), (10, 1)], rows.schema))


@pytest.mark.spark
def test_a_frame_used_twice_gives_its_rows_twice(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    frame = stream(spark, kafka_address, subscribe=topic)
    seen, progress = run(frame.union(frame), checkpoint)
    assert seen == [sorted("abcd" * 2)]
    offsets = (checkpoint / "offsets" / "0").read_text().splitlines()[2:]
    assert {each: json.loads(each) for each in offsets} == {offsets[0]: {topic: {"0": 4}}}
    assert sum(each.numInputRows for each in progress) == 8


@pytest.mark.spark
def test_two_sources_of_which_one_has_nothing_new(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    one, other = create_topic(kafka_address), create_topic(kafka_address)
    limit = {"maxOffsetsPerTrigger": "1"}

    def both() -> DataFrame:
        first = stream(spark, kafka_address, subscribe=one, **limit)
        return first.union(stream(spark, kafka_address, subscribe=other, **limit))

    send_plain(kafka_address, one, "ab")
    assert run(both(), checkpoint)[0] == [["a"], ["b"]]
    send_plain(kafka_address, other, "c")
    assert run(both(), checkpoint)[0] == [["c"]]


@pytest.mark.spark
def test_a_topic_deleted_while_the_query_runs(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    family = f"family-{uuid.uuid4().hex[:8]}"
    kept, deleted = (create_topic(kafka_address, name=f"{family}-{number}") for number in range(2))
    seen: list[str] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        seen.extend(row[0] for row in rows.selectExpr("cast(value as string)").collect())

    frame = stream(spark, kafka_address, subscribePattern=f"{family}-.*", failOnDataLoss="false")
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    try:
        for topic in (kept, deleted):
            send_plain(kafka_address, topic, ["before"])
        wait_until(lambda: seen == ["before"] * 2 or query.exception(), "both are read")
        delete_topic(kafka_address, deleted)
        send_plain(kafka_address, kept, ["after"])
        wait_until(lambda: "after" in seen or query.exception(), "the topic that is left is read")
    finally:
        query.stop()
    assert query.exception() is None
    assert not query.isActive
    assert sorted(seen) == ["after", "before", "before"]


@pytest.mark.spark
def test_retention_between_load_and_run(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    source = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = source.option("subscribe", topic).load()
    delete_records(kafka_address, topic, 2)
    expected = spark.createDataFrame([(b"c",), (b"d",)], "value binary")
    assert_df_equality(frame.select("value"), expected, ignore_row_order=True)
