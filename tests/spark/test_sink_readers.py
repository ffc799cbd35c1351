"""Stopped queries and killed workers during a micro-batch: readers continue within seconds, and no row is lost."""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from broker_core import EmbeddedBroker, Error
from tests.support.spark_eos.holds import Holds
from tests.support.spark_eos.sink_topic import READERS_WAIT_S, Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
END_S = 240
MICRO_BATCHES = 2
# Several times the buffer of a task, so that a task that is writing has its transaction open.
LINES = 2_000
PADDING = "x" * 150
EXPECTED = sorted(f"{number}-{line}-{PADDING}" for number in range(MICRO_BATCHES) for line in range(LINES))


@dataclass
class Job(Holds):
    """A query that copies two files to a topic, one in each micro-batch, in two tasks."""

    spark: SparkSession
    topic: Topic
    prefix: str

    @property
    def options(self) -> dict[str, str]:
        """Return the sink's options."""
        return self.topic.options(
            **{"transactionalIdPrefix": self.prefix, "buffer.memory": "65536", "batch.size": "2000"}
        )

    def start(self, column: str = "value") -> StreamingQuery:
        """Start the query; `column` is the expression of its values."""
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder / "input"))
        rows = lines.repartition(2, "value").selectExpr("value AS key", f"{column} AS value")
        writer = rows.writeStream.format("eos-kafka").options(**self.options)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True).start()

    def register_bad_row(self) -> Path:
        """Register the function `raise_late`, which raises at a row of the first file once the returned path exists."""
        ready = self.folder / "ready"

        # Without type hints: Spark takes a function's type hints as a request for a vectorized one, and warns.
        @udf("string")
        def raise_late(value):
            if value.startswith("0-7-"):
                while not ready.exists():
                    time.sleep(0.05)
                raise ValueError("a bad row")
            return value

        self.spark.udf.register("raise_late", raise_late)
        return ready

    def open(self) -> list[str]:
        """List the open transactions of the query."""
        return open_transactions(self.topic.address, f"{self.prefix}.")

    def check_readers_continue(self) -> None:
        """Check that no transaction blocks readers for longer than they may wait."""
        started = time.monotonic()
        wait_until(lambda: not self.open() and self.topic.is_stable(), "readers continue", deadline_s=READERS_WAIT_S)
        print(f"readers waited {time.monotonic() - started:.2f} s")

    def check_a_restart_writes_each_row_once(self) -> None:
        """Run the query to its end and count what readers see."""
        self.rules.unlink(missing_ok=True)
        assert self.start().awaitTermination(END_S)
        assert self.topic.values() == EXPECTED
        assert self.open() == []


