"""An output topic that is deleted and created again while a micro-batch is written: no row is lost in silence."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from spark_eos.errors import LostTransactionError, TopicError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, TaskMessage
from tests.support.spark_eos.client_world import read_values

PARTITIONS = 2


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": PARTITIONS, "decisions": 2}) as broker:
        yield broker


@pytest.fixture
def process() -> ProcessState:
    return ProcessState(REAL)


@pytest.fixture
def options(kafka: EmbeddedBroker) -> SinkOptions:
    address = kafka.bootstrap_servers
    return sink_options({"kafka.bootstrap.servers": address, "topic": "t", "decisionTopic": "decisions"})


def write(process: ProcessState, options: SinkOptions, run: str, split: int) -> TaskMessage:
    rows = pa.record_batch({"value": [f"row {split}"], "partition": pa.array([split], pa.int32())})
    return task_writer(process, options, Place("q", run, 0, split), may_be_decided=True).write(iter([rows]))


def make_again(kafka: EmbeddedBroker, partitions: int = PARTITIONS) -> None:
    kafka.delete_topic("t")
    kafka.create_topic("t", partitions)


@pytest.mark.parametrize("moment", ["between the tasks", "before the commit"])
def test_micro_batch_of_a_replaced_topic_is_written_again_as_a_whole(
    kafka: EmbeddedBroker, process: ProcessState, options: SinkOptions, moment: str
) -> None:
    messages = [write(process, options, "run1", 0)]
    if moment == "between the tasks":
        make_again(kafka)
    messages.append(write(process, options, "run1", 1))
    if moment == "before the commit":
        make_again(kafka)
    first = committer(process, options, "q", "run1", may_be_decided=True)
    with pytest.raises(LostTransactionError, match=r"topic 't' was deleted and created again .* up to 2 records"):
        first.commit(messages, 0)
    first.abort(messages, 0)
    again = [write(process, options, "run2", split) for split in range(2)]
    committer(process, options, "q", "run2", may_be_decided=True).commit(again, 0)
    assert read_values(kafka.bootstrap_servers, "t") == [["row 0"], ["row 1"]]


def test_micro_batch_of_a_deleted_topic_is_not_decided(
    kafka: EmbeddedBroker, process: ProcessState, options: SinkOptions
) -> None:
    messages = [write(process, options, "run1", 0)]
    kafka.delete_topic("t")
    with pytest.raises(TopicError, match="Topic 't' does not exist"):
        committer(process, options, "q", "run1", may_be_decided=True).commit(messages, 0)
    kafka.create_topic("t", PARTITIONS)
    committer(process, options, "q", "run2", may_be_decided=True).commit([write(process, options, "run2", 0)], 0)
    assert read_values(kafka.bootstrap_servers, "t") == [["row 0"], []]


def test_task_whose_partition_went_with_the_topic_fails_at_once(
    kafka: EmbeddedBroker, process: ProcessState, options: SinkOptions
) -> None:
    """The worker knows the topic from the micro-batch before; a leader was waited for until the delivery timeout."""
    write(process, options, "run1", 1)
    make_again(kafka, 1)
    with pytest.raises(ValueError, match="the value 1 for topic 't', which has 1 partition"):
        write(process, options, "run2", 1)


@pytest.mark.parametrize("version", [1, 2])
def test_topic_made_again_between_micro_batches_is_no_reason_to_stop(version: int) -> None:
    """The worker has known the topic for minutes; under transactions V1 a request does not name the topic's id."""
    driver, worker = ProcessState(REAL), ProcessState(REAL)
    with EmbeddedBroker(topics={"t": PARTITIONS}, transaction_version=version) as kafka:
        options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t"})
        for micro_batch in (0, 1):
            planned = preflight(driver, options)
            rows = pa.record_batch({"value": [f"row {micro_batch}"], "partition": pa.array([0], pa.int32())})
            place = Place("q", "run1", micro_batch, 0)
            message = task_writer(worker, planned, place, may_be_decided=True).write(iter([rows]))
            committer(driver, planned, "q", "run1", may_be_decided=True).commit([message], micro_batch)
            if micro_batch == 0:
                make_again(kafka)
        assert read_values(kafka.bootstrap_servers, "t") == [["row 1"], []]
