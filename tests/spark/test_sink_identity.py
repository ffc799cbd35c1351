"""Names and checkpoints as people use them in Spark, where Spark names the query, the micro-batch and the task."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
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
from tests.support.spark_eos.sink_query import DEADLINE_S, end, lines_of, run_each, start
from tests.support.spark_eos.sink_topic import Topic, make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
FILES = 3
LINES = 50
EXPECTED = sorted(f"file{number}-line{line}" for number in range(FILES) for line in range(LINES))
Function = Callable[[DataFrame, int], None]


@pytest.fixture
def topic(kafka_address: str) -> Topic:
    return make_topic(kafka_address)


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def arm(failpoints_file: Path, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Arm one rule that acts once among all processes of the session."""

    def arm_once(rule: str) -> None:
        point, action = rule.split("=", 1)
        failpoints_file.write_text(f"{point}=once:{tmp_path / uuid.uuid4().hex}|{action}")

    yield arm_once
    failpoints_file.unlink(missing_ok=True)


@pytest.fixture
def input_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(FILES):
        lines = "".join(f"file{number}-line{line}\n" for line in range(LINES))
        (folder / f"{number}.txt").write_text(lines)
        os.utime(folder / f"{number}.txt", (number, number))
    return folder


def write(frame: DataFrame, topic: Topic, **more: str) -> None:
    frame.write.format("eos-kafka").mode("append").options(**topic.options(**more)).save()


def write_to(topic: Topic, frame: DataFrame, _: int, **more: str) -> None:
    write(frame, topic, **more)


def run_function(spark: SparkSession, function: Function, folder: Path, checkpoint: Path) -> None:
    run_each(lines_of(spark, str(folder)), function, checkpoint)


def run_stream(spark: SparkSession, folder: Path, checkpoint: Path, topic: Topic, **more: str) -> None:
    end(start(lines_of(spark, str(folder)), str(checkpoint), topic.options(**more)))


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


def test_foreach_batch_uses_the_ids_and_decision_of_a_stream(
    spark: SparkSession, topic: Topic, prefix: str, input_folder: Path, tmp_path: Path
) -> None:
    for number in range(3, 5):
        (input_folder / f"{number}.txt").write_text(f"{number}\n")
    options = {"transactionalIdPrefix": prefix}
    run_function(spark, lambda frame, _: write(frame, topic, **options), input_folder, tmp_path / "checkpoint")
    with KafkaClient(ClientOptions((topic.address,))) as client:
        names = [each.transactional_id for each in list_transactions(client)]
    drivers = [name for name in names if name.startswith(prefix) and name.endswith(".driver")]
    tasks = [name for name in names if (task := parse_task_id(name)) is not None and task.prefix == prefix]
    assert len(drivers) == 1
    assert len(tasks) <= 4, f"five micro-batches of two tasks: {tasks}"


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


# Checkpoints


def test_copied_checkpoint_with_equal_rows_replaces_the_first_query(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path, arm: Callable[[str], None]
) -> None:
    """The query dies after its second micro-batch was decided, and before Spark recorded it."""
    arm("driver.after_complete=raise@1")
    with pytest.raises(StreamingQueryException):
        run_stream(spark, input_folder, tmp_path / "checkpoint", topic)
    copy = Path(shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy"))
    run_stream(spark, input_folder, copy, topic)
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
    end(passing.trigger(once=True).start())
    run_stream(spark, input_folder, checkpoint, topic, **more)
    assert topic.values() == EXPECTED
