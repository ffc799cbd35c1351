"""The position of a streaming reader under PySpark 4.0 and 4.1, which pass neither a start nor a limit."""

from typing import Any

import pytest

from spark_eos.errors import OptionError, UnreachableError
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import RangePartition, StreamReader
from tests.support.spark_eos.source_data import send_plain
from tests.support.spark_eos.source_query import offsets_in


def new_reader(address: str, topic: str, **options: str) -> StreamReader:
    return StreamReader(
        {"kafka.bootstrap.servers": address, "subscribe": topic, **options}, source_schema(include_headers=False)
    )


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [str(each.piece) for each in reader.partitions(start, end) if isinstance(each, RangePartition)]


def test_new_query_and_its_restart_respect_the_limit(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["a", "b", "c", "d", "e"])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    first = new_reader(kafka_address, topic, **options)
    # The order of Spark 4.1: the end before the start.
    end = first.latestOffset()
    start = first.initialOffset()
    assert planned(first, start, end) == [f"{topic}-0 [0, 2)"]
    second_end = first.latestOffset()
    assert planned(first, end, second_end) == [f"{topic}-0 [2, 4)"]
    first.stop()
    again = new_reader(kafka_address, topic, **options)
    # At a restart Spark plans an empty range at the checkpoint's end, and does not read it.
    assert planned(again, second_end, second_end) == []
    third_end = again.latestOffset()
    assert planned(again, second_end, third_end) == [f"{topic}-0 [4, 5)"]
    assert again.latestOffset() == third_end
    again.stop()


def test_query_starting_at_latest_reads_later_records(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["before"])
    reader = new_reader(kafka_address, topic)
    end = reader.latestOffset()
    send_plain(kafka_address, topic, ["after"])
    start = reader.initialOffset()
    assert offsets_in(start) == offsets_in(end) == {topic: {"0": 1}}
    assert planned(reader, start, end) == []
    assert planned(reader, end, reader.latestOffset()) == [f"{topic}-0 [1, 2)"]
    reader.stop()


def test_restart_plans_the_first_micro_batch_after_an_empty_range(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["a", "b", "c"])
    first = new_reader(kafka_address, topic, startingOffsets="earliest")
    end = first.latestOffset()
    first.stop()
    again = new_reader(kafka_address, topic)
    assert planned(again, end, end) == []
    assert planned(again, again.initialOffset(), end) == [f"{topic}-0 [0, 3)"]
    again.stop()
    # Of a checkpoint without the start, `latest` may lie after the end.
    by_others = {topic: {"0": 2}}
    other = new_reader(kafka_address, topic, failOnDataLoss="false")
    assert planned(other, by_others, by_others) == []
    with pytest.raises(OptionError, match="does not contain where it starts"):
        other.partitions(other.initialOffset(), by_others)
    other.stop()


def test_restart_with_a_wrong_address_does_not_wait_for_an_outage_to_end() -> None:
    reader = new_reader(
        "127.0.0.1:1", "t", **{"kafka.default.api.timeout.ms": "200", "kafka.request.timeout.ms": "100"}
    )
    end = {"t": {"0": 1}}
    assert planned(reader, end, end) == []
    with pytest.raises(UnreachableError):
        reader.latestOffset()
    reader.stop()
