"""Consume, transform, produce, while brokers come and go: §4.1 of the scenarios with each client."""

from collections import Counter

import pytest
from confluent_kafka import KafkaException

from tests.conformance.clients import READ_COMMITTED, READ_UNCOMMITTED, unique, values_to_end
from tests.interop.adapters.serving import OUT
from tests.interop.brokers import Bouncing, Running
from tests.interop.driver import Client, ClientError
from tests.interop.judge import Broker, end, end_offset, make_topic, write
from tests.support.waiting import wait_until

PARTITIONS = 2
RECORDS = 60
BOUNCES = 2
BLOCK_MS = 2_500


def make_source(kafka: Broker, records: int) -> tuple[str, list[str]]:
    """Make a topic to copy from, and say what has to be in the copy."""
    source = make_topic(kafka, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        write(kafka, source, *(f"{partition}-{number}" for number in range(records)), partition=partition)
    return source, [f"{OUT}{partition}-{number}" for partition in range(PARTITIONS) for number in range(records)]


def assert_copied_once(kafka: Broker, target: str, wanted: list[str]) -> None:
    """Compare what a committed reader of the copy sees with what was to be copied."""
    for partition in range(PARTITIONS):
        # The last markers may be written after the copy has ended.
        wait_until(lambda at=partition: end_offset(kafka, target, isolation=READ_COMMITTED, partition=at)
                   == end_offset(kafka, target, isolation=READ_UNCOMMITTED, partition=at), "no transaction is open")
    found = Counter(value.decode() for value in values_to_end(kafka, target, partitions=PARTITIONS))
    assert {value: found[value] for value in found.keys() | set(wanted) if found[value] != 1} == {}
    assert len(found) == len(wanted)


def test_every_third_copy_is_aborted_and_every_input_is_in_the_output_once(kafka: Running, client: Client):
    source, wanted = make_source(kafka, RECORDS)
    target = make_topic(kafka, partitions=PARTITIONS)
    end(kafka, source, PARTITIONS)
    client.start_copying(unique("group"), source, target, partitions=PARTITIONS, abort_every=3)
    counts = client.finish_copying()
    assert counts["aborts"] >= 3
    assert_copied_once(kafka, target, wanted)


def test_the_broker_is_bounced_during_a_copy_and_every_input_is_in_the_output_once(
    bouncing_kafka: Bouncing, client: Client
):
    bouncing_kafka.start()
    source, wanted = make_source(bouncing_kafka, RECORDS)
    target = make_topic(bouncing_kafka, partitions=PARTITIONS)

    def copied() -> int:
        try:
            return sum(end_offset(bouncing_kafka, target, isolation=READ_COMMITTED, partition=each)
                       for each in range(PARTITIONS))
        except KafkaException:
            # A broker that has just come up may not lead yet.
            return -1

    client.start_copying(unique("group"), source, target, partitions=PARTITIONS, abort_every=4)
    # The ends come after the last bounce, so that the copy has to go on behind it.
    for bounce in range(BOUNCES):
        before = wait_until(lambda: copied() + 1, "the broker leads") - 1
        write(bouncing_kafka, source, f"bounce {bounce}")
        wanted.append(f"{OUT}bounce {bounce}")
        wait_until(lambda before=before: copied() > before, "the copy goes on")
        bouncing_kafka.stop()
        bouncing_kafka.start()
    end(bouncing_kafka, source, PARTITIONS)
    client.finish_copying()
    assert_copied_once(bouncing_kafka, target, wanted)


def test_calls_time_out_while_the_broker_is_down_and_are_taken_up_again(bouncing_kafka: Bouncing, client: Client):
    bouncing_kafka.start()
    topic = make_topic(bouncing_kafka)
    # A client that has only just been started takes its time over the first producer.
    client.producer(unique("warm"))
    producer = client.producer(unique("id"), block_ms=BLOCK_MS)
    producer.begin().send(topic, "aborted")
    for end_transaction in (producer.abort, producer.commit):
        bouncing_kafka.stop()
        with pytest.raises(ClientError, match="(?i)time"):
            end_transaction()
        bouncing_kafka.start()

        def is_done(act=end_transaction) -> bool:
            try:
                act()
            except ClientError as failure:
                assert "time" in str(failure).lower(), failure
                return False
            return True

        wait_until(is_done, "the call succeeds when it is made again")
        if end_transaction == producer.abort:
            producer.begin().send(topic, "committed")
    end(bouncing_kafka, topic)
    assert client.values(topic) == ["committed"]
