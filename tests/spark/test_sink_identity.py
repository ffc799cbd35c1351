"""Names and checkpoints as people use them in Spark: each recipe and each warning of the documentation."""

import json
import shutil
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.sink.naming import parse_task_id
from tests.support.spark_eos.sink_query import lines_of, start
from tests.support.spark_eos.sink_steps import EXPECTED, arm, input_folder, prefix, topic
from tests.support.spark_eos.sink_topic import Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["arm", "failpoints_file", "input_folder", "prefix", "spark", "topic"]
pytestmark = pytest.mark.spark
DEADLINE_S = 240
Function = Callable[[DataFrame, int], None]


def write(frame: DataFrame, topic: Topic, **more: str) -> None:
    frame.write.format("eos-kafka").mode("append").options(**topic.options(**more)).save()


def write_to(topic: Topic, frame: DataFrame, _: int, **more: str) -> None:
    write(frame, topic, **more)


def run_function(spark: SparkSession, function: Function, folder: Path, checkpoint: Path) -> None:
    query = (
        lines_of(spark, str(folder))
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S), "the query did not end"


def run_stream(
    spark: SparkSession, folder: Path, checkpoint: Path, topic: Topic, change: str = "value", **more: str
) -> None:
    frame = lines_of(spark, str(folder)).selectExpr("key", f"{change} AS value")
    assert start(frame, str(checkpoint), topic.options(**more)).awaitTermination(DEADLINE_S), "the query did not end"


# foreachBatch


def test_foreach_batch_needs_no_name_and_writes_once_across_a_failure(
    spark: SparkSession, topic: Topic, kafka_address: str, input_folder: Path, tmp_path: Path
) -> None:
    audit, fails = make_topic(kafka_address), [True]

    def both(frame: DataFrame, batch_id: int) -> None:
        write(frame, topic)
        if batch_id == 1 and fails and fails.pop():
            raise RuntimeError("between the two writes")
        write(frame, audit)

    with pytest.raises(StreamingQueryException, match="between the two writes"):
        run_function(spark, both, input_folder, tmp_path / "checkpoint")
    run_function(spark, both, input_folder, tmp_path / "checkpoint")
    assert (topic.values(), audit.values()) == (EXPECTED, EXPECTED)


def test_foreach_batch_with_another_topic_after_a_crash_is_refused(
    spark: SparkSession, topic: Topic, kafka_address: str, input_folder: Path, tmp_path: Path
) -> None:
    other = make_topic(kafka_address)

    def dies(frame: DataFrame, batch_id: int) -> None:
        write(frame, topic)
        if batch_id == 1:
            raise RuntimeError("after the write")

    with pytest.raises(StreamingQueryException, match="after the write"):
        run_function(spark, dies, input_folder, tmp_path / "checkpoint")
    for more in ({}, {"writeName": "other"}):
        function = partial(write_to, other, **more)
        with pytest.raises(StreamingQueryException, match=f"to topic '{topic.name}', and now .* '{other.name}'"):
            run_function(spark, function, input_folder, tmp_path / "checkpoint")
    assert (len(topic.values()), other.values()) == (len(EXPECTED) * 2 / 3, [])
    run_function(spark, partial(write_to, topic), input_folder, tmp_path / "checkpoint")
    assert (topic.values(), other.values()) == (EXPECTED, [])