def make_job(spark: SparkSession, address: str, failpoints_file: Path, tmp_path: Path) -> Job:
    """Write the input of a job."""
    (tmp_path / "input").mkdir()
    for number in range(MICRO_BATCHES):
        path = tmp_path / "input" / f"{number}.txt"
        path.write_text("".join(f"{number}-{line}-{PADDING}\n" for line in range(LINES)))
        os.utime(path, (number, number))
    return Job(tmp_path, failpoints_file, spark, make_topic(address), f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def job(spark: SparkSession, kafka_address: str, failpoints_file: Path, tmp_path: Path) -> Iterator[Job]:
    yield make_job(spark, kafka_address, failpoints_file, tmp_path)
    Holds(tmp_path, failpoints_file).end()
    for query in spark.streams.active:
        query.stop()


def test_stop_leaves_no_open_transaction(job: Job) -> None:
    held = [job.hold("task.flushed", 1), job.hold("task.flushed", 1)]
    job.arm(*(each.rule for each in held))
    query = job.start()
    for each in held:
        each.wait()
    assert len(job.open()) == 2
    query.stop()
    job.check_readers_continue()
    job.check_a_restart_writes_each_row_once()


def test_transactions_begun_after_the_stop_are_ended(job: Job) -> None:
    """Spark kills a task's worker seconds after its order; until then the task continues and finishes."""
    held = [job.hold("task.before_identity"), job.hold("task.before_identity")]
    job.arm(*(each.rule for each in held))
    query = job.start()
    workers = [each.wait() for each in held]
    query.stop()
    for each in held:
        each.release()

    def is_written_or_killed() -> bool:
        return not job.topic.is_stable() or _has_records(job.topic) or not any(map(_lives, workers))

    # On a busy machine the stop takes longer than Spark's patience, and no task is left that could write.
    wait_until(is_written_or_killed, "a task writes after the stop")
    job.check_readers_continue()
    job.check_a_restart_writes_each_row_once()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _has_records(topic: Topic) -> bool:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": topic.address, "group.id": "none"})
    try:
        places = [TopicPartition(topic.name, number) for number in range(topic.partition_count)]
        return any(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    finally:
        consumer.close()


def test_failing_udf_leaves_no_open_transaction(job: Job) -> None:
    """In the first micro-batch: one task meets a bad row, and the other one is writing."""
    held = job.hold("task.before_flush")
    job.arm(held.rule)
    ready = job.register_bad_row()
    query = job.start("raise_late(value)")
    held.wait()
    wait_until(job.open, "a task writes")
    ready.touch()
    with pytest.raises(StreamingQueryException, match="a bad row"):
        query.awaitTermination(END_S)
    job.check_readers_continue()
    job.check_a_restart_writes_each_row_once()


def test_failed_batch_job_leaves_no_open_transaction(job: Job) -> None:
    held = job.hold("task.before_flush")
    job.arm(held.rule)
    ready = job.register_bad_row()
    lines = job.spark.read.text(str(job.folder / "input")).repartition(2, "value")
    rows = lines.selectExpr("raise_late(value) AS value")

    def save() -> None:
        # Spark looks for Python data sources in the active session only, and a new thread has none.
        job.spark._jvm.SparkSession.setActiveSession(job.spark._jsparkSession)  # type: ignore[union-attr]
        rows.write.format("eos-kafka").mode("append").options(**job.options).save()

    with ThreadPoolExecutor(1) as thread:
        saved = thread.submit(save)
        held.wait()
        assert job.open()
        ready.touch()
        with pytest.raises(Exception, match="a bad row"):
            saved.result(END_S)
    job.check_readers_continue()
    assert job.topic.values() == []


def test_killed_commit_leaves_no_open_transaction(job: Job) -> None:
    held = job.hold("driver.mid_decide")
    job.arm(held.rule)
    query = job.start()
    process_id = held.wait()
    assert len(job.open()) >= 2
    os.kill(process_id, signal.SIGKILL)
    job.check_readers_continue()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(END_S)
    job.check_a_restart_writes_each_row_once()


def test_killed_worker_leaves_only_prepared_transactions_open(job: Job) -> None:
    victim, prepared, again = job.hold("task.before_flush"), job.hold("task.prepared"), job.hold("task.before_identity")
    job.arm(victim.rule, prepared.rule)
    query = job.start()
    victim_id, prepared_id = victim.wait(), prepared.wait()
    before = job.open()
    assert len(before) == 2
    # The second attempt waits, so that no driver sweeps.
    job.arm(again.rule)
    os.kill(victim_id, signal.SIGKILL)
    victim.release()
    started = time.monotonic()
    wait_until(lambda: len(job.open()) == 1, "the dead worker's transaction ends", deadline_s=READERS_WAIT_S)
    print(f"it was open for {time.monotonic() - started:.2f} s")
    [left] = job.open()
    # The other task ends well, and its worker is killed too: Spark has its message.
    prepared.release()
    again.wait()
    os.kill(prepared_id, signal.SIGKILL)
    again.release()
    assert query.awaitTermination(END_S)
    assert job.topic.values() == EXPECTED
    assert left in before


def test_failed_commit_is_reported_and_leaves_no_open_transaction(
    spark: SparkSession, failpoints_file: Path, tmp_path: Path
) -> None:
    """A right to the query's group is taken away while the query runs: commit, check of the cluster and abort fail."""
    with EmbeddedBroker() as kafka:
        job = make_job(spark, kafka.bootstrap_servers, failpoints_file, tmp_path)
        held = job.hold("driver.before_verify", 1)
        job.arm(held.rule)
        query = job.start()
        held.wait()
        refused = Error("GROUP_AUTHORIZATION_FAILED")
        with kafka.fault(api="OffsetFetch", action=refused), kafka.fault(api="TxnOffsetCommit", action=refused):
            held.release()
            with pytest.raises(StreamingQueryException, match="Grant READ") as raised:
                query.awaitTermination(END_S)
            assert "Writing job failed" not in str(raised.value)
            job.check_readers_continue()
        job.check_a_restart_writes_each_row_once()
