"""A marker of a committed transaction that is lost (KAFKA-20734): no later transaction ends it another way."""

from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
import pytest

import broker_core.broker.marker_writer
from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.options.sink import sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, Prepared
from tests.support.clients import READ_COMMITTED, end_offset
from tests.support.interop_brokers import at_version
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
        process, options = (
            ProcessState(REAL),
            sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC}),
        )
        preflight(process, options)

        def write(micro_batch: int) -> Prepared:
            rows = pa.record_batch({"value": [f"of {micro_batch}"]})
            place = Place("q", "run1", micro_batch, 0)
            message = task_writer(process, options, place, may_be_decided=True).write(iter([rows]))
            assert isinstance(message, Prepared)
            return message

        driver = committer(process, options, "q", "run1")
        committed = write(0)
        driver.commit([committed], 0)
        name = committed.transaction.transactional_id
        wait_until(lambda: kafka.transaction(name).state == "CompleteCommit", "the coordinator has ended it")
        kafka.move_leader((TOPIC, 0), 2)
        markers.are_lost = False
        aborted = write(1)
        driver.abort([aborted], 1)
        name = aborted.transaction.transactional_id
        wait_until(lambda: kafka.transaction(name).state == "CompleteAbort", "it is aborted")
        assert end_offset(kafka, TOPIC, isolation=READ_COMMITTED) == 0, "an operator can still commit what hangs"
        producers = [kafka.transaction(each.transaction.transactional_id).producer_id for each in (committed, aborted)]
        assert producers[0] != producers[1]
