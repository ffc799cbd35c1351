"""The requests of a micro-batch: a steady one costs what docs/contributing/benchmarks.md says, and no more."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pytest

from broker_core import Drop, EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import LostTransactionError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Place, Prepared, TaskMessage
from spark_eos.sink.naming import TaskId
from spark_eos.sink.protocol import state as run_state
from spark_eos.sink.protocol.state import QueryRun
from spark_eos.sink.task.identity_pool import IdentityPool
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.sink.task.writer import TaskWriter
from tests.support.spark_eos.client_world import encoded, read_values
from tests.support.spark_eos.cost_tables import table
from tests.support.spark_eos.driving import LogOn

OUT, DECISIONS = "out", "eos-kafka-decisions"
DRIVER_ID = "eos-kafka.q.driver"
# With one partition for each internal topic, all coordinators are on one broker.
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
WORKERS: Final = 4
# Requests that are not part of a micro-batch: reading the feature levels every ten seconds, and new connections.
BESIDE: Final = frozenset({"ApiVersions"})


class Process:
    """A Python process of Spark, which the broker knows by its client id."""

    def __init__(self, kafka: EmbeddedBroker, name: str, stack: ExitStack, **kafka_options: str) -> None:
        given = {f"kafka.{key.replace('_', '.')}": value for key, value in kafka_options.items()}
        options = sink_options(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.client.id": name, "topic": OUT, **given}
        )
        self.options: SinkOptions = replace(options, transaction_timeout_ms=60_000)
        self.client = stack.enter_context(KafkaClient(self.options.client))
        self.cluster = KafkaCluster(self.client, DECISIONS)
        self.log = LogOn(self.cluster, self.options.prefix, "q", DECISIONS, run="run1")
        self.pool = IdentityPool(self.cluster, self.options.prefix, "q", "run1", name)

    def committer(self, run: str = "run1") -> Committer:
        return Committer(
            self.cluster, QueryRun(self.log.log, self.options.prefix, "q", run, self.options.on_lost_transaction)
        )

    def task(self, micro_batch: int, split: int, partitions: int) -> TaskMessage:
        """Write four rows to four partitions."""
        numbers = [(4 * split + at) % partitions for at in range(4)]
        values = [f"{micro_batch}.{split}.{number}".encode() for number in numbers]
        rows = pa.RecordBatch.from_arrays(
            [pa.array(values, pa.binary()), pa.array(numbers, pa.int32())], names=["value", "partition"]
        )
        transaction = TaskTransaction(self.client, self.options)
        place = Place("q", "run1", micro_batch, split)
        return TaskWriter(self.options, place, self.cluster, self.pool, transaction, self.log.log).write(iter([rows]))


class Query:
    """A driver and its workers on a cluster."""

    def __init__(
        self, kafka: EmbeddedBroker, stack: ExitStack, tasks: int = 2, partitions: int = 4, **kafka_options: str
    ) -> None:
        self.kafka, self.tasks, self.partitions = kafka, tasks, partitions
        names = [f"worker{number}" for number in range(min(tasks, WORKERS))]
        self.workers = [Process(kafka, name, stack) for name in names]
        self.driver = Process(kafka, "driver", stack, **kafka_options)
        self.committer = self.driver.committer()
        self.stack = stack

    def prepare(self, micro_batch: int) -> list[TaskMessage]:
        return [
            self.workers[split % len(self.workers)].task(micro_batch, split, self.partitions)
            for split in range(self.tasks)
        ]

    def run(self, micro_batch: int, *, has_other_attempts: bool = False) -> None:
        first, *others = self.prepare(micro_batch)
        self.committer.commit([replace(first, has_other_attempts=has_other_attempts), *others], micro_batch)

    def seen(self, *, of_driver: bool = True) -> list[str]:
        found = [each for each in self.kafka.requests() if (each.client_id == "driver") is of_driver]
        return [each.api for each in found if each.api not in BESIDE]

    def cost_of(self, micro_batch: int) -> tuple[Counter[str], Counter[str]]:
        """Count the requests of the driver and of the tasks in a micro-batch."""
        before = [len(self.seen(of_driver=who)) for who in (True, False)]
        self.run(micro_batch)
        driver, tasks = (self.seen(of_driver=who)[count:] for who, count in zip((True, False), before, strict=True))
        return Counter(driver), Counter(tasks)

    def newest(self) -> Decision | None:
        """Read the newest decision as another process does."""
        return Process(self.kafka, "reader", self.stack).log.newest()

    def leave_open(self, worker: str = "lost", run: str = "run1") -> str:
        """Leave a transaction open, as the attempt at a task that lost does."""
        name = str(TaskId("eos-kafka", "q", run, worker, 0))
        client = self.workers[0].client
        producer = TransactionalProducer(client)
        producer.begin(init_producer_id(client, name, transaction_timeout_ms=60_000))
        producer.send(TopicPartition(OUT, 0), encoded(["lost"]))
        producer.flush()
        return name

    def state_of(self, transactional_id: str) -> str:
        return str(self.kafka.transaction(transactional_id).state)

    def write_beside(self) -> None:
        """Write a decision of another query to the same partition."""
        newest = self.newest()
        assert newest is not None
        place = next(each for each in self.kafka.written_partitions() if each.topic == DECISIONS)
        client = self.workers[0].client
        producer = TransactionalProducer(client)
        identity = init_producer_id(client, "other", transaction_timeout_ms=60_000)
        producer.begin(identity)
        producer.send(TopicPartition(*place), encoded(["another query's"]))
        producer.flush()
        producer.abort()

    def visible(self) -> list[str]:
        return sorted(value for values in read_values(self.kafka.bootstrap_servers, OUT) for value in values)

    def expected(self, micro_batches: Sequence[int]) -> list[str]:
        return sorted(
            f"{number}.{split}.{(4 * split + at) % self.partitions}"
            for number in micro_batches
            for split in range(self.tasks)
            for at in range(4)
        )


def opened(
    stack: ExitStack, *, tasks: int = 2, partitions: int = 4, brokers: int = 1, version: int = 2, **kafka_options: str
) -> Query:
    kafka = stack.enter_context(
        EmbeddedBroker(
            brokers=brokers,
            topics={OUT: partitions, DECISIONS: 8},
            transaction_version=version,
            config=SETTINGS,
            requests_kept=100_000,
        )
    )
    return Query(kafka, stack, tasks, partitions, **kafka_options)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened_here:
        yield opened_here


@pytest.fixture
def query(stack: ExitStack) -> Query:
    return opened(stack)


@pytest.mark.parametrize(("tasks", "partitions", "last"), [(2, 4, 3), (200, 300, 1)])
def test_steady_micro_batch_costs_the_driver_the_documented_requests(
    stack: ExitStack, tasks: int, partitions: int, last: int
) -> None:
    query = opened(stack, tasks=tasks, partitions=partitions)
    query.run(0)
    expected = table("The driver", tasks)
    for micro_batch in range(1, last + 1):
        driver, of_tasks = query.cost_of(micro_batch)
        assert driver == expected
        assert of_tasks["Produce"] == tasks, "one request for each leader"


def test_steady_v1_micro_batch_costs_the_documented_requests(stack: ExitStack) -> None:
    query = opened(stack, version=1)
    query.run(0)
    expected = table("The driver under transactions V1", query.tasks)
    for micro_batch in (1, 2):
        assert query.cost_of(micro_batch)[0] == expected


def test_coordinators_of_new_ids_are_looked_up_with_one_request(query: Query) -> None:
    query.run(0)
    query.workers = [Process(query.kafka, f"new{number}", query.stack) for number in range(2)]
    driver, _ = query.cost_of(1)
    assert driver - Counter(table("The driver", 2)) == {"FindCoordinator": 1}


def test_transactions_are_described_while_the_decision_is_appended_and_its_offset_follows(query: Query) -> None:
    query.run(0)
    count = len(query.seen())
    query.run(1)
    sent = query.seen()[count:]
    assert sent[:4] == ["Produce", "Metadata", "DescribeTransactions", "TxnOffsetCommit"]
    assert sent[4:] == ["EndTxn"] * 3


def test_transaction_that_is_not_open_aborts_the_decision_in_flight(query: Query) -> None:
    query.run(0)
    prepared = query.prepare(1)
    assert isinstance(prepared[0], Prepared)
    init_producer_id(query.driver.client, prepared[0].transaction.transactional_id, transaction_timeout_ms=60_000)
    with pytest.raises(LostTransactionError, match="no row of the micro-batch is visible"):
        query.committer.commit(prepared, 1)
    assert query.state_of(DRIVER_ID) in ("PrepareAbort", "CompleteAbort")
    query.committer.abort(prepared, 1)
    newest = query.newest()
    assert newest is not None and newest.micro_batch == 0
    query.run(1)
    assert query.visible() == query.expected([0, 1])


# The offset of the decision


def test_another_query_that_wrote_in_between_costs_nothing(query: Query) -> None:
    query.run(0)
    query.write_beside()
    assert query.cost_of(1)[0]["TxnOffsetCommit"] == 1
    newest = query.newest()
    assert newest is not None and newest.micro_batch == 1


def test_offset_without_a_response_is_sent_again(stack: ExitStack) -> None:
    query = opened(stack, request_timeout_ms="300")
    query.run(0)
    prepared, epoch = query.prepare(1), query.kafka.transaction(DRIVER_ID).producer_epoch
    with query.kafka.fault(api="TxnOffsetCommit", client_id="driver", action=Drop(), times=1) as fault:
        query.committer.commit(prepared, 1)
    assert fault.hits == 1
    newest = query.newest()
    assert newest is not None and newest.micro_batch == 1
    assert query.kafka.transaction(DRIVER_ID).producer_epoch == epoch + 1
    assert query.visible() == query.expected([0, 1])


# The sweep


def test_losing_attempt_is_ended_by_the_next_commit(query: Query) -> None:
    query.run(0)
    orphan = query.leave_open()
    query.run(1, has_other_attempts=True)
    assert query.state_of(orphan) == "CompleteAbort"
    # A slow sweep may still run.
    another = query.leave_open("slow")
    query.run(2)
    assert query.state_of(another) == "CompleteAbort"
    assert query.visible() == query.expected([0, 1, 2])


def test_unreported_orphans_are_swept_periodically(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(0)
    orphan = query.leave_open()
    query.run(1)
    assert query.state_of(orphan) == "Ongoing"
    monkeypatch.setattr(run_state, "_INTERVAL_SECONDS", 0.0)
    query.run(2)
    assert query.state_of(orphan) == "CompleteAbort"


def test_orphan_missing_from_a_timed_out_listing_is_ended_by_the_next_sweep(query: Query) -> None:
    query.run(0)
    orphan = query.leave_open()
    with query.kafka.fault(api="ListTransactions", client_id="driver", action=Drop(), times=1) as fault:
        query.run(1, has_other_attempts=True)
    assert (fault.hits, query.state_of(orphan)) == (1, "Ongoing")
    query.run(2)
    assert query.state_of(orphan) == "CompleteAbort"


def test_sweep_beside_its_own_decision_needs_no_response_of_other_brokers(query: Query) -> None:
    query.run(0)
    query.leave_open()
    before = Counter(query.seen())
    query.run(1, has_other_attempts=True)
    more = Counter(query.seen()) - before - Counter(table("The driver", 2))
    assert more == {"Metadata": 1, "ListTransactions": 1, "FindCoordinator": 1, "DescribeTransactions": 1, "EndTxn": 1}


def test_uninvolved_broker_receives_no_requests(stack: ExitStack) -> None:
    query = with_a_bystander(stack)
    with query.kafka.fault(broker=3, client_id="driver", action=Drop()) as silent:
        for micro_batch in (2, 3, 4):
            query.run(micro_batch)
        assert silent.matched == 0
    assert query.visible() == query.expected(range(5))


def test_unresponsive_broker_does_not_prevent_ending_orphans(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """The committer waits for that broker once, and hardly at all after that."""
    query = with_a_bystander(stack)
    orphans = []
    with query.kafka.fault(broker=3, client_id="driver", action=Drop()) as silent:
        for micro_batch in (2, 3, 4):
            orphans.append(query.leave_open(f"lost{micro_batch}"))
            query.run(micro_batch, has_other_attempts=True)
        assert silent.hits >= 1
    assert [query.state_of(each) for each in orphans] == ["CompleteAbort"] * 3
    assert caplog.text.count("brokers [3] did not list their transactions in time") == 1


def with_a_bystander(stack: ExitStack) -> Query:
    """Run two micro-batches on three brokers, of which the third no longer leads or coordinates anything."""
    query = opened(stack, brokers=3)
    query.run(0)
    for topic, count in (
        (OUT, query.partitions),
        (DECISIONS, 8),
        ("__transaction_state", 1),
        ("__consumer_offsets", 1),
    ):
        for number in range(count):
            query.kafka.move_leader((topic, number), 1 + number % 2)
    query.run(1)
    return query
