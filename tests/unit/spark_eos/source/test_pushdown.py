"""The ranges left to read after the filters of a batch query."""

import datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from broker_core.types import TopicPartition
from spark_eos.source.pushdown import narrowing

NOON_MS = 1_600_000_000_000
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)


def moment(timestamp_ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(timestamp_ms / 1_000, tz=datetime.UTC)


@pytest.mark.parametrize(("pushed", "kept"), [
    (EqualTo(TOPIC, "b1"), "b1-0 b1-1"),
    (EqualNullSafe(TOPIC, "b1"), "b1-0 b1-1"),
    (In(TOPIC, ("a1", "b1", "c1")), "a1-0 b1-0 b1-1"),
    (StringStartsWith(TOPIC, "a"), "a1-0"),
    (StringEndsWith(TOPIC, "1"), "a1-0 b1-0 b1-1"),
    (StringContains(TOPIC, "b"), "b1-0 b1-1"),
    (GreaterThan(TOPIC, "a1"), "b1-0 b1-1"),
    (EqualTo(PARTITION, 1), "b1-1"),
    (GreaterThan(PARTITION, 0), "b1-1"),
    (GreaterThanOrEqual(PARTITION, 1), "b1-1"),
    (LessThan(PARTITION, 1), "a1-0 b1-0"),
    (LessThanOrEqual(PARTITION, 0), "a1-0 b1-0"),
    (In(PARTITION, (1, 7)), "b1-1"),
    (Not(EqualTo(TOPIC, "b1")), "a1-0"),
    (Not(In(PARTITION, (1,))), "a1-0 b1-0"),
    # These filters do not select partitions, so all partitions stay.
    (EqualTo(TOPIC, None), "a1-0 b1-0 b1-1"),
    (Not(EqualTo(OFFSET, 1)), "a1-0 b1-0 b1-1"),
    (IsNotNull(TOPIC), "a1-0 b1-0 b1-1"),
    (EqualTo(("key",), b"k"), "a1-0 b1-0 b1-1"),
    (EqualTo(("value", "topic"), "b1"), "a1-0 b1-0 b1-1"),
])  # fmt: skip
def test_partition_filters_select_partitions(pushed: Filter, kept: str) -> None:
    everything = [TopicPartition("a1", 0), TopicPartition("b1", 0), TopicPartition("b1", 1)]
    found = narrowing([pushed])
    assert [str(tp) for tp in everything if found.keeps(tp)] == kept.split()
    assert found.narrowed(3, 9) == (3, 9)


@pytest.mark.parametrize(("pushed", "left"), [
    (EqualTo(OFFSET, 5), (5, 6)),
    (EqualNullSafe(OFFSET, 5), (5, 6)),
    (GreaterThan(OFFSET, 5), (6, 9)),
    (GreaterThanOrEqual(OFFSET, 5), (5, 9)),
    (LessThan(OFFSET, 5), (3, 5)),
    (LessThanOrEqual(OFFSET, 5), (3, 6)),
    (In(OFFSET, (7, 5)), (5, 8)),
    # The filter is wider than the range, or not supported: the range stays.
    (GreaterThan(OFFSET, -5), (3, 9)),
    (LessThan(OFFSET, 100), (3, 9)),
    (EqualTo(OFFSET, None), (3, 9)),
    (In(OFFSET, (5, None)), (3, 9)),
    (In(OFFSET, ()), (3, 9)),
    (Not(GreaterThan(OFFSET, 5)), (3, 9)),
    (GreaterThan(PARTITION, 5), (3, 9)),
])  # fmt: skip
def test_offset_filters_limit_ranges(pushed: Filter, left: tuple[int, int]) -> None:
    assert narrowing([pushed]).narrowed(3, 9) == left


@pytest.mark.parametrize(("pushed", "since_ms"), [
    (EqualTo(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (EqualNullSafe(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (GreaterThan(TIMESTAMP, moment(NOON_MS + 0.5)), NOON_MS),
    (GreaterThanOrEqual(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (In(TIMESTAMP, (moment(NOON_MS + 1), moment(NOON_MS))), NOON_MS),
    (GreaterThan(TIMESTAMP, moment(0)), 0),
    (GreaterThan(TIMESTAMP, moment(-5)), None),
    # A later record can have an earlier timestamp, so there is no upper bound; a time without a zone is ambiguous.
    (LessThan(TIMESTAMP, moment(NOON_MS)), None),
    (LessThanOrEqual(TIMESTAMP, moment(NOON_MS)), None),
    (GreaterThan(TIMESTAMP, moment(NOON_MS).replace(tzinfo=None)), None),
    (EqualTo(TIMESTAMP, None), None),
    (In(TIMESTAMP, ()), None),
    (Not(GreaterThan(TIMESTAMP, moment(NOON_MS))), None),
])  # fmt: skip
def test_timestamp_filters_are_resolved_to_offsets(pushed: Filter, since_ms: int | None) -> None:
    assert narrowing([pushed]).since_ms == since_ms


def test_several_filters_all_apply() -> None:
    found = narrowing([
        GreaterThan(OFFSET, 2), GreaterThan(OFFSET, 4), LessThan(OFFSET, 9), LessThan(OFFSET, 8),
        GreaterThan(TIMESTAMP, moment(NOON_MS)), GreaterThan(TIMESTAMP, moment(NOON_MS + 7)), EqualTo(PARTITION, 1),
        EqualTo(TOPIC, "t"),
    ])  # fmt: skip
    assert found.narrowed(0, 100) == (5, 8)
    assert found.since_ms == NOON_MS + 7
    assert [found.keeps(tp) for tp in (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 1))] == [
        True, False, False,
    ]  # fmt: skip
