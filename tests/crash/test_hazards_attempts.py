"""Tasks that Spark runs twice, concurrently, too late, or not at all: every row is visible once."""

import contextlib
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.options.client import ClientOptions
from tests.crash.case import Case
from tests.crash.hazards_query import PARTITIONS, TASKS, Hazard, Hold, end, spark_setting
from tests.crash.judge import read_committed
from tests.support.spark_eos.sink_topic import open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def context_ends_with_this_file(spark: SparkSession) -> Iterator[None]:
    """Stop the Spark context at the end: the next file gets a new one.

    When Spark finds shuffle files lost, it drops the block manager that had them. In local mode this is the driver's,
    which cannot register again: the logs of Python workers are lost, and every heartbeat fails. After 60 of them, ten
    minutes later, the JVM exits.
    """
    yield
    spark.stop()


def lose_shuffle_files(hazard: Hazard) -> int:
    """Delete the output of map tasks, as a disk or an external shuffle service loses it."""
    folder = Path(hazard.spark.conf.get("spark.local.dir") or "")
    files = list(folder.glob("blockmgr-*/*/shuffle_*"))
    for path in files:
        path.unlink()
    return len(files)


def attempt_twice(hazard: Hazard, old: Hold, other: Hold) -> None:
    """Make the third of three tasks find its shuffle files lost, while the attempt in `old` is alive."""
    old.wait()
    other.wait()
    assert lose_shuffle_files(hazard) > 0
    other.release()


def test_stage_retried_beside_its_running_attempt(hazard: Hazard) -> None:
    case = hazard.case(micro_batches=1)
    old, other = hazard.hold("task.flushed"), hazard.hold("task.flushed")
    hazard.arm(old.rule, other.rule)
    query = hazard.start(case, tasks=3)
    attempt_twice(hazard, old, other)
    end(query)
    hazard.judge(case)
    # Three tasks, and the old attempt of one of them, which was alive and had written.
    assert sorted(hazard.task_states(case).values()) == ["CompleteAbort"] + ["CompleteCommit"] * 3


@pytest.mark.parametrize("point", ["task.before_write", "task.before_flush"])
def test_worker_resuming_after_its_micro_batch_was_decided(hazard: Hazard, point: str) -> None:
    """Whether it has written before or not: its requests are refused, or the next sweep aborts its transaction."""
    case = hazard.case(kafka_max_request_size="5000")
    old, other, driver = hazard.hold(point), hazard.hold(point), hazard.hold("driver.before_verify", 1)
    hazard.arm(old.rule, other.rule, driver.rule)
    # The order to end the old attempt does not reach its worker.
    with spark_setting(hazard.spark, "spark.python.task.killTimeout", "1h"):
        query = hazard.start(case, tasks=3)
        attempt_twice(hazard, old, other)
        driver.wait()
        sleeper = int(old.path.read_text())
        os.kill(sleeper, 0)
        prepared = len(hazard.open(case))
        old.release()
        if point == "task.before_write":
            wait_until(lambda: len(hazard.open(case)) > prepared, "the worker that woke up has written")
        driver.release()
        end(query)
    hazard.judge(case)


def test_tasks_that_write_nothing(hazard: Hazard) -> None:
    """One task without rows, a micro-batch without rows, and a crash between decision and completion."""
    case = hazard.case(micro_batches=3)
    first, last = case.lines_of(0)[0], case.lines_of(2)[0]
    where = " OR ".join(f"value = '{line}'" for line in (first, last))
    hazard.arm(case.rule("driver.after_decide", "raise", 0))
    with pytest.raises(StreamingQueryException):
        hazard.run(case, where=where)
    hazard.run(case, where=where)
    found = read_committed(hazard.broker, [case.topic], PARTITIONS)[case.topic]
    assert sorted(line for lines in found.values() for line in lines) == sorted([first, last])
    assert hazard.open(case) == []
    # The empty task of the first micro-batch and the second micro-batch have used no id.
    assert len(hazard.task_ids(case)) <= 2


def test_job_without_partitions_and_an_empty_micro_batch(hazard: Hazard) -> None:
    case = hazard.case(micro_batches=2)
    nothing = hazard.spark.createDataFrame(hazard.spark.sparkContext.emptyRDD(), "value string")
    assert nothing.rdd.getNumPartitions() == 0
    for _ in range(2):
        nothing.write.format("eos-kafka").mode("append").options(**case.options, jobId="nothing").save()
    hazard.run(case, where="false")
    assert read_committed(hazard.broker, [case.topic], PARTITIONS)[case.topic] == {}
    assert (hazard.task_ids(case), hazard.open(case)) == ([], [])


@pytest.mark.parametrize("tasks", [1, 5])
def test_number_of_tasks_changed_by_a_restart(hazard: Hazard, tasks: int) -> None:
    case = hazard.case(micro_batches=3)
    hazard.arm(case.rule("driver.mid_complete", "raise", 1))
    hazard.run_to_failure(case, "driver.mid_complete", tasks=3)
    hazard.run(case, tasks)
    hazard.judge(case)


def rows_of(hazard: Hazard, source: Case, **options: str) -> DataFrame:
    """Return the rows that a query of the hazard has written, as a stream."""
    given = {"kafka.bootstrap.servers": hazard.address, "subscribe": source.topic, "startingOffsets": "earliest"}
    return hazard.spark.readStream.format("eos-kafka").options(**given, **options).load().select("key", "value")


