"""Trigger.AvailableNow reads what was there at its start, or reports why it cannot."""

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError
from spark_eos.source.available_now import check_micro_batch
from tests.support.partition_logs import truncate
from tests.support.spark_eos.source_data import (
    add_partitions,
    create_topic,
    delete_topic,
    send,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.source_query import Query, offsets_in, running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = {T0: 5, T1: 3}
EARLIEST = {"startingOffsets": "earliest"}


@pytest.mark.parametrize(("end", "latest", "words"), [
    ({T0: 5}, ENDS, r"^\[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED\].*: t-1"),
    ({**ENDS, TopicPartition("u", 0): 1}, ENDS, r"MISMATCHED_TOPIC_PARTITIONS.*: u-0"),
    ({T0: 6, T1: 3}, {T0: 9, T1: 9}, r"^\[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED\].*: t-0"),
    (ENDS, {T0: 5}, r"^\[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW\].*: t-1"),
    (ENDS, {T0: 5, T1: 2}, r"^\[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"
                           r"\].*: t-1.*wanted 3, found 2"),
])  # fmt: skip
def test_invalid_micro_batch_end_is_refused(
    end: dict[TopicPartition, int], latest: dict[TopicPartition, int], words: str
) -> None:
    with pytest.raises(EosKafkaError, match=words):
        check_micro_batch(end, ENDS, latest)


@pytest.mark.parametrize("end", [ENDS, {T0: 0, T1: 3}])
def test_end_within_both_limits_is_accepted(end: dict[TopicPartition, int]) -> None:
    check_micro_batch(end, ENDS, {T0: 5, T1: 30, TopicPartition("t", 2): 1})


def test_records_after_the_start_are_left_to_the_next_run(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, "abcde")
    with running(kafka_address, subscribe=topic, maxOffsetsPerTrigger="2", **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        assert query.texts() == ["a", "b"]
        send_plain(kafka_address, topic, "f")
        add_partitions(kafka_address, topic, 2)
        send_plain(kafka_address, topic, "g", partition=1)
        assert [query.texts(), query.texts(), query.texts()] == [["c", "d"], ["e"], []]
        query = query.restarted()
        query.reader.prepareForTriggerAvailableNow()
        assert query.texts() == ["f", "g"]
        query.reader.stop()


def test_few_records_are_not_waited_for(kafka_address: str, topic: str) -> None:
    """A second trigger would wait, and nothing more arrives in such a run."""
    options = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "3", "maxTriggerDelay": "1h"}
    send_plain(kafka_address, topic, "abcd")
    with running(kafka_address, subscribe=topic, **options, **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        assert [query.texts(), query.texts(), query.texts()] == [["a", "b", "c"], ["d"], []]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "handed over"])
def test_micro_batch_that_only_adds_ids_has_the_partitions_of_the_start(
    kafka_address: str, topic: str, *, is_first: bool
) -> None:
    """A checkpoint of Spark's own source has no topic ids; a partition was added since, and nothing was written."""
    with running(kafka_address, subscribe=topic, **EARLIEST) as query:
        if not is_first:
            query.trigger()
            query.position = offsets_in(query.position)
            query = query.restarted()
        add_partitions(kafka_address, topic, 2)
        query.reader.prepareForTriggerAvailableNow()
        assert [query.texts(), query.texts()] == [[], []]
        assert offsets_in(query.position) == {topic: {"0": 0, "1": 0}}
        send_plain(kafka_address, topic, "a", partition=1)
        query = Query(kafka_address, query.position, subscribe=topic)
        query.reader.prepareForTriggerAvailableNow()
        assert query.texts() == ["a"]
        query.reader.stop()


def test_old_transaction_at_which_a_run_ends_is_named(
    kafka_address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that runs once an hour ends before a standstill of `lagWarningAfter` would be reported."""
    add_partitions(kafka_address, topic, 2)
    producer = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-stuck"})
    producer.begin_transaction()
    send(producer, topic, ["open"])
    send_plain(kafka_address, topic, "hidden")
    with running(kafka_address, subscribe=topic, **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        assert query.texts() == []
        assert "open transaction" not in caplog.text, "each running producer has one now and then"
        query = query.restarted(lagWarningAfter="1ms")
        query.reader.prepareForTriggerAvailableNow()
        assert [query.texts(), query.texts()] == [[], []]
        [warning] = [each for each in caplog.messages if "n open transaction hides" in each]
        assert f"from these offsets on, so the read ends there: {topic}-0 at 0" in warning
        assert f"the transaction of '{topic}-stuck'" in warning
        query.reader.stop()
    producer.abort_transaction(30)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_topic_deleted_during_the_query_stops_it(kafka_address: str, fail_on_data_loss: str) -> None:
    topics = [create_topic(kafka_address) for _ in range(2)]
    for topic in topics:
        send_plain(kafka_address, topic, "abcd")
    options = {"subscribe": ",".join(topics), "maxOffsetsPerTrigger": "4", "failOnDataLoss": fail_on_data_loss}
    with running(kafka_address, **options, **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        assert len(query.trigger()) == 4
        delete_topic(kafka_address, topics[0])
        with pytest.raises(EosKafkaError, match=f"LOST_TOPIC_PARTITIONS.*{topics[0]}-0"):
            query.trigger()


def test_log_truncated_below_the_recorded_end_stops_the_query() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        for value in "abcde":
            send_plain(broker.bootstrap_servers, "t", value)
        with running(broker.bootstrap_servers, subscribe="t", maxOffsetsPerTrigger="2", **EARLIEST) as query:
            query.reader.prepareForTriggerAvailableNow()
            assert query.texts() == ["a", "b"]
            broker._call(lambda cluster: truncate(cluster.logs.get(T0, cluster.now_ms), 3))
            with pytest.raises(EosKafkaError, match="THAN_LATEST_WITH_TRIGGER_AVAILABLENOW.*wanted 4, found 3"):
                query.trigger()


def test_micro_batch_from_the_checkpoint_is_not_checked_against_the_new_ends(kafka_address: str, topic: str) -> None:
    """The micro-batch was planned before partitions were added; Spark runs it again before it requests another end."""
    send_plain(kafka_address, topic, "ab")
    with running(kafka_address, subscribe=topic, **EARLIEST) as query:
        planned = query.end()
    add_partitions(kafka_address, topic, 2)
    send_plain(kafka_address, topic, "c", partition=1)
    with running(kafka_address, subscribe=topic, **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        assert [row[3] for row in query.run_to(planned)] == ["a", "b"]
        assert query.texts() == ["c"]
