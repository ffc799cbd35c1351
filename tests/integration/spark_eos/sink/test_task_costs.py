"""The requests and the clients of tasks: constant for a task, and constant over micro-batches."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState, Runtime
from spark_eos.sink import process_cache
from spark_eos.sink.commit_report import CommitReport, last_report
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, Prepared, TaskMessage
from spark_eos.sink.spark_writers import _commit
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.cost_tables import table
from tests.support.spark_eos.sink_commits import local_folder
from tests.support.spark_eos.source_data import add_partitions

__all__ = ["local_folder"]
RUN, PREFIX = "run1", "p"
PARTITIONS = 4


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": PARTITIONS, "decisions": 2}, requests_kept=100_000) as broker:
        yield broker


@pytest.fixture
def process() -> ProcessState:
    return ProcessState(REAL)


def options_of(kafka: EmbeddedBroker, **more: str) -> SinkOptions:
    return sink_options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": "t",
            "transactionalIdPrefix": PREFIX,
            "decisionTopic": "decisions",
            "transactionTimeout": "60s",
            **more,
        }
    )


def run_task(
    process: ProcessState, options: SinkOptions, place: Place, committed: CommitReport | None = None
) -> TaskMessage:
    rows = pa.record_batch(
        {"value": pa.array([f"row {place.split}"]), "partition": pa.array([place.split % PARTITIONS], pa.int32())}
    )
    return task_writer(process, options, place, may_be_decided=True, committed=committed).write(iter([rows]))


def run_micro_batch(
    process: ProcessState, kafka: EmbeddedBroker, options: SinkOptions, query: str, micro_batch: int, count: int
) -> Counter[str]:
    """Run a micro-batch in one worker and commit it as Spark's writers do; return the requests of its tasks."""
    before = len(kafka.requests())
    report = last_report(query)
    messages = [run_task(process, options, Place(query, RUN, micro_batch, split), report) for split in range(count)]
    asked = Counter(each.api for each in kafka.requests()[before:])
    _commit(committer(process, options, query, RUN), messages, micro_batch, query)
    return asked


@pytest.mark.parametrize("count", [2, 40])
def test_steady_task_requests_nothing_about_its_ids(
    process: ProcessState, kafka: EmbeddedBroker, local_folder: Path, count: int
) -> None:
    options, query = options_of(kafka), unique("query")
    run_micro_batch(process, kafka, options, query, 0, count)
    asked = run_micro_batch(process, kafka, options, query, 1, count)
    # Requests that depend on time are sent at intervals, whatever the number of tasks is.
    asked = Counter({api: number for api, number in asked.items() if api not in ("Metadata", "ApiVersions")})
    assert asked == {api: number * count for api, number in table("A task", count).items()}
    # Without the report, the worker describes all ids at once, with one request to the one broker.
    for file in local_folder.iterdir():
        file.unlink()
    asked = run_micro_batch(process, kafka, options, query, 2, count)
    assert (asked["DescribeTransactions"], asked["InitProducerId"]) == (1, 0)


def test_topics_of_rows_are_counted_once_for_a_micro_batch(process: ProcessState, kafka: EmbeddedBroker) -> None:
    """While a topic grows, one key has one partition; the next micro-batch uses the new partitions."""
    options = sink_options(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "decisionTopic": "decisions", "transactionTimeout": "60s"}
    )
    keys = [b"%d" % number for number in range(40)]
    rows = pa.record_batch({"value": keys, "key": keys, "topic": ["t"] * 40})
    used = []
    for micro_batch, split in ((0, 0), (0, 1), (1, 0)):
        place = Place("by column", RUN, micro_batch, split)
        message = task_writer(process, options, place, may_be_decided=False).write(iter([rows]))
        assert isinstance(message, Prepared)
        used.append({each.partition for each in message.transaction.ranges})
        if split == 0:
            add_partitions(kafka.bootstrap_servers, "t", PARTITIONS + 1 + micro_batch)
    assert used == [set(range(PARTITIONS)), set(range(PARTITIONS)), set(range(PARTITIONS + 1))]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[KafkaClient]]:
    """Collect the clients that are made, none of which may be closed."""
    found: list[KafkaClient] = []

    class Counted(KafkaClient):
        def __init__(self, options: ClientOptions, runtime: Runtime) -> None:
            super().__init__(options, runtime)
            found.append(self)

        def close(self) -> None:
            raise AssertionError("a client is closed")

    monkeypatch.setattr(process_cache, "KafkaClient", Counted)
    yield found
    for each in found:
        KafkaClient.close(each)


def test_ids_groups_and_clients_stay_constant_when_options_change(
    process: ProcessState, kafka: EmbeddedBroker, local_folder: Path, opened: list[KafkaClient]
) -> None:
    """In a foreachBatch function each micro-batch has another writer, and the same query and run."""
    query = unique("query")
    for micro_batch in range(12):
        options = options_of(kafka, **{"batch.size": str(100_000 + micro_batch)})
        run_micro_batch(process, kafka, options, query, micro_batch, 2)
    assert len(opened) == 1
    assert len(kafka.requests(api="InitProducerId")) == 3, "two tasks and the driver"
    assert len(kafka.requests(api="FindCoordinator")) <= 4, "and the group"


def test_hundreds_of_queries_in_one_process_keep_their_ids_and_one_client(
    process: ProcessState, kafka: EmbeddedBroker, opened: list[KafkaClient]
) -> None:
    """With a limit of 64, each round over more queries made all ids, clients and decision logs again."""
    writers, committers = [], []
    for _ in range(2):
        for number in range(500):
            options, place = options_of(kafka, topic=f"topic{number}"), Place(f"query{number}", RUN, 0, 0)
            writers.append(task_writer(process, options, place, may_be_decided=True))
            committers.append(committer(process, options, place.query, RUN))
    for first, second in zip(writers[:500], writers[500:], strict=True):
        assert first.cluster is second.cluster and first.log is second.log and first.pool is second.pool
    for earlier, later in zip(committers[:500], committers[500:], strict=True):
        assert (
            earlier.cluster is later.cluster
            and earlier.own.log is later.own.log
            and earlier.own.memory is later.own.memory
        )
    assert len(opened) == 1
