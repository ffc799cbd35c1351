"""`spark_eos.write` and `spark_eos.foreach_batch_sink`: the same guarantees without Spark's data source API."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import InheritableThread, inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_eos
import spark_eos.sink.dataframe_writes
from broker_core import Drop, EmbeddedBroker
from spark_eos.sink.commit_report import CommitReport
from spark_eos.sink.spark_writers import BatchWriter
from tests.support.spark_eos.sink_query import run_each
from tests.support.spark_eos.sink_topic import Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
COUNT = 40


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + COUNT, numPartitions=2).selectExpr("cast(id as string) as value")


def expected(first: int = 0) -> list[str]:
    return sorted(str(number) for number in range(first, first + COUNT))


@contextmanager
def interrupted(when: Callable[[], Any]) -> Iterator[None]:
    """Interrupt what the block waits for, as Ctrl-C, a notebook or a limit of time does."""

    def interrupt() -> None:
        wait_until(when, "the moment to interrupt", deadline_s=120)
        os.kill(os.getpid(), signal.SIGUSR1)

    def raise_it(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        # After the interrupt PySpark asks the JVM, which may close the connection: that error comes instead then.
        with ThreadPoolExecutor(1) as thread, pytest.raises((KeyboardInterrupt, Py4JError)):
            interrupting = thread.submit(interrupt)
            yield
        interrupting.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_copy_of_rows_that_the_brokers_delete_at_once_is_named(
    kafka_address: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a job that copies old records: Spark's own sink ignores the column, and keeps them for a week."""
    topic = make_topic(kafka_address)
    for time in ("current_timestamp()", "current_timestamp() - interval 30 days"):
        spark_eos.write(rows(spark).selectExpr("*", f"{time} as timestamp"), **topic.options())
    [warning] = [each.getMessage() for each in caplog.records if each.name == "spark_eos.sink.old_rows"]
    assert topic.name in warning and "30.0 days old" in warning


def test_repeated_micro_batch_is_not_written_again(kafka_address: str, spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic(kafka_address)
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    files.mkdir()
    for number in range(2):
        (files / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(COUNT)))

    def run() -> None:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
        run_each(lines, spark_eos.foreach_batch_sink(**topic.options()), checkpoint)

    run()
    written = sorted(f"{number}-{line}" for number in range(2) for line in range(COUNT))
    assert topic.values() == written
    (checkpoint / "commits" / "1").unlink()
    # A lean session writes no checksums.
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    assert topic.values() == written


@pytest.mark.parametrize("is_function_first", [True, False])
def test_both_kinds_of_write_know_of_each_other_when_their_function_is_called_again(
    kafka_address: str, spark: SparkSession, tmp_path: Path, is_function_first: bool
) -> None:
    """Spark's Python processes commit `save`, and the user's own process commits `spark_eos.write`."""
    topics = [make_topic(kafka_address) for _ in range(2)]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0.txt").write_text("".join(f"{line}\n" for line in expected()))
    interruptions = iter([True])

    def write_twice(frame: DataFrame, _: int) -> None:
        for topic, is_function in zip(topics, (is_function_first, not is_function_first), strict=True):
            if is_function:
                spark_eos.write(frame, **topic.options())
            else:
                frame.write.format("eos-kafka").mode("append").options(**topic.options()).save()
            if next(interruptions, False):
                raise RuntimeError("between the writes")

    lines = spark.readStream.text(str(tmp_path / "files"))
    with pytest.raises(StreamingQueryException, match="between the writes"):
        run_each(lines, write_twice, tmp_path / "checkpoint")
    run_each(lines, write_twice, tmp_path / "checkpoint")
    assert [topic.values() for topic in topics] == [expected()] * 2


def test_threads_write_at_the_same_time(kafka_address: str, spark: SparkSession) -> None:
    topics = [make_topic(kafka_address) for _ in range(2)]

    def write_often(topic: Topic) -> None:
        for number in range(2):
            spark_eos.write(rows(spark, first=number * COUNT), **topic.options())

    with ThreadPoolExecutor(len(topics)) as threads:
        list(threads.map(write_often, topics))
    everything = sorted(value for number in range(2) for value in expected(number * COUNT))
    assert [topic.values() for topic in topics] == [everything] * len(topics)


