"""A starting position that can still move is fixed before the first rows are read."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import RangePartition, StreamReader
from tests.support.spark_eos.source_data import create_topic, send_plain

NOON_MS = 1_600_000_000_000


def new_reader(address: str, topic: str, **options: str) -> StreamReader:
    return StreamReader(
        {"kafka.bootstrap.servers": address, "subscribe": topic, **options}, source_schema(include_headers=False)
    )


def planned(reader: StreamReader, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[str]:
    return [str(each.piece) for each in reader.partitions(start, end) if isinstance(each, RangePartition)]


@pytest.mark.parametrize(("options", "moves"), [
    ({}, True),
    ({"startingOffsets": "latest"}, True),
    ({"startingOffsets": '{{"{topic}":{{"0":-1}}}}'}, True),
    ({"startingTimestamp": str(2 * NOON_MS), "startingOffsetsByTimestampStrategy": "latest"}, True),
    ({"startingOffsets": "earliest"}, False),
    ({"startingOffsets": '{{"{topic}":{{"0":1}}}}'}, False),
    ({"startingOffsets": '{{"{topic}":{{"0":-2}}}}'}, False),
    ({"startingTimestamp": str(NOON_MS)}, False),
])  # fmt: skip
def test_moving_start_is_pinned_by_an_empty_micro_batch(
    kafka_address: str, options: dict[str, str], moves: bool
) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["a", "b", "c"], timestamp=NOON_MS)
    given = {name: value.format(topic=topic) for name, value in options.items()}
    first = new_reader(kafka_address, topic, **given)
    start = first.initialOffset()
    send_plain(kafka_address, topic, ["d", "e"], timestamp=NOON_MS)
    pinned = first.latestOffset(start, ReadAllAvailable())
    assert (pinned == start) is moves
    assert first.latestOffset(pinned, ReadAllAvailable()) == {topic: {"0": 5}}
    first.stop()
    # The query died in its first micro-batch: Spark runs that again and requests the start a second time.
    again = new_reader(kafka_address, topic, **given)
    rerun = planned(again, again.initialOffset(), pinned)
    assert rerun == ([] if moves else [f"{topic}-0 [{start[topic]['0']}, 5)"])
    end = again.latestOffset(pinned, ReadAllAvailable())
    assert end == {topic: {"0": 5}}
    assert planned(again, pinned, end) == ([f"{topic}-0 [3, 5)"] if moves else [])
    again.stop()


def mixed_start(topic: str) -> str:
    return f'{{"{topic}":{{"0":0,"1":-1}}}}'


def test_start_is_pinned_once(kafka_address: str) -> None:
    """Spark requests the start again when it plans the first micro-batch, and then the end of the second."""
    topic = create_topic(kafka_address, partitions=2)
    send_plain(kafka_address, topic, ["a", "b"])
    reader = new_reader(kafka_address, topic, startingOffsets=mixed_start(topic))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.initialOffset() == start
    assert planned(reader, start, start) == []
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 2, "1": 0}}
    reader.stop()
