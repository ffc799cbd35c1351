"""Markers that brokers lose (KAFKA-20734): the sink ends nothing without a leader, and leaves such an id behind."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

import broker_core.broker.marker_writer
from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.detached_process import end_unprepared
from spark_eos.sink.factory import cluster_of
from spark_eos.sink.messages import Prepared
from spark_eos.sink.task.transaction import TaskTransaction
from tests.support.clients import READ_COMMITTED, end_offset
from tests.support.clocks import AheadClock, StandingClock, runtime_by
from tests.support.interop_brokers import at_version
from tests.support.spark_eos.client_world import encoded
from tests.support.spark_eos.sink_process import SinkProcess
from tests.support.waiting import wait_until

TOPIC = "orders"


class Markers:
    """The markers that brokers write; while `are_lost`, the topic gets none and the coordinator does not notice."""

    are_lost = True

    def __init__(self) -> None:
        self._append = broker_core.broker.marker_writer.append_marker

    def append(self, broker: object, topic_partition: TopicPartition, *arguments: object, **named: object) -> ErrorCode:
        if self.are_lost and topic_partition.topic == TOPIC:
            return ErrorCode.NONE
        return self._append(broker, topic_partition, *arguments, **named)  # type: ignore[arg-type]


@pytest.fixture
def markers() -> Iterator[Markers]:
    found = Markers()
    with patch.object(broker_core.broker.marker_writer, "append_marker", found.append):
        yield found


@pytest.mark.parametrize("version", [1, 2])
def test_abort_after_a_lost_marker_and_an_election_leaves_what_was_committed_open(
    markers: Markers, version: int
) -> None:
    with EmbeddedBroker(brokers=2, topics={TOPIC: 1}) as kafka, at_version(kafka, version):
        kafka.move_leader((TOPIC, 0), 1)
        query = SinkProcess(kafka.bootstrap_servers, TOPIC)
        driver, committed = query.committer(), query.write()
        driver.commit([committed], 0)
        name = committed.transaction.transactional_id
        wait_until(lambda: kafka.transaction(name).state == "CompleteCommit", "the coordinator has ended it")
        kafka.move_leader((TOPIC, 0), 2)
        markers.are_lost = False
        aborted = query.write(micro_batch=1)
        driver.abort([aborted], 1)
        name = aborted.transaction.transactional_id
        wait_until(lambda: kafka.transaction(name).state == "CompleteAbort", "it is aborted")
        assert end_offset(kafka, TOPIC, isolation=READ_COMMITTED) == 0, "an operator can still commit what hangs"
        producers = [kafka.transaction(each.transaction.transactional_id).producer_id for each in (committed, aborted)]
        assert producers[0] != producers[1]


class Application(SinkProcess):
    """A driver and a worker, with a clock that a test sets: what a broker has said a second ago may be outdated."""

    def __init__(self, kafka: EmbeddedBroker) -> None:
        self.kafka, self.clock = kafka, AheadClock()
        super().__init__(kafka.bootstrap_servers, TOPIC, runtime=runtime_by(self.clock))

    def abort(self, *messages: Prepared) -> None:
        self.clock.ahead_seconds += 2
        self.committer().abort(messages, 0)

    def state(self, transaction: OpenTransaction) -> str:
        return self.kafka.transaction(transaction.transactional_id).state


@pytest.fixture
def application() -> Iterator[Application]:
    with EmbeddedBroker(topics={TOPIC: 1}) as kafka:
        yield Application(kafka)


def test_driver_aborts_when_the_leader_is_back(application: Application) -> None:
    prepared = application.write()
    with application.kafka.without_leader((TOPIC, 0)):
        application.abort(prepared)
        assert application.state(prepared.transaction.opened) == "Ongoing"
    application.abort(prepared)
    assert application.state(prepared.transaction.opened) == "CompleteAbort"


def test_failed_task_leaves_its_abort_to_the_driver(application: Application) -> None:
    cluster = cluster_of(application.process, application.options)
    transaction = TaskTransaction(cluster.client, application.options)
    opened = cluster.init_producer_id("eos-kafka.q.run1.w.0", 60_000)
    transaction.begin(opened)
    transaction.send(TopicPartition(TOPIC, 0), encoded(["row"]))
    transaction.flush()
    application.clock.ahead_seconds += 2
    with application.kafka.without_leader((TOPIC, 0)):
        assert transaction.abort() is None
        assert application.state(opened) == "Ongoing"
    application.abort()
    assert application.state(opened) == "CompleteAbort"


def test_topic_that_is_gone_does_not_hide_that_another_has_no_leader(application: Application) -> None:
    kafka = application.kafka
    kafka.create_topic("gone", 1)
    cluster = cluster_of(application.process, application.options)
    transaction = TaskTransaction(cluster.client, application.options)
    opened = cluster.init_producer_id("eos-kafka.q.run1.w.0", 60_000)
    transaction.begin(opened)
    for topic in ("gone", TOPIC):
        transaction.send(TopicPartition(topic, 0), encoded(["row"]))
    transaction.flush()
    kafka.delete_topic("gone")
    with kafka.without_leader((TOPIC, 0)):
        application.abort()
        assert application.state(opened) == "Ongoing"
    application.abort()
    assert application.state(opened) == "CompleteAbort"


def test_watchdog_of_a_killed_worker_waits_for_the_leader(application: Application) -> None:
    opened = application.write().transaction.opened
    outage = application.kafka.without_leader((TOPIC, 0))
    looks: list[float] = []

    class Clock(StandingClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            looks.append(seconds)
            if len(looks) == 4:
                assert application.state(opened) == "Ongoing"
                outage.end()

    end_unprepared(application.options.client, opened, [0.0], runtime_by(Clock()))
    assert application.state(opened) == "CompleteAbort"
