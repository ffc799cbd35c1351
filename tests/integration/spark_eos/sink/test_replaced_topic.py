"""An output topic that is deleted and created again while a micro-batch is written: no row is lost in silence."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core import EmbeddedBroker
from spark_eos.errors import LostTransactionError, TopicError
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.protocol.retirement import Retirement
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.sink_process import SinkProcess
from tests.support.waiting import wait_until

PARTITIONS = 2
JOB = {"retirement": Retirement.MARK}


class Query(SinkProcess):
    """One micro-batch of a query, whose output topic the tests make."""

    def __init__(self, address: str) -> None:
        self.admin, self.topic = AdminClient({"bootstrap.servers": address}), unique("topic")
        self.create(PARTITIONS)
        super().__init__(address, self.topic, unique("query"))

    def create(self, partitions: int) -> None:
        self.admin.create_topics([NewTopic(self.topic, partitions)])[self.topic].result(60)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(60)

    def make_again(self, partitions: int = PARTITIONS) -> None:
        self.delete()
        self.create(partitions)


@pytest.fixture
def query(kafka_address: str) -> Query:
    return Query(kafka_address)


@pytest.mark.parametrize("moment", ["between the tasks", "before the commit"])
def test_micro_batch_of_a_replaced_topic_is_written_again_as_a_whole(query: Query, moment: str) -> None:
    messages = [query.task("run1", 0)]
    if moment == "between the tasks":
        query.make_again()
    messages.append(query.task("run1", 1))
    if moment == "before the commit":
        query.make_again()
    first = query.committer("run1")
    with pytest.raises(LostTransactionError, match=r"topic .* was deleted and created again .* up to 2 records"):
        first.commit(messages, 0)
    first.abort(messages, 0)
    query.committer("run2").commit([query.task("run2", split) for split in range(2)], 0)
    wait_until(lambda: query.visible() == [["row 0"], ["row 1"]], "all rows are visible once")


@pytest.mark.parametrize("rows_since", [0, 2])
def test_job_whose_rows_went_with_its_topic_is_not_taken_for_written(query: Query, rows_since: int) -> None:
    """A user deletes the topic, creates it again, and repeats the job to fill it."""
    query.committer("run1", **JOB).commit([query.task("run1", 0)], 0)
    query.committer("run2", **JOB).commit([query.task("run2", 0)], 0)
    assert query.visible() == [["row 0"], []]
    query.make_again()
    name = query.query
    for number in range(rows_since):
        query.query = unique("query")
        query.committer(f"other{number}").commit([query.task(f"other{number}", 0)], 0)
    query.query = name
    words = r"(?s)deleted and created again, and 1 record of .* went with it.*A copy of another cluster .* the rows"
    with pytest.raises(LostTransactionError, match=words):
        query.committer("run3", **JOB).commit([query.task("run3", 0)], 0)


def test_micro_batch_whose_rows_went_with_its_topic_is_named(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    query.committer("run1").commit([query.task("run1", 0)], 0)
    query.make_again()
    query.committer("run2").commit([query.task("run2", 0)], 0)
    assert f"topic '{query.topic}' was deleted and created again, and 1 record" in caplog.text


def test_micro_batch_whose_topic_is_gone_stays_written(query: Query) -> None:
    """A query that names topics in a column goes on without one that was deleted after it was written to."""
    query.committer("run1").commit([query.task("run1", 0)], 0)
    message = query.task("run2", 0)
    query.delete()
    query.committer("run2").commit([message], 0)


def test_job_whose_topic_is_gone_stops_and_is_named(query: Query) -> None:
    query.committer("run1", **JOB).commit([query.task("run1", 0)], 0)
    message = query.task("run2", 0)
    query.delete()
    with pytest.raises(LostTransactionError, match=r"The job with jobId=.* a topic with its rows is gone: .*not exist"):
        query.committer("run2", **JOB).commit([message], 0)


def test_micro_batch_of_a_deleted_topic_is_not_decided(query: Query) -> None:
    messages = [query.task("run1", 0)]
    query.delete()
    with pytest.raises(TopicError, match="does not exist"):
        query.committer("run1").commit(messages, 0)
    query.create(PARTITIONS)
    query.committer("run2").commit([query.task("run2", 0)], 0)
    wait_until(lambda: query.visible() == [["row 0"], []], "the row is visible once")


def test_task_whose_partition_went_with_the_topic_fails_at_once(query: Query) -> None:
    """The worker knows the topic from the micro-batch before; a leader was waited for until the delivery timeout."""
    query.task("run1", 1)
    query.make_again(1)
    with pytest.raises(ValueError, match=r"the value 1 for topic .*, which has 1 partition\."):
        query.task("run2", 1)


@pytest.mark.parametrize("version", [1, 2])
def test_task_whose_topic_is_gone_fails_at_once(version: int) -> None:
    """The worker knows the topic from the micro-batch before; it was retried until the delivery timeout, unnamed."""
    with EmbeddedBroker(topics={"t": 1}, transaction_version=version) as kafka:
        patience = {"kafka.request.timeout.ms": "5000", "kafka.delivery.timeout.ms": "20000"}
        query = SinkProcess(kafka.bootstrap_servers, "t", **patience)
        query.options = query.plan()
        query.committer().commit([query.write()], 0)
        kafka.delete_topic("t")
        with pytest.raises(TopicError, match="Topic 't' does not exist.*UNKNOWN_TOPIC_OR_PARTITION"):
            query.write(micro_batch=1)


@pytest.mark.parametrize("version", [1, 2])
def test_topic_made_again_between_micro_batches_is_no_reason_to_stop(version: int) -> None:
    """The worker has known the topic for minutes; under transactions V1 a request does not name the topic's id."""
    with EmbeddedBroker(topics={"t": PARTITIONS}, transaction_version=version) as kafka:
        worker, driver = (SinkProcess(kafka.bootstrap_servers, "t") for _ in range(2))
        worker.process = ProcessState(REAL)
        for micro_batch in (0, 1):
            message = worker.write(micro_batch=micro_batch, row=f"row {micro_batch}", options=driver.plan())
            driver.committer().commit([message], micro_batch)
            if micro_batch == 0:
                kafka.delete_topic("t")
                kafka.create_topic("t", PARTITIONS)
        assert driver.visible() == [["row 1"], []]
