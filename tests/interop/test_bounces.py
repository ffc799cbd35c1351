"""Brokers are killed and stopped during copies and calls: with each client."""

from collections.abc import Callable

from tests.interop.copying import SHORT_SESSION_MS, hard_or_clean, make_job, with_or_without_metadata
from tests.interop.driver import Client, ClientError
from tests.interop.judge import TIMED_OUT, end, is_refused, make_topic
from tests.support.clients import unique
from tests.support.interop_brokers import Bouncing
from tests.support.waiting import wait_until

BLOCK_MS = 2_500
# librdkafka's error for a closed connection, if it does not wait for another.
CUT_OFF = frozenset({"_TRANSPORT"})
# Apache Kafka's error shortly after a restart, which librdkafka passes on.
NOT_YET = frozenset({"NOT_COORDINATOR"})


@with_or_without_metadata
@hard_or_clean
def test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order(
    bouncing_kafka: Bouncing, client: Client, hard: bool, sends: str
):
    bouncing_kafka.start()
    job = make_job(bouncing_kafka, metadata=sends == "group metadata", session_ms=SHORT_SESSION_MS)
    client.start_copying(job.task, abort_every=4)
    job.check_progress("before")
    bouncing_kafka.stop(hard=hard)
    bouncing_kafka.start()
    job.check_progress("after")
    # The last records are written after the restart, so the copy must continue.
    job.feed_last()
    client.finish_copying()
    job.assert_copied_once()


def test_calls_time_out_while_the_broker_is_down_and_can_be_resumed(bouncing_kafka: Bouncing, client: Client):
    bouncing_kafka.start()
    topic, group = make_topic(bouncing_kafka), unique("group")
    # The first producer of a client that was just started is slow.
    client.producer(unique("warm"))
    producer = client.producer(unique("id"), block_ms=BLOCK_MS)
    producer.begin().send(topic, "aborted")
    times_out_and_succeeds(bouncing_kafka, producer.abort)
    producer.begin().send(topic, "committed")
    for act in (lambda: producer.offsets(group, topic, 7), producer.commit):
        times_out_and_succeeds(bouncing_kafka, act)
    end(bouncing_kafka, topic)
    assert client.values(topic) == ["committed"]
    assert client.committed(group, topic) == (7, "")


def test_init_times_out_while_the_broker_is_down_and_can_be_resumed(bouncing_kafka: Bouncing, client: Client):
    bouncing_kafka.start()
    topic, transactional_id = make_topic(bouncing_kafka), unique("id")
    client.producer(transactional_id).begin().send(topic, "of the predecessor")
    producer = client.new_producer(transactional_id, block_ms=BLOCK_MS)
    times_out_and_succeeds(bouncing_kafka, producer.init)
    producer.begin().send(topic, "committed")
    producer.commit()
    end(bouncing_kafka, topic)
    assert client.values(topic) == ["committed"]


def times_out_and_succeeds(kafka: Bouncing, act: Callable[[], object]) -> None:
    """Make a call while the broker is down, and repeat it until it succeeds."""

    def is_done() -> bool:
        try:
            act()
        except ClientError as failure:
            assert failure.name in TIMED_OUT | CUT_OFF | NOT_YET, failure
            return False
        return True

    kafka.stop()
    is_refused(act, TIMED_OUT | CUT_OFF)
    kafka.start()
    wait_until(is_done, "the call succeeds when it is made again")
