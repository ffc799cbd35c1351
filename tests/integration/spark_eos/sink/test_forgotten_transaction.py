"""Brokers lose what a coordinator knew: what tasks have written hangs, and the errors name the command that ends it."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from broker_core.coordinator.transactions.records import TransactionImage, encode_key, encode_value
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    TransactionState,
    coordinator_partition,
)
from spark_eos.admin.command import main
from spark_eos.admin.output import ExitCode
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import BrokerError, LostTransactionError, TransactionError, UnansweredError
from spark_eos.options.sink import sink_options
from spark_eos.runtime import REAL, Clock, ProcessState
from spark_eos.sink.commit_report import report_of
from spark_eos.sink.decision import Decision, write_decision
from spark_eos.sink.factory import task_writer
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import DECISION_TOPIC_PARTITIONS, decision_key, decision_partition, driver_id, group_id
from spark_eos.sink.protocol.answers import DecisionWrite
from tests.support.both_brokers import SETTINGS
from tests.support.clocks import AheadClock, runtime_by
from tests.support.protocols import REPAIRER
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.restartable import restartable
from tests.support.spark_eos.client_world import read_values
from tests.support.spark_eos.driving import end_all, log_of
from tests.support.spark_eos.sink_process import SinkProcess
from tests.support.spark_eos.sink_topic import open_transactions
from tests.support.spark_eos.source_data import add_partitions, create_topic
from tests.support.waiting import wait_until

TOPIC, TASKS = "orders", 2
COORDINATORS = 2
# Of half a kilobyte: what a task sends before it has all of them.
ROWS = 40
ANY_AGE = ("--max-transaction-timeout", "0")
WRITTEN = [[f"row {task}"] for task in range(TASKS)]


class LeapingClock(AheadClock):
    """Clocks that go far ahead with each pause, so that a wait of a minute takes a second."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.ahead_seconds += 50 * seconds


class Query(SinkProcess):
    """The first micro-batch of a query; the tasks and the driver of a run are one process."""

    def __init__(self, kafka: EmbeddedBroker) -> None:
        super().__init__(kafka.bootstrap_servers, TOPIC)
        self.kafka = kafka

    def commit(self, run: str, clock: Clock = REAL.clock, messages: list[Prepared] | None = None) -> None:
        """Start the query again, or only commit what its tasks have written."""
        self.process = ProcessState(runtime_by(clock))
        self.committer(run).commit(messages or self.tasks(run), 0)

    def tasks(self, run: str) -> list[Any]:
        return [self.task(run, number) for number in range(TASKS)]

    def forget(self, prepared: Prepared, value: bytes | None = None) -> None:
        """Replace what the coordinator's log has of a transaction's id, by default with nothing, and load it again."""
        self.forget_id(prepared.transaction.transactional_id, value)

    def forget_id(self, name: str, value: bytes | None = None) -> None:
        partition = coordinator_partition(name, COORDINATORS)
        batch = build_batch([NewRecord(encode_key(name), value, (), 0)])
        place = (TRANSACTION_STATE_TOPIC, partition)
        self.kafka.move_leader(place, 1)
        with RawClient(self.kafka.bootstrap_servers.split(",")[0], client_id=REPAIRER) as repairer:
            error, _ = RawSession(repairer, None).produce(
                TRANSACTION_STATE_TOPIC, batch, version=9, partition=partition
            )
        assert error == 0
        self.kafka.move_leader(place, 2)


@pytest.fixture
def query() -> Iterator[Query]:
    settings = {"transaction.state.log.num.partitions": str(COORDINATORS)}
    with EmbeddedBroker(brokers=2, topics={TOPIC: TASKS}, config=settings) as kafka:
        yield Query(kafka)


def run_advice(query: Query, text: str, what: str, *more: str) -> int:
    """Run the command that a text names, with more words."""
    [line] = re.findall(rf"(eos-kafka transactions --bootstrap-server \S+ {what} [^`\n]*)", text)
    return main([*shlex.split(line.replace("HOST:PORT", query.kafka.bootstrap_servers))[1:], *more])


