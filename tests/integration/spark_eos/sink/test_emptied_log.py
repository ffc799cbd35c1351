"""A partition that loses its records between the tasks' writes and the commit: nothing is decided."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker, Error
from spark_eos.errors import AuthorizationError, LostTransactionError
from tests.support.both_brokers import SETTINGS, brokers_of
from tests.support.restartable import Restartable, restartable
from tests.support.spark_eos.client_world import read_values
from tests.support.spark_eos.sink_process import SinkProcess
from tests.support.spark_eos.source_data import create_topic
from tests.support.waiting import wait_until

TOPIC = "emptied"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        metafunc.parametrize("broker", brokers_of(metafunc.config), indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    with restartable(request.param, tmp_path, SETTINGS) as running:
        create_topic(running.bootstrap_servers, 2, name=TOPIC)
        yield running


def test_micro_batch_whose_records_are_gone_is_written_again_as_a_whole(broker: Restartable) -> None:
    query = SinkProcess(broker.bootstrap_servers, TOPIC)
    messages = [query.write(split=split) for split in range(2)]
    broker.restart_without(TOPIC, 0)
    driver = SinkProcess(broker.bootstrap_servers, TOPIC)
    with pytest.raises(LostTransactionError, match=rf"{TOPIC}-0 .* 1 record .* offset 0 .* of task 0"):
        driver.committer().commit(messages, 0)
    driver.committer().abort(messages, 0)
    again = SinkProcess(broker.bootstrap_servers, TOPIC)
    again.committer("run2").commit([again.write("run2", split) for split in range(2)], 0)
    wait_until(lambda: read_values(broker.bootstrap_servers, TOPIC) == [["row 0"], ["row 1"]], "all is visible")


def test_records_written_since_at_the_same_offset_are_not_taken_for_those_that_are_gone(broker: Restartable) -> None:
    messages = [SinkProcess(broker.bootstrap_servers, TOPIC).write()]
    broker.restart_without(TOPIC, 0)
    driver = SinkProcess(broker.bootstrap_servers, TOPIC)
    messages.append(driver.write(split=1, partition=0))
    with pytest.raises(LostTransactionError, match="of task 0"):
        driver.committer().commit(messages, 0)


def test_micro_batch_whose_broker_was_restarted_is_committed(broker: Restartable) -> None:
    query = SinkProcess(broker.bootstrap_servers, TOPIC)
    messages = [query.write(split=split) for split in range(2)]
    broker.restart()
    SinkProcess(broker.bootstrap_servers, TOPIC).committer().commit(messages, 0)
    wait_until(lambda: read_values(broker.bootstrap_servers, TOPIC) == [["row 0"], ["row 1"]], "all is visible")


def test_leaders_elected_since_are_asked_once_and_others_never() -> None:
    with EmbeddedBroker(brokers=3, topics={TOPIC: 6}, config=SETTINGS, requests_kept=10_000) as kafka:
        for number in range(6):
            kafka.move_leader((TOPIC, number), 1 + number % 3)
        query = SinkProcess(kafka.bootstrap_servers, TOPIC)
        for micro_batch in range(2):
            messages = [query.write(split=split, micro_batch=micro_batch) for split in range(6)]
            for number in range(6 * micro_batch):
                kafka.move_leader((TOPIC, number), 1 + (number + 1) % 3)
            before = len(kafka.requests())
            query.committer().commit(messages, micro_batch)
            asked = Counter(each.api for each in kafka.requests()[before:])
            assert asked["DescribeProducers"] == 3 * micro_batch
        assert read_values(kafka.bootstrap_servers, TOPIC) == [[f"row {split}"] * 2 for split in range(6)]


def test_decision_waits_for_a_partition_whose_leader_is_away() -> None:
    with EmbeddedBroker(topics={TOPIC: 1}) as kafka:
        query = SinkProcess(kafka.bootstrap_servers, TOPIC)
        messages = [query.write()]
        kafka.move_leader((TOPIC, 0), 1)
        with kafka.fault(api="DescribeProducers", action=Error("NOT_LEADER_OR_FOLLOWER"), times=3) as fault:
            query.committer().commit(messages, 0)
        assert fault.hits == 3
        assert read_values(kafka.bootstrap_servers, TOPIC) == [["row 0"]]


def test_principal_that_may_only_write_stops_after_an_election_and_goes_on_with_the_right() -> None:
    with EmbeddedBroker(brokers=3, topics={TOPIC: 1}) as kafka:
        kafka.move_leader((TOPIC, 0), 1)
        query = SinkProcess(kafka.bootstrap_servers, TOPIC)
        messages = [query.write()]
        kafka.move_leader((TOPIC, 0), 2)
        refusal = "(?s)DescribeProducers for emptied-0 was refused.*Grant the principal READ on the topic"
        with (
            kafka.fault(api="DescribeProducers", action=Error("TOPIC_AUTHORIZATION_FAILED")),
            pytest.raises(AuthorizationError, match=refusal),
        ):
            query.committer().commit(messages, 0)
        query.committer().abort(messages, 0)
        again = SinkProcess(kafka.bootstrap_servers, TOPIC)
        again.committer("run2").commit([again.write("run2")], 0)
        assert read_values(kafka.bootstrap_servers, TOPIC) == [["row 0"]]