def test_partitions_added_to_the_source_by_a_restart(hazard: Hazard) -> None:
    source, case = hazard.case(micro_batches=2), hazard.case(micro_batches=2)
    hazard.run(source)
    rows = rows_of(hazard, source)
    hazard.arm(case.rule("driver.after_decide", "raise", 0))
    with pytest.raises(StreamingQueryException):
        end(hazard.write(rows, case))
    admin = AdminClient({"bootstrap.servers": hazard.broker})
    admin.create_partitions([NewPartitions(source.topic, 4)])[source.topic].result(60)
    added = ["added 1", "added 2"]
    producer = Producer({"bootstrap.servers": hazard.broker})
    for number, value in enumerate(added):
        producer.produce(source.topic, value, partition=PARTITIONS + number)
    assert producer.flush(60) == 0
    end(hazard.write(rows, case))
    found = read_committed(hazard.broker, [case.topic], PARTITIONS)[case.topic]
    seen = sorted(line for lines in found.values() for line in lines)
    assert seen == sorted([*source.expected.elements(), *added])
    assert hazard.open(case) == []


def test_source_process_on_the_driver_is_killed(hazard: Hazard) -> None:
    """Spark ends the query with an error that does not name the cause; after a restart it continues where it was."""
    source, case = hazard.case(micro_batches=2), hazard.case(micro_batches=2)
    hazard.run(source)
    rows = rows_of(hazard, source, maxOffsetsPerTrigger="10")
    held = hazard.hold("task.mid_write")
    hazard.arm(held.rule)
    query = hazard.write(rows, case)
    held.wait(query)
    for pid in _processes_running("python_streaming_source_runner", hazard.spark):
        os.kill(pid, signal.SIGKILL)
    held.release()
    # If Spark names the cause one day, the documentation must change.
    with pytest.raises(StreamingQueryException, match=r"terminated with exception:\s+SQLSTATE"):
        end(query)
    end(hazard.write(rows, case))
    found = read_committed(hazard.broker, [case.topic], PARTITIONS)[case.topic]
    assert sorted(line for lines in found.values() for line in lines) == sorted(source.expected.elements())
    assert hazard.open(case) == []


def _processes_running(module: str, spark: SparkSession) -> list[int]:
    """Return the children of Spark's JVM that run a Python module."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    parent, found = int(jvm.java.lang.ProcessHandle.current().pid()), []
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
            if module in words and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    assert found, f"no child of process {parent} runs {module}"
    return found


def test_lost_transactions_are_not_rewritten_by_another_number_of_tasks(hazard: Hazard) -> None:
    """The rows of task 1 of 2 are not those of task 1 of 3: even `rewrite` stops, with an error that says why."""
    case = hazard.case(micro_batches=1)
    hazard.arm(case.rule("driver.mid_complete", "raise", 0))
    hazard.run_to_failure(case, "driver.mid_complete")
    [lost] = hazard.open(case)
    with KafkaClient(ClientOptions((hazard.broker,))) as client:
        # The coordinator does this at the timeout: it aborts, and raises the epoch.
        init_producer_id(client, lost, transaction_timeout_ms=60_000)
    text = hazard.run_to_failure(case, "1 of its 2 transactions", tasks=3, onLostTransaction="rewrite")
    assert "The decision has 2 tasks" in text and "this run has 3 tasks" in text and "with the same 2 tasks" in text
    hazard.run(case, onLostTransaction="rewrite")
    hazard.judge(case)


def test_queries_with_prefixes_of_each_other(hazard: Hazard) -> None:
    """One query sweeps, in two runs, while another has prepared transactions; they write to one topic.

    The prefix of the other begins with the names of the first.
    """
    short, long = hazard.case(), hazard.case()
    held = hazard.hold("driver.before_decide", 0)
    name = uuid.uuid4()
    short.checkpoint.mkdir()
    (short.checkpoint / "metadata").write_text(json.dumps({"id": str(name)}))
    prefixes = {"transactionalIdPrefix": f"{short.prefix}.{name}", "topic": short.topic}
    hazard.arm(held.rule)
    query = hazard.start(long, **prefixes)
    held.wait()
    prepared = open_transactions(hazard.broker, short.prefix)
    assert len(prepared) == TASKS
    hazard.arm(short.rule("driver.after_decide", "raise", 0))
    hazard.run_to_failure(short, "driver.after_decide")
    assert query.isActive
    hazard.run(short)
    assert open_transactions(hazard.broker, short.prefix) == prepared
    held.release()
    end(query)
    both = short.expected + long.expected
    found = read_committed(hazard.broker, [short.topic], PARTITIONS)[short.topic]
    assert Counter(line for lines in found.values() for line in lines) == both
    assert open_transactions(hazard.broker, short.prefix) == []


def test_workers_that_are_not_reused(hazard: Hazard) -> None:
    case = hazard.case(micro_batches=2)
    with spark_setting(hazard.spark, "spark.python.worker.reuse", "false"):
        hazard.run(case)
    hazard.judge(case)
    # Each task had its own worker, and so its own id.
    assert len(hazard.task_ids(case)) == 2 * TASKS