@pytest.mark.parametrize("committed", [0, 1])
def test_forgotten_part_of_a_decided_micro_batch_is_committed(query: Query, committed: int) -> None:
    """The driver dies when it has ended so many transactions; another one is forgotten before the restart."""
    messages, driver = query.tasks("run1"), query.committer("run1")
    prepared = [each.transaction for each in messages]
    log = log_of(driver)
    decision = Decision(query.options.prefix, "q", "run1", 0, 1, TASKS, int(time.time() * 1000), tuple(prepared))
    log.decide(decision, log.take_over())
    end_all(driver.cluster, prepared[:committed], commit=True)
    query.forget(messages[-1])
    with pytest.raises(TransactionError, match="could not be ended or read yet") as caught:
        query.commit("run2", LeapingClock())
    assert run_advice(query, str(caught.value), "abort", "--yes") == ExitCode.DONE
    query.commit("run3")
    assert query.visible() == WRITTEN


def test_forgotten_part_of_an_undecided_micro_batch_is_found_and_aborted(
    query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    messages, driver = query.tasks("run1"), query.committer("run1")
    query.forget(messages[0])
    with pytest.raises(LostTransactionError, match="unknown to its coordinator") as caught:
        driver.commit(messages, 0)
    driver.abort(messages, 0)
    query.commit("run2")
    assert query.visible() == [[], WRITTEN[1]], "what hangs blocks readers"
    assert run_advice(query, str(caught.value), "find-hanging", *ANY_AGE) == ExitCode.HANGING_FOUND
    assert run_advice(query, capsys.readouterr().err, "abort", "--yes") == ExitCode.DONE
    assert query.visible() == WRITTEN


def test_coordinator_that_lost_the_newest_records_is_an_outage_or_a_loss(query: Query) -> None:
    """It answers with a state from before the transaction, as a broker does that is cut off."""
    messages = query.tasks("run1")
    producer = messages[0].transaction.producer
    earlier = TransactionImage(*producer, 60_000, TransactionState.EMPTY, frozenset(), 0)
    query.forget(messages[0], encode_value(earlier, 2))
    with pytest.raises(UnansweredError, match="If no broker was away, .* find-hanging --all-topics`"):
        query.commit("run1", LeapingClock(), messages)


@pytest.fixture
def old_query() -> Iterator[Query]:
    """Return a query of the old protocol."""
    settings = {"transaction.state.log.num.partitions": str(COORDINATORS)}
    with EmbeddedBroker(brokers=2, topics={TOPIC: TASKS}, config=settings, transaction_version=1) as kafka:
        yield Query(kafka)


def fall_back(query: Query, name: str, epochs: int) -> None:
    """Let the coordinator of an id forget its newest transactions."""
    with KafkaClient(query.options.client) as client:
        found = describe_transactions(client, [name])[name]
    epoch = found.producer_epoch - epochs
    image = TransactionImage(found.producer_id, epoch, 60_000, TransactionState.COMPLETE_COMMIT, frozenset(), 1, 1)
    query.forget_id(name, encode_value(image, 1))


@pytest.mark.parametrize("epochs", [1, 2])
def test_rows_of_an_epoch_that_comes_again_are_written(old_query: Query, epochs: int) -> None:
    """The leader has rows of this epoch, and acknowledges others under their numbers without writing them."""
    driver, report = old_query.committer(), None
    for micro_batch in range(4):
        message = old_query.write(micro_batch=micro_batch, row=f"row {micro_batch}", committed=report)
        driver.commit([message], micro_batch)
        report = report_of("run1", micro_batch, driver.committed, report)
        if micro_batch == 2:
            fall_back(old_query, message.transaction.transactional_id, epochs)
    assert old_query.visible()[0] == [f"row {micro_batch}" for micro_batch in range(4)]


@pytest.mark.parametrize("epochs", [1, 2])
def test_decision_of_an_epoch_that_comes_again_is_written(old_query: Query, epochs: int) -> None:
    """The driver dies after it; the next one finds what it has decided."""
    for micro_batch in range(3):
        old_query.committer().commit([old_query.write(micro_batch=micro_batch)], micro_batch)
    fall_back(old_query, driver_id(old_query.options.prefix, "q"), epochs)
    old_query.process = ProcessState(REAL)
    prepared = old_query.write("run2", micro_batch=3).transaction
    log = log_of(old_query.committer("run2"))
    driver, _ = log.take_over(), log.newest()
    log.decide(Decision(old_query.options.prefix, "q", "run2", 3, 1, 1, int(time.time() * 1000), (prepared,)), driver)
    old_query.process = ProcessState(REAL)
    old_query.committer("run3").commit([old_query.task("run3", 0, 3)], 3)
    assert old_query.visible()[0] == ["row 0"] * 4


def test_decision_is_not_taken_for_one_that_a_dead_driver_left_open(query: Query) -> None:
    """It would commit that one, with the next end, and the driver after it would write the rows again."""
    query.committer().commit([query.write()], 0)
    prefix, dead = query.options.prefix, query.committer()
    log, message = log_of(dead), query.write(micro_batch=1)
    decision = Decision(prefix, "q", "run1", 1, 1, 1, int(time.time() * 1000), (message.transaction,))
    write = DecisionWrite(
        log.take_over().transaction,
        TopicPartition(query.options.decision_topic, decision_partition("q", DECISION_TOPIC_PARTITIONS)),
        ((decision_key(prefix, "q", 0), write_decision(decision)[0]),),
        group_id(prefix, "q"),
        None,
        decision.decided_at_ms,
        1,
    )
    for step in (dead.cluster.start_decision, dead.cluster.append_decision):
        step(write)
    fall_back(query, driver_id(prefix, "q"), 1)
    for run in ("run2", "run3"):
        query.process = ProcessState(REAL)
        query.committer(run).commit([query.task(run, 0, 1)], 1)
    assert query.visible()[0] == ["row 0"] * 2


def test_task_whose_transaction_is_forgotten_while_it_writes_names_the_search(query: Query) -> None:
    """Spark runs it again, under another id, and what it has written is not ended by that."""
    place = Place("q", "run1", 0, 0)

    def rows(partition: int) -> pa.RecordBatch:
        return pa.record_batch({"value": ["x" * 500] * ROWS, "partition": pa.array([partition] * ROWS, pa.int32())})

    def forgotten_between_two() -> Iterator[pa.RecordBatch]:
        yield rows(0)
        (name,) = wait_until(lambda: open_transactions(query.kafka.bootstrap_servers.split(",")[0], "eos-kafka."), "it")
        query.forget_id(name)
        yield rows(1)

    kafka = {"kafka.bootstrap.servers": query.kafka.bootstrap_servers, "topic": TOPIC}
    options = sink_options({**kafka, "kafka.max.request.size": "2000", "batch.size": "200", "buffer.memory": "65536"})
    with pytest.raises(BrokerError, match="does not know this producer.*`eos-kafka .* find-hanging --all-topics`"):
        task_writer(query.process, options, place, may_be_decided=True).write(forgotten_between_two())


def test_partitions_added_to_internal_topics_hide_what_is_open_and_repeat_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Apache Kafka allows it; after its next start, it looks for most ids and groups in other partitions."""
    if not request.config.getoption("--apache"):
        pytest.skip("broker_core refuses it: run with --apache")
    tasks = 8
    with restartable("apache", tmp_path, SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, name=TOPIC)
        before = SinkProcess(broker.bootstrap_servers, TOPIC)
        before.committer().commit([before.write(row="first")], 0)
        prepared = [before.write(split=split, micro_batch=1, partition=0) for split in range(tasks)]
        for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            add_partitions(broker.bootstrap_servers, name, 9)
        broker.restart()
        driver = SinkProcess(broker.bootstrap_servers, TOPIC).committer()
        with pytest.raises(LostTransactionError, match="unknown to its coordinator.*find-hanging --topic orders"):
            driver.commit(prepared, 1)
        driver.abort(prepared, 1)
        for run in ("run2", "run3"):
            again = SinkProcess(broker.bootstrap_servers, TOPIC)
            written = [again.task(run, split, 1, partition=0) for split in range(tasks)]
            again.committer(run).commit(written, 1)
        assert read_values(broker.bootstrap_servers, TOPIC) == [["first"]], "what hangs blocks readers"
        find = ("transactions", "--bootstrap-server", broker.bootstrap_servers, "find-hanging", "--topic", TOPIC)
        assert main([*find, *ANY_AGE]) == ExitCode.HANGING_FOUND
        for line in re.findall(r"to end it: eos-kafka (.*)", capsys.readouterr().err):
            assert main([*shlex.split(line), "--yes"]) == ExitCode.DONE
        [values] = read_values(broker.bootstrap_servers, TOPIC)
        assert sorted(values) == ["first", *(f"row {split}" for split in range(tasks))]