def test_new_checkpoint_writes_everything_again(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    for checkpoint in ("first", "second"):
        run_function(spark, lambda frame, _: write(frame, topic), input_folder, tmp_path / checkpoint)
    assert topic.values() == sorted(EXPECTED * 2)


def test_foreach_batch_uses_the_ids_and_decision_of_a_stream(
    spark: SparkSession, topic: Topic, prefix: str, input_folder: Path, tmp_path: Path
) -> None:
    for number in range(3, 8):
        (input_folder / f"{number}.txt").write_text(f"{number}\n")
    options = {"transactionalIdPrefix": prefix}
    run_function(spark, lambda frame, _: write(frame, topic, **options), input_folder, tmp_path / "checkpoint")
    with KafkaClient(ClientOptions((topic.address,))) as client:
        names = [each.transactional_id for each in list_transactions(client)]
    drivers = [name for name in names if name.startswith(prefix) and name.endswith(".driver")]
    tasks = [name for name in names if (task := parse_task_id(name)) is not None and task.prefix == prefix]
    assert len(drivers) == 1
    assert len(tasks) <= 4, f"eight micro-batches of two tasks: {tasks}"


def test_two_writes_to_one_topic_need_names(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    def twice(frame: DataFrame, _: int) -> None:
        for _ in range(2):
            write(frame, topic)

    def named(frame: DataFrame, _: int) -> None:
        write(frame, topic, writeName="plain")
        write(frame.selectExpr("key", "upper(value) AS value"), topic, writeName="shouted")

    with pytest.raises(StreamingQueryException, match=r"already written under the name .*writeName"):
        run_function(spark, twice, input_folder, tmp_path / "twice")
    one_file = topic.values()
    assert len(one_file) == len(EXPECTED) / 3
    run_function(spark, named, input_folder, tmp_path / "named")
    assert topic.values() == sorted([*one_file, *EXPECTED, *(line.upper() for line in EXPECTED)])


def test_job_id_in_foreach_batch_is_refused(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="'jobId' is for batch jobs.*identified by Spark's query id"):
        run_function(spark, partial(write_to, topic, jobId="orders"), input_folder, tmp_path / "checkpoint")
    assert topic.values() == []


def test_job_group_set_in_foreach_batch_is_refused(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    def in_group(frame: DataFrame, _: int) -> None:
        spark.sparkContext.setJobGroup("mine", "of this function")
        write(frame, topic)

    with pytest.raises(StreamingQueryException, match="job group of this task is 'mine'"):
        run_function(spark, in_group, input_folder, tmp_path / "checkpoint")
    assert topic.values() == []


def test_write_name_outside_of_foreach_batch_is_refused(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="'writeName' is for writes in foreachBatch.*jobId"):
        write(spark.range(1).selectExpr("'v' AS value"), topic, writeName="x")
    with pytest.raises(PySparkException, match="'writeName' is for batch writes in foreachBatch"):
        run_stream(spark, input_folder, tmp_path / "checkpoint", topic, writeName="x")
    assert topic.values() == []


# Batch jobs


def test_daily_job_needs_a_job_id_per_day(spark: SparkSession, topic: Topic, prefix: str) -> None:
    days = {day: spark.range(10).selectExpr(f"concat('{day}-', id) AS value") for day in ("monday", "tuesday")}
    write(days["monday"], topic, jobId="report", transactionalIdPrefix=prefix)
    with pytest.raises(
        PySparkException,
        match=r"jobId=report was already written.* 10 rows written before, now "
        r"10 different rows.*the topic and the date in it",
    ):
        write(days["tuesday"], topic, jobId="report", transactionalIdPrefix=prefix)
    assert len(topic.values()) == 10
    for day, rows in [*days.items(), ("tuesday", days["tuesday"].repartition(3))]:
        write(rows, topic, jobId=f"report-{day}", transactionalIdPrefix=prefix)
    assert len(topic.values()) == 30, "the second job of a day wrote nothing, however many tasks it has"
    assert open_transactions(topic.address, prefix) == []


def test_nondeterministic_job_may_discard_rows_of_its_rerun(spark: SparkSession, topic: Topic, prefix: str) -> None:
    for _ in range(2):
        rows = spark.range(10).selectExpr("uuid() AS value")
        write(rows, topic, jobId="draw", transactionalIdPrefix=prefix, discardDifferingRows="true")
    assert len(topic.values()) == 10


# Checkpoints


@pytest.fixture
def died(spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path, arm: Callable[[str], None]) -> Path:
    """Return the checkpoint of a query that died after its second micro-batch was decided, before Spark recorded it."""
    arm("driver.after_complete=raise@1")
    with pytest.raises(StreamingQueryException):
        run_stream(spark, input_folder, tmp_path / "checkpoint", topic)
    return tmp_path / "checkpoint"


def copy_of(checkpoint: Path) -> Path:
    return Path(shutil.copytree(checkpoint, checkpoint.with_name("copy")))


def test_copied_checkpoint_with_another_topic_is_refused_without_a_query_name(
    spark: SparkSession, topic: Topic, kafka_address: str, input_folder: Path, died: Path
) -> None:
    staging, copy = make_topic(kafka_address), copy_of(died)
    with pytest.raises(StreamingQueryException, match=rf"to topic '{topic.name}'; now .*'metadata'"):
        run_stream(spark, input_folder, copy, staging)
    (copy / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (copy / ".metadata.crc").unlink(missing_ok=True)
    run_stream(spark, input_folder, copy, staging)
    run_stream(spark, input_folder, died, topic)
    assert (topic.values(), len(staging.values())) == (EXPECTED, len(EXPECTED) * 2 / 3)


def test_copied_checkpoint_with_different_rows_is_refused_and_the_first_continues(
    spark: SparkSession, topic: Topic, input_folder: Path, died: Path
) -> None:
    copy = copy_of(died)
    with pytest.raises(
        StreamingQueryException, match=r"was already written, by run .* with different rows.*'metadata'"
    ):
        run_stream(spark, input_folder, copy, topic, change="upper(value)")
    run_stream(spark, input_folder, died, topic)
    assert topic.values() == EXPECTED


def test_copied_checkpoint_with_equal_rows_replaces_the_first_query(
    spark: SparkSession, topic: Topic, input_folder: Path, died: Path
) -> None:
    run_stream(spark, input_folder, copy_of(died), topic)
    assert topic.values() == EXPECTED


def test_checkpoint_from_a_backup_is_refused_and_the_last_one_continues(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Its micro-batch is planned again, with rows that are written and rows that are not."""
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    folder.mkdir()

    def run(checkpoint: Path, line: str, **more: str) -> None:
        (folder / f"{line}.txt").write_text(f"{line}\n")
        query = start(spark.readStream.text(str(folder)), str(checkpoint), topic.options(**more))
        assert query.awaitTermination(DEADLINE_S), "the query did not end"

    run(checkpoint, "a")
    backup = copy_of(checkpoint)
    run(checkpoint, "b")
    with pytest.raises(StreamingQueryException, match=r"1 row written before, now 2 rows.*start from the checkpoint"):
        run(backup, "c", discardDifferingRows="true")
    run(checkpoint, "d")
    assert topic.values() == ["a", "b", "c", "d"]


def test_changed_prefix_finds_decisions_under_the_old_one(
    spark: SparkSession, topic: Topic, input_folder: Path, died: Path, prefix: str
) -> None:
    run_stream(spark, input_folder, died, topic, transactionalIdPrefix=prefix)
    assert topic.values() == EXPECTED


def test_changed_decision_topic_is_refused_and_nothing_is_written_twice(
    spark: SparkSession, topic: Topic, input_folder: Path, died: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="Set decisionTopic=eos-kafka-decisions"):
        run_stream(spark, input_folder, died, topic, decisionTopic=f"other-{topic.name}")
    run_stream(spark, input_folder, died, topic)
    assert topic.values() == EXPECTED


def test_deleted_decision_topic_stops_the_query_until_it_has_a_new_identity(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path, arm: Callable[[str], None]
) -> None:
    """The query dies after its second micro-batch was committed, and before Spark recorded it."""
    checkpoint, more = tmp_path / "checkpoint", {"decisionTopic": f"decisions-{topic.name}"}
    arm("driver.after_complete=raise@1")
    with pytest.raises(StreamingQueryException):
        run_stream(spark, input_folder, checkpoint, topic, **more)
    admin = AdminClient({"bootstrap.servers": topic.address})
    admin.delete_topics([more["decisionTopic"]])[more["decisionTopic"]].result(DEADLINE_S)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="are gone|Restart the query") as stopped:
            run_stream(spark, input_folder, checkpoint, topic, **more)
    assert "are gone" in str(stopped.value)
    assert len(topic.values()) == len(EXPECTED) * 2 / 3
    # All rows of the micro-batch are there, so the remedy is a new identity, and one start that writes nothing.
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)
    passing = (
        lines_of(spark, str(input_folder)).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    )
    assert passing.trigger(once=True).start().awaitTermination(DEADLINE_S)
    run_stream(spark, input_folder, checkpoint, topic, **more)
    assert topic.values() == EXPECTED