def test_thread_finds_the_format_after_a_frame_was_created_in_it(kafka_address: str, spark: SparkSession) -> None:
    """Spark looks for Python formats in the active session, and a new thread has none: see docs/deploy/index.md."""
    topic, frame = make_topic(kafka_address), rows(spark)
    write = frame.write.format("eos-kafka").mode("append").options(**topic.options())

    def save_after_create() -> None:
        spark.createDataFrame([], "x int")
        write.save()

    with ThreadPoolExecutor(1) as thread, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        thread.submit(write.save).result(240)
    for way in (save_after_create, lambda: spark_eos.write(frame, **topic.options())):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(way).result(240)
    assert topic.values() == sorted(expected() * 2)


def test_a_commit_that_fails_leaves_nothing_open(
    kafka_address: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(kafka_address)

    def fail(*_: object) -> None:
        assert open_transactions(kafka_address, topic.name)
        raise spark_eos.TransactionError("not decided")

    monkeypatch.setattr(BatchWriter, "commit", fail)
    with pytest.raises(spark_eos.TransactionError, match="not decided"):
        spark_eos.write(rows(spark), transactionalIdPrefix=topic.name, **topic.options())
    assert not open_transactions(kafka_address, topic.name)
    assert topic.values() == []


def test_an_interrupted_write_ends_its_job_and_leaves_nothing_open(kafka_address: str, spark: SparkSession) -> None:
    topic, jobs = make_topic(kafka_address), spark.sparkContext.statusTracker()
    # Long before its tasks have rows to write, so that what they prepare comes after the abort.
    pause = "coalesce(java_method('java.lang.Thread', 'sleep', 1000L), '')"
    slow = spark.range(0, 240, 1, 2).selectExpr(f"concat(cast(id as string), {pause}) as value")
    try:
        with interrupted(when=jobs.getActiveJobsIds):
            spark_eos.write(slow, transactionalIdPrefix=topic.name, **topic.options())
    finally:
        # The interrupt closes the thread's connection to the JVM, and a new one has no active session.
        spark.createDataFrame([], "x int")
    wait_until(lambda: not jobs.getActiveJobsIds(), "the job of the write ends", deadline_s=120)
    wait_until(lambda: not open_transactions(kafka_address, topic.name), "its transactions end", deadline_s=120)
    rows(spark).write.format("eos-kafka").mode("append").options(**topic.options()).save()
    assert topic.values() == expected()


def test_a_platform_without_job_tags_writes_all_the_same_and_an_option_that_is_none_is_not_set(
    kafka_address: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(kafka_address)

    def refuse(*_: object) -> None:
        raise RuntimeError("Method addJobTag is not allowed")

    for _ in range(2):
        spark_eos.write(rows(spark), jobId=None, writeName=None, transactionTimeout=None, **topic.options())
        monkeypatch.setattr(spark.sparkContext, "addJobTag", refuse)
    assert topic.values() == sorted(expected() * 2)


def test_a_job_that_is_interrupted_after_its_decision_is_completed_as_the_log_says(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        options = {"topic": "t", "kafka.bootstrap.servers": kafka.bootstrap_servers}
        one_task = rows(spark).coalesce(1)
        # The first one ends the transaction of the decision.
        lost = kafka.fault(api="EndTxn", nth=2, action=Drop())
        with lost, interrupted(when=lambda: lost.hits):
            spark_eos.write(one_task, **options)
        [words] = [each for each in caplog.messages if "interrupted" in each]
        [name] = re.findall(r"run the job again, with jobId=(job-\w+)$", words)
        assert not len(kafka.records("t", isolation="read_committed"))
        spark_eos.write(one_task, jobId=name, **options)
        values = kafka.records("t", isolation="read_committed").values
        assert sorted((value or b"").decode() for value in values) == expected()


def test_a_micro_batch_that_fails_leaves_nothing_open(kafka_address: str, spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic(kafka_address)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0.txt").write_text("a line\n")
    sink = spark_eos.foreach_batch_sink(transactionalIdPrefix=topic.name, **topic.options())
    # One task prepares its rows, and the other fails after that: what is prepared after the abort stays open.
    later = "concat('no value ', coalesce(java_method('java.lang.Thread', 'sleep', 3000L), ''))"
    value = f"if(value = '{COUNT - 1}', raise_error({later}), value)"
    lines = spark.readStream.text(str(tmp_path / "files"))
    with pytest.raises(StreamingQueryException, match="no value"):
        run_each(
            lines, lambda _, number: sink(rows(spark).selectExpr(f"{value} as value"), number), tmp_path / "checkpoint"
        )
    wait_until(lambda: not open_transactions(kafka_address, topic.name), "its transactions end", deadline_s=30)


def numbered_files(folder: Path) -> Path:
    """Write two files, each with its number."""
    (folder / "files").mkdir()
    for number in range(2):
        (folder / "files" / f"{number}.txt").write_text(f"{number}\n")
        os.utime(folder / "files" / f"{number}.txt", (number, number))
    return folder / "files"


def test_thread_that_is_kept_for_later_micro_batches_is_refused(
    kafka_address: str, spark: SparkSession, tmp_path: Path
) -> None:
    """It would write under the number of the first one, and again when a micro-batch runs again in another thread."""
    topic, files = make_topic(kafka_address), numbered_files(tmp_path)
    calls: SimpleQueue[tuple[DataFrame, Future[None]] | None] = SimpleQueue()

    def serve() -> None:
        for number, (frame, done) in enumerate(iter(calls.get, None)):
            try:
                done.set_result(spark_eos.write(frame, writeName=f"write-{number}", **topic.options()))
            except Exception as error:
                done.set_exception(error)

    threads: list[InheritableThread] = []

    def write_in_a_kept_thread(frame: DataFrame, _: int) -> None:
        if not threads:
            threads.append(InheritableThread(target=serve))
            threads[0].start()
        done = Future[None]()
        calls.put((frame, done))
        done.result(240)

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
    with pytest.raises(StreamingQueryException, match="'write-1' .* was started in micro-batch 0, which has ended"):
        run_each(lines, write_in_a_kept_thread, tmp_path / "checkpoint")
    calls.put(None)
    threads[0].join(240)
    assert topic.values() == ["0"]


def test_query_that_another_query_has_started_outlives_its_micro_batch(
    kafka_address: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its thread has the properties of the one that started it: the outermost execution is the other query's."""
    topic, files, has_ended, started = make_topic(kafka_address), numbered_files(tmp_path), Event(), []

    def write_later(frame: DataFrame, _: int) -> None:
        assert has_ended.wait(240)
        spark_eos.write(frame, **topic.options())

    def start_another(frame: DataFrame, _: int) -> None:
        writer = spark.readStream.text(str(files)).writeStream.foreachBatch(write_later).trigger(availableNow=True)
        started.append(writer.option("checkpointLocation", str(tmp_path / "another")).start())

    run_each(spark.readStream.text(str(files)), start_another, tmp_path / "checkpoint")
    has_ended.set()
    started[0].awaitTermination()
    assert topic.values() == ["0", "1"]


def test_thread_pool_may_be_kept_for_later_micro_batches(
    kafka_address: str, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(kafka_address)
    files, checkpoint = numbered_files(tmp_path), tmp_path / "checkpoint"
    with ThreadPoolExecutor(1) as pool:

        def write_in_pool(frame: DataFrame, _: int) -> None:
            write = inheritable_thread_target(spark)(partial(spark_eos.write, frame, **topic.options()))
            pool.submit(write).result(240)

        for _ in range(2):
            lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
            run_each(lines, write_in_pool, checkpoint)
            (checkpoint / "commits" / "1").unlink()
            (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    assert topic.values() == ["0", "1"]


def test_the_function_of_a_sink_refuses_to_write_outside_of_a_micro_batch(
    kafka_address: str, spark: SparkSession
) -> None:
    topic = make_topic(kafka_address)
    with pytest.raises(spark_eos.ClientStateError, match="outside of a micro-batch"):
        spark_eos.foreach_batch_sink(**topic.options())(rows(spark), 0)
    assert topic.values() == []


def test_the_driver_reports_to_the_next_micro_batch_what_it_has_committed(
    kafka_address: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(kafka_address)
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    (tmp_path / "files").mkdir()
    for number in range(2):
        (tmp_path / "files" / f"{number}.txt").write_text("a line\n")
    reports: list[CommitReport | None] = []

    def make_writer(*arguments: Any, **named: Any) -> BatchWriter:
        writer = BatchWriter(*arguments, **named)
        reports.append(writer.committed)
        return writer

    monkeypatch.setattr(spark_eos.sink.dataframe_writes, "BatchWriter", make_writer)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "files"))
    run_each(lines, spark_eos.foreach_batch_sink(**topic.options()), tmp_path / "checkpoint")
    [first, second] = reports
    assert first is None
    assert second is not None and [each.micro_batch for each in second.workers.values()] == [0]
