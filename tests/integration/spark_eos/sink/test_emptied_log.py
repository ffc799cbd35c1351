"""A partition that loses its records between the tasks' writes and the commit: nothing is decided."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core import EmbeddedBroker, Error
from spark_eos.errors import AuthorizationError, LostTransactionError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, TaskMessage
from tests.support.both_brokers import SETTINGS, brokers_of
from tests.support.restartable import Restartable, restartable
from tests.support.spark_eos.client_world import read_values

TOPIC = "emptied"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        metafunc.parametrize("broker", brokers_of(metafunc.config), indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    with restartable(request.param, tmp_path, SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(60)
        yield running


class Query:
    """One run of a query, whose tasks and driver are one process; a restarted broker may have another port."""

    def __init__(self, address: str, run: str = "run1") -> None:
        self.process, self.run = ProcessState(REAL), run
        self.options: SinkOptions = sink_options({"kafka.bootstrap.servers": address, "topic": TOPIC})
        preflight(self.process, self.options)

    def write(self, split: int, partition: int | None = None, micro_batch: int = 0) -> TaskMessage:
        number = split if partition is None else partition
        rows = pa.record_batch({"value": [f"row {split}"], "partition": pa.array([number], pa.int32())})
        place = Place("q", self.run, micro_batch, split)
        return task_writer(self.process, self.options, place, may_be_decided=True).write(iter([rows]))

    def commit(self, messages: list[TaskMessage], micro_batch: int = 0) -> None:
        committer(self.process, self.options, "q", self.run).commit(messages, micro_batch)

    def abort(self, messages: list[TaskMessage]) -> None:
        committer(self.process, self.options, "q", self.run).abort(messages, 0)


def test_micro_batch_whose_records_are_gone_is_written_again_as_a_whole(broker: Restartable) -> None:
    query = Query(broker.bootstrap_servers)
    messages = [query.write(split) for split in range(2)]
    broker.restart_without(TOPIC, 0)
    driver = Query(broker.bootstrap_servers)
    with pytest.raises(LostTransactionError, match=rf"{TOPIC}-0 .* 1 record .* offset 0 .* of task 0"):
        driver.commit(messages)
    driver.abort(messages)
    again = Query(broker.bootstrap_servers, "run2")
    again.commit([again.write(split) for split in range(2)])
    assert read_values(broker.bootstrap_servers, TOPIC) == [["row 0"], ["row 1"]]


def test_records_written_since_at_the_same_offset_are_not_taken_for_those_that_are_gone(broker: Restartable) -> None:
    messages = [Query(broker.bootstrap_servers).write(0)]
    broker.restart_without(TOPIC, 0)
    driver = Query(broker.bootstrap_servers)
    messages.append(driver.write(1, partition=0))
    with pytest.raises(LostTransactionError, match="of task 0"):
        driver.commit(messages)


def test_micro_batch_whose_broker_was_restarted_is_committed(broker: Restartable) -> None:
    query = Query(broker.bootstrap_servers)
    messages = [query.write(split) for split in range(2)]
    broker.restart()
    Query(broker.bootstrap_servers).commit(messages)
    assert read_values(broker.bootstrap_servers, TOPIC) == [["row 0"], ["row 1"]]


def test_leaders_elected_since_are_asked_once_and_others_never() -> None:
    with EmbeddedBroker(brokers=3, topics={TOPIC: 6}, config=SETTINGS, requests_kept=10_000) as kafka:
        for number in range(6):
            kafka.move_leader((TOPIC, number), 1 + number % 3)
        query = Query(kafka.bootstrap_servers)
        for micro_batch in range(2):
            messages = [query.write(split, micro_batch=micro_batch) for split in range(6)]
            for number in range(6 * micro_batch):
                kafka.move_leader((TOPIC, number), 1 + (number + 1) % 3)
            before = len(kafka.requests())
            query.commit(messages, micro_batch)
            asked = Counter(each.api for each in kafka.requests()[before:])
            assert asked["DescribeProducers"] == 3 * micro_batch
        assert read_values(kafka.bootstrap_servers, TOPIC) == [[f"row {split}"] * 2 for split in range(6)]


def test_decision_waits_for_a_partition_whose_leader_is_away() -> None:
    with EmbeddedBroker(topics={TOPIC: 1}) as kafka:
        query = Query(kafka.bootstrap_servers)
        messages = [query.write(0)]
        kafka.move_leader((TOPIC, 0), 1)
        with kafka.fault(api="DescribeProducers", action=Error("NOT_LEADER_OR_FOLLOWER"), times=3) as fault:
            query.commit(messages)
        assert fault.hits == 3
        assert read_values(kafka.bootstrap_servers, TOPIC) == [["row 0"]]


def test_principal_that_may_only_write_stops_after_an_election_and_goes_on_with_the_right() -> None:
    with EmbeddedBroker(brokers=3, topics={TOPIC: 1}) as kafka:
        kafka.move_leader((TOPIC, 0), 1)
        query = Query(kafka.bootstrap_servers)
        messages = [query.write(0)]
        kafka.move_leader((TOPIC, 0), 2)
        refusal = "(?s)DescribeProducers for emptied-0 was refused.*Grant the principal READ on the topic"
        with (
            kafka.fault(api="DescribeProducers", action=Error("TOPIC_AUTHORIZATION_FAILED")),
            pytest.raises(AuthorizationError, match=refusal),
        ):
            query.commit(messages)
        query.abort(messages)
        again = Query(kafka.bootstrap_servers, "run2")
        again.commit([again.write(0)])
        assert read_values(kafka.bootstrap_servers, TOPIC) == [["row 0"]]
