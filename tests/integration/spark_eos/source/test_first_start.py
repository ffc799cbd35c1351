"""A first micro-batch that runs again starts where it started first, whatever options and topics say by then."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker_core import EmbeddedBroker, Error
from spark_eos.errors import OptionError, UnansweredError, UnreachableError
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import RangePartition, StreamReader
from tests.support.spark_eos.source_data import add_partitions, create_topic, delete_records, delete_topic, send_plain
from tests.support.spark_eos.source_query import offsets_in

NOON_MS = 1_600_000_000_000
OLD = {"startingTimestamp": str(NOON_MS)}
BEYOND = {"startingTimestamp": str(2 * NOON_MS)}


def filled(options: dict[str, str], topic: str) -> dict[str, str]:
    return {name: value.replace("TOPIC", topic) for name, value in options.items()}


@pytest.mark.parametrize(("options", "changed", "begin"), [
    ({"startingOffsets": "earliest"}, {}, 0),
    ({}, {"startingOffsets": "earliest"}, 3),
    ({}, {}, 3),
    ({"startingOffsets": '{"TOPIC":{"0":0}}'}, {"startingOffsets": '{"TOPIC":{"0":3}}'}, 0),
    ({"startingOffsets": '{"TOPIC":{"0":1}}'}, {"startingOffsets": '{"TOPIC":{"0":99}}'}, 1),
    ({"startingOffsets": '{"TOPIC":{"0":-1}}'}, {"startingOffsets": '{"TOPIC":{"0":0,"7":0}}'}, 3),
    (OLD, BEYOND, 0),
    (BEYOND | {"startingOffsetsByTimestampStrategy": "latest"}, BEYOND, 3),
    ({"startingOffsetsByTimestamp": f'{{"TOPIC":{{"0":{NOON_MS}}}}}'}, {}, 0),
])  # fmt: skip
def test_first_micro_batch_runs_again_with_its_first_start(
    kafka_address: str, options: dict[str, str], changed: dict[str, str], begin: int, topic: str
) -> None:
    send_plain(kafka_address, topic, ["a", "b", "c"], timestamp=NOON_MS)
    first = new_reader(kafka_address, subscribe=topic, **filled(options, topic))
    start = first.initialOffset()
    send_plain(kafka_address, topic, ["d", "e"], timestamp=NOON_MS)
    end = first.latestOffset(start, ReadAllAvailable())
    expected = [f"{topic}-0 [{begin}, 5)"]
    # Spark asks twice, and plans with the second answer.
    assert planned(first, first.initialOffset(), end) == expected
    assert first.latestOffset(end, ReadAllAvailable()) == end
    first.stop()
    send_plain(kafka_address, topic, ["f"], timestamp=NOON_MS)
    again = new_reader(kafka_address, subscribe=topic, **filled(changed, topic))
    assert planned(again, again.initialOffset(), end) == expected
    later = again.latestOffset(end, ReadAllAvailable())
    assert planned(again, end, later) == [f"{topic}-0 [5, 6)"]
    again.stop()


def test_later_micro_batch_may_begin_where_the_start_would_be_now(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, "abc")
    first = new_reader(kafka_address, subscribe=topic, startingOffsets="earliest")
    pending = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.stop()
    send_plain(kafka_address, topic, "d")
    again = new_reader(kafka_address, subscribe=topic)
    assert planned(again, again.initialOffset(), pending) == [f"{topic}-0 [0, 3)"]
    end = again.latestOffset(pending, ReadAllAvailable())
    assert planned(again, pending, end) == [f"{topic}-0 [3, 4)"]
    assert again.latestOffset(end, ReadAllAvailable()) == end
    send_plain(kafka_address, topic, "e")
    assert planned(again, end, again.latestOffset(end, ReadAllAvailable())) == [f"{topic}-0 [4, 5)"]
    again.stop()


def test_topics_that_changed_since_move_no_first_start(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, "abc")
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
    first = new_reader(kafka_address, **options)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.stop()
    add_partitions(kafka_address, topic, 2)
    send_plain(kafka_address, topic, "d", partition=1)
    other = create_topic(kafka_address, name=f"{topic}-other")
    send_plain(kafka_address, other, "e")
    # The log start passed the first start: the task reports what retention removed.
    delete_records(kafka_address, topic, 2)
    again = new_reader(kafka_address, **options)
    assert planned(again, again.initialOffset(), end) == [f"{topic}-0 [0, 3)"]
    later = again.latestOffset(end, ReadAllAvailable())
    assert planned(again, end, later) == [f"{topic}-1 [0, 1)", f"{other}-0 [0, 1)"]
    again.stop()


def test_topic_created_during_the_first_micro_batch_is_read_from_its_first_record(kafka_address: str) -> None:
    """A pattern that matched nothing at first has an empty start, which is a start too."""
    prefix = create_topic(kafka_address)
    delete_topic(kafka_address, prefix)
    options = {"subscribePattern": f"{prefix}-.*", "kafka.metadata.max.age.ms": "0"}
    first = new_reader(kafka_address, **options)
    start = first.initialOffset()
    assert offsets_in(start) == {}
    topic = create_topic(kafka_address, name=f"{prefix}-1")
    send_plain(kafka_address, topic, "abc")
    end = first.latestOffset(start, ReadAllAvailable())
    first.stop()
    again = new_reader(kafka_address, **options)
    assert planned(again, again.initialOffset(), end) == [f"{topic}-0 [0, 3)"]
    again.stop()


def test_start_that_cannot_be_resolved_stops_a_new_query(kafka_address: str, topic: str) -> None:
    reader = new_reader(kafka_address, subscribe=topic, **OLD)
    start = reader.initialOffset()
    with pytest.raises(OptionError, match="No offset matched"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(OptionError, match="No offset matched"):
        reader.partitions(start, {topic: {"0": 0}})
    reader.stop()


def test_first_micro_batch_of_another_version_is_planned_again_as_it_was(kafka_address: str, topic: str) -> None:
    """Spark plans a micro-batch once for each use of a source in its query, as in a union of a stream with itself."""
    send_plain(kafka_address, topic, "abc")
    add_partitions(kafka_address, topic, 2)
    reader = new_reader(kafka_address, subscribe=topic, startingOffsets="earliest")
    start, end = reader.initialOffset(), {topic: {"0": 3}}
    assert [planned(reader, start, end) for _ in range(2)] == [[f"{topic}-0 [0, 3)"]] * 2
    reader.stop()


def test_first_micro_batch_of_another_version_needs_its_start(kafka_address: str, topic: str) -> None:
    """Spark's own source stores the start in a file that a Python source cannot see."""
    send_plain(kafka_address, topic, "abcd")
    end = {topic: {"0": 3}}
    earliest = new_reader(kafka_address, subscribe=topic, startingOffsets="earliest")
    assert planned(earliest, earliest.initialOffset(), end) == [f"{topic}-0 [0, 3)"]
    earliest.stop()
    latest = new_reader(kafka_address, subscribe=topic)
    # What the message says must not skip records of a micro-batch that began elsewhere, and can be pasted.
    words = (
        rf'ends at {{"{topic}": {{"0": 3}}}}\. .*to what they were then\. If that was .latest. too, set startingOffsets'
    )
    with pytest.raises(OptionError, match=words):
        latest.partitions(latest.initialOffset(), end)
    latest.stop()
    named = new_reader(kafka_address, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":1}}}}')
    assert planned(named, named.initialOffset(), end) == [f"{topic}-0 [1, 3)"]
    named.stop()


# The position under PySpark 4.0 and 4.1, which pass neither a start nor a limit


def new_reader(address: str, **options: str) -> StreamReader:
    return StreamReader({"kafka.bootstrap.servers": address, **options}, source_schema(include_headers=False))


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [str(each.piece) for each in reader.partitions(start, end) if isinstance(each, RangePartition)]


def test_new_query_and_its_restart_respect_the_limit(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["a", "b", "c", "d", "e"])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    first = new_reader(kafka_address, subscribe=topic, **options)
    # The order of Spark 4.1: the end before the start.
    end = first.latestOffset()
    start = first.initialOffset()
    assert planned(first, start, end) == [f"{topic}-0 [0, 2)"]
    second_end = first.latestOffset()
    assert planned(first, end, second_end) == [f"{topic}-0 [2, 4)"]
    first.stop()
    again = new_reader(kafka_address, subscribe=topic, **options)
    # At a restart Spark plans an empty range at the checkpoint's end, and does not read it.
    assert planned(again, second_end, second_end) == []
    third_end = again.latestOffset()
    assert planned(again, second_end, third_end) == [f"{topic}-0 [4, 5)"]
    assert again.latestOffset() == third_end
    again.stop()


def test_query_starting_at_latest_reads_later_records(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["before"])
    reader = new_reader(kafka_address, subscribe=topic)
    end = reader.latestOffset()
    send_plain(kafka_address, topic, ["after"])
    start = reader.initialOffset()
    assert offsets_in(start) == offsets_in(end) == {topic: {"0": 1}}
    assert planned(reader, start, end) == []
    assert planned(reader, end, reader.latestOffset()) == [f"{topic}-0 [1, 2)"]
    reader.stop()


def test_restart_plans_the_first_micro_batch_after_an_empty_range(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["a", "b", "c"])
    first = new_reader(kafka_address, subscribe=topic, startingOffsets="earliest")
    end = first.latestOffset()
    first.stop()
    again = new_reader(kafka_address, subscribe=topic)
    assert planned(again, end, end) == []
    assert planned(again, again.initialOffset(), end) == [f"{topic}-0 [0, 3)"]
    again.stop()
    # Of a checkpoint without the start, `latest` may lie after the end.
    by_others = {topic: {"0": 2}}
    other = new_reader(kafka_address, subscribe=topic, failOnDataLoss="false")
    assert planned(other, by_others, by_others) == []
    with pytest.raises(OptionError, match="does not contain where it starts"):
        other.partitions(other.initialOffset(), by_others)
    other.stop()


def test_restart_with_a_wrong_address_does_not_wait_for_an_outage_to_end() -> None:
    reader = new_reader(
        "127.0.0.1:1", subscribe="t", **{"kafka.default.api.timeout.ms": "200", "kafka.request.timeout.ms": "100"}
    )
    end = {"t": {"0": 1}}
    assert planned(reader, end, end) == []
    with pytest.raises(UnreachableError):
        reader.latestOffset()
    reader.stop()


@pytest.mark.parametrize("comes_back", [True, False])
def test_start_of_available_now_waits_for_brokers_that_have_answered(
    caplog: pytest.LogCaptureFixture, comes_back: bool
) -> None:
    """What the start could not be is no new look-up: to raise it again and again would fill the log for an hour."""
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        kafka.produce("t", ["a", "b"])
        options = {"outageTimeout": "1s", "kafka.default.api.timeout.ms": "300"}
        reader = new_reader(kafka.bootstrap_servers, subscribe="t", startingOffsets="earliest", **options)
        reader.prepareForTriggerAvailableNow()
        fault = kafka.fault(api="ListOffsets", action=Error("LEADER_NOT_AVAILABLE"), times=4 if comes_back else None)
        with fault:
            start = reader.initialOffset()
            if comes_back:
                assert offsets_in(start) == {"t": {"0": 0}}
                assert offsets_in(reader.latestOffset(start, ReadAllAvailable())) == {"t": {"0": 2}}
            else:
                with pytest.raises(UnansweredError):
                    reader.latestOffset(start, ReadAllAvailable())
        assert len(caplog.records) <= 10
        reader.stop()
