"""Transactions seen by clients: what each isolation level reads, what blocks it, and fencing."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import OffsetSpec

from tests.support.clients import (
    DEADLINE_S,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Kafka,
    end_offset,
    find_offset,
    make_consumer,
    make_producer,
    make_topic,
    make_transactional_producer,
    read_to_end,
    send,
    unique,
    values_soon,
    values_to_end,
    wait_for_end_offset,
)
from tests.support.waiting import wait_until

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def run_transaction(producer: Producer, topic: str, values: list[bytes], *, commit: bool, partition: int = 0) -> None:
    """Send the values in one transaction and end it."""
    producer.begin_transaction()
    send(producer, topic, values, partition=partition)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


def test_committed_transaction_is_read_at_both_isolation_levels(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    run_transaction(producer, topic, [b"a", b"b"], commit=True)
    values_soon(kafka, topic, [b"a", b"b"])
    assert values_to_end(kafka, topic, isolation=READ_UNCOMMITTED) == [b"a", b"b"]


def test_aborted_transaction_is_read_uncommitted_only(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    run_transaction(producer, topic, [b"a", b"b"], commit=False)
    wait_for_end_offset(kafka, topic, 3)
    assert values_to_end(kafka, topic) == []
    assert values_to_end(kafka, topic, isolation=READ_UNCOMMITTED) == [b"a", b"b"]


def test_one_producer_alternates_commit_and_abort(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    for number in range(10):
        run_transaction(producer, topic, [b"%d" % number], commit=number % 2 == 0)
    values_soon(kafka, topic, [b"0", b"2", b"4", b"6", b"8"])
    uncommitted = values_to_end(kafka, topic, isolation=READ_UNCOMMITTED)
    assert uncommitted == [b"%d" % number for number in range(10)]


# Rule D.2/6.
def test_each_marker_takes_one_offset(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    run_transaction(producer, topic, [b"a", b"b"], commit=True)
    run_transaction(producer, topic, [b"x"], commit=False)
    run_transaction(producer, topic, [b"c"], commit=True)
    values_soon(kafka, topic, [b"a", b"b", b"c"])
    assert [message.offset() for message in read_to_end(kafka, topic)] == [0, 1, 5]
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 7


def test_a_transaction_spans_partitions_and_topics(kafka: Kafka):
    one, other = make_topic(kafka, partitions=3), make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(one, b"%d" % partition, partition=partition)
    producer.produce(other, b"other", partition=0)
    producer.commit_transaction(DEADLINE_S)
    values_soon(kafka, other, [b"other"])
    wait_until(lambda: sorted(values_to_end(kafka, one, partitions=3)) == [b"0", b"1", b"2"], "all three partitions")


# Rule D.1 more/3.
def test_waiting_consumer_receives_records_when_they_are_committed(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    # The fetch may wait for a minute: only the marker can end it in time.
    consumer = make_consumer(kafka, enable_partition_eof=False, fetch_wait_max_ms=60_000, socket_timeout_ms=120_000)
    try:
        consumer.subscribe([topic])
        producer.begin_transaction()
        send(producer, topic, [b"late"])
        assert consumer.poll(3) is None
        producer.commit_transaction(DEADLINE_S)
        message = wait_until(lambda: consumer.poll(0.5), "the committed record", deadline_s=40)
        assert message.error() is None
        assert message.value() == b"late"
    finally:
        consumer.close()


def test_interleaved_transactions_end_in_any_order(kafka: Kafka):
    topic = make_topic(kafka)
    one, other = (make_transactional_producer(kafka, unique("id")) for _ in range(2))
    one.begin_transaction()
    other.begin_transaction()
    send(one, topic, [b"1a"])
    send(other, topic, [b"2a"])
    send(one, topic, [b"1b"])
    other.commit_transaction(DEADLINE_S)
    wait_for_end_offset(kafka, topic, 4, isolation=READ_UNCOMMITTED)
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 0
    assert values_to_end(kafka, topic) == []
    one.abort_transaction(DEADLINE_S)
    values_soon(kafka, topic, [b"2a"])
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 5


def test_timestamp_lookup_stops_at_the_last_stable_offset(kafka: Kafka):
    topic = make_topic(kafka)
    base_ms = 1_700_000_000_000
    plain = make_producer(kafka)
    plain.produce(topic, b"before", partition=0, timestamp=base_ms)
    assert plain.flush(DEADLINE_S) == 0
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=base_ms + 1000)
    assert producer.flush(DEADLINE_S) == 0
    wanted = OffsetSpec.for_timestamp(base_ms + 1)
    assert find_offset(kafka, topic, wanted, isolation=READ_UNCOMMITTED)[0] == 1
    assert find_offset(kafka, topic, wanted, isolation=READ_COMMITTED)[0] == -1
    assert find_offset(kafka, topic, OffsetSpec.for_timestamp(base_ms), isolation=READ_COMMITTED)[0] == 0
    producer.commit_transaction(DEADLINE_S)
    wait_for_end_offset(kafka, topic, 3)
    assert find_offset(kafka, topic, wanted, isolation=READ_COMMITTED)[0] == 1


# Rules D.3/1 and D.3/4.
@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_timestamp_lookup_finds_a_marker_at_its_own_time(kafka: Kafka, isolation: str):
    topic = make_topic(kafka)
    base_ms = 1_700_000_000_000
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=0, timestamp=base_ms)
    producer.commit_transaction(DEADLINE_S)
    wait_for_end_offset(kafka, topic, 2)
    plain = make_producer(kafka)
    plain.produce(topic, b"behind the marker", partition=0, timestamp=base_ms + 1000)
    assert plain.flush(DEADLINE_S) == 0

    def found(spec: OffsetSpec) -> tuple[int, int]:
        return find_offset(kafka, topic, spec, isolation=isolation)

    marker_offset, marker_ms = found(OffsetSpec.for_timestamp(base_ms + 1))
    assert marker_offset == 1
    assert marker_ms > base_ms + 1000
    assert found(OffsetSpec.for_timestamp(base_ms)) == (0, base_ms)
    assert found(OffsetSpec.for_timestamp(marker_ms)) == (1, marker_ms)
    assert found(OffsetSpec.for_timestamp(marker_ms + 1))[0] == -1
    assert found(OffsetSpec.max_timestamp()) == (1, marker_ms)


@pytest.mark.parametrize("fenced_at", ["commit", "send", "begin"])
def test_second_producer_with_the_same_id_fences_the_first(kafka: Kafka, fenced_at: str):
    topic, transactional_id = make_topic(kafka), unique("id")
    first = make_transactional_producer(kafka, transactional_id)
    first.begin_transaction()
    if fenced_at != "begin":
        send(first, topic, [b"from the first"])
    second = make_transactional_producer(kafka, transactional_id)

    def go_on() -> None:
        if fenced_at != "commit":
            first.produce(topic, b"late from the first", partition=0)
            first.flush(DEADLINE_S)
        first.commit_transaction(DEADLINE_S)

    with pytest.raises(KafkaException) as refused:
        go_on()
    error: KafkaError = refused.value.args[0]
    assert error.fatal()
    assert error.code() in FENCED
    run_transaction(second, topic, [b"from the second"], commit=True)
    values_soon(kafka, topic, [b"from the second"])


def test_new_producer_aborts_the_open_transaction_of_its_predecessor(kafka: Kafka):
    topic, transactional_id = make_topic(kafka), unique("id")
    first = make_transactional_producer(kafka, transactional_id)
    first.begin_transaction()
    send(first, topic, [b"left open"])
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 0
    make_transactional_producer(kafka, transactional_id)
    wait_for_end_offset(kafka, topic, 2)
    assert values_to_end(kafka, topic) == []


def test_transaction_past_its_timeout_is_aborted(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"), transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.begin_transaction()
    send(producer, topic, [b"too slow"])
    wait_for_end_offset(kafka, topic, 2)
    assert values_to_end(kafka, topic) == []
    assert values_to_end(kafka, topic, isolation=READ_UNCOMMITTED) == [b"too slow"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_timeout_above_the_broker_maximum_is_refused(kafka: Kafka):
    producer = make_producer(kafka, transactional_id=unique("id"), transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_transactions_without_records_end_successfully(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    for commit in (True, False, True):
        run_transaction(producer, topic, [], commit=commit)
    run_transaction(producer, topic, [b"x"], commit=True)
    values_soon(kafka, topic, [b"x"])


def test_many_partitions_get_their_markers(kafka: Kafka):
    partitions = 20
    topic = make_topic(kafka, partitions=partitions)
    producer = make_transactional_producer(kafka, unique("id"))
    for commit, count in ((False, 2000), (True, 1000)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, b"%d" % commit, partition=number % partitions)
        # An abort drops what is still in the client's queue, and then waits for what it has sent.
        assert producer.flush(DEADLINE_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)
    wait_until(lambda: len(values_to_end(kafka, topic, partitions=partitions)) == 1000, "all committed records")
    assert set(values_to_end(kafka, topic, partitions=partitions)) == {b"1"}
    assert len(values_to_end(kafka, topic, isolation=READ_UNCOMMITTED, partitions=partitions)) == 3000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_transactions_commit_and_abort(kafka: Kafka, codec: str):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"), compression_type=codec)
    run_transaction(producer, topic, [b"aborted " * 50] * 20, commit=False)
    run_transaction(producer, topic, [b"committed " * 50] * 20, commit=True)
    values_soon(kafka, topic, [b"committed " * 50] * 20)
