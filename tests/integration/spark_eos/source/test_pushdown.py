"""Filters of a batch query: only the remaining ranges are fetched."""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual

from broker_core.types import TopicPartition
from spark_eos.client import fetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import DataLossError
from spark_eos.options.source import batch_options
from spark_eos.source.planner import Planner
from spark_eos.source.pushdown import narrowing
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import FilteringBatchReader, RangePartition
from tests.support.spark_eos.source_data import create_topic
from tests.support.spark_eos.timed_topics import NOON_MS, RECORDS, VALUE, topics

__all__ = ["topics"]

TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)


def moment(timestamp_ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(timestamp_ms / 1_000, tz=datetime.UTC)


@pytest.fixture
def fetched_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Count the bytes of records that fetches return."""
    count = 0
    original = fetch.read_chunk

    def counted(*answer: Any) -> fetch.FetchedChunk:
        nonlocal count
        chunk = original(*answer)
        count += len(chunk.data)
        return chunk

    monkeypatch.setattr(fetch, "read_chunk", counted)
    return lambda: count


def rows_and_ranges(options: Mapping[str, str], filters: list[Filter]) -> tuple[int, list[str]]:
    reader = FilteringBatchReader(options, source_schema(include_headers=False))
    assert reader.pushFilters(filters) == filters, "Spark has to evaluate every filter again"
    planned = reader.partitions()
    rows = sum(batch.num_rows for each in planned for batch in reader.read(each))
    return rows, [str(each.piece) for each in planned if isinstance(each, RangePartition)]


@pytest.mark.parametrize(("filters", "ranges", "share"), [
    ([], ["{0}-0 [0, 200)", "{0}-1 [0, 200)", "{1}-0 [0, 200)", "{1}-1 [0, 200)"], 1.0),
    ([EqualTo(TOPIC, "{0}")], ["{0}-0 [0, 200)", "{0}-1 [0, 200)"], 0.5),
    ([EqualTo(TOPIC, "{1}"), EqualTo(PARTITION, 1)], ["{1}-1 [0, 200)"], 0.25),
    ([GreaterThanOrEqual(OFFSET, 150), EqualTo(TOPIC, "{0}"), EqualTo(PARTITION, 0)], ["{0}-0 [150, 200)"], 0.07),
    ([GreaterThan(TIMESTAMP, moment(NOON_MS + 180_000))],
     ["{0}-0 [180, 200)", "{0}-1 [180, 200)", "{1}-0 [180, 200)", "{1}-1 [180, 200)"], 0.12),
    ([GreaterThan(TIMESTAMP, moment(NOON_MS + 10**9))], [], 0.0),
    ([EqualTo(TOPIC, "no such topic")], [], 0.0),
    ([EqualTo(OFFSET, 10**9)], [], 0.0),
])  # fmt: skip
def test_pushed_down_filters_reduce_fetched_bytes(
    kafka_address: str, topics: tuple[str, str], fetched_bytes: Callable[[], int], filters: list[Filter],
    ranges: list[str], share: float,
) -> None:  # fmt: skip
    named = [
        type(each)(each.attribute, each.value.format(*topics)) if getattr(each, "attribute", ()) == TOPIC else each
        for each in filters
    ]
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": ",".join(topics)}
    rows, planned = rows_and_ranges(options, named)
    assert planned == sorted(each.format(*topics) for each in ranges)
    assert rows == sum(int(end) - int(start) for start, end in re.findall(r"\[(\d+), (\d+)\)", " ".join(planned)))
    # A range ends within one response, which has 4 MiB at most: the rest of the log is fetched and dropped.
    assert fetched_bytes() <= share * 4 * RECORDS * (len(VALUE) + 100) + (20 * len(VALUE) if share else 0)


def test_topic_that_is_deleted_while_a_filtered_read_is_planned_is_reported(kafka_address: str) -> None:
    """Its start is known by then, and no broker names its end."""
    topic = create_topic(kafka_address)
    options = batch_options({"kafka.bootstrap.servers": kafka_address, "subscribe": topic})
    with KafkaClient(options.client) as client:
        planner, place = Planner(OffsetLookup(client), options), TopicPartition(topic, 0)
        start, end = planner.narrowed({place: 3}, {}, narrowing([EqualTo(TOPIC, topic)]))
        with pytest.raises(DataLossError, match=f"PARTITIONS_DELETED.*{topic}-0"):
            planner.plan(start, end)
        # No row of it would have passed.
        assert planner.narrowed({place: 3}, {}, narrowing([EqualTo(TOPIC, "other")])) == ({}, {})
