"""Offset maps, rate limits and the division of ranges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows, ReadMinRows

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError
from spark_eos.options.source import stream_options
from spark_eos.source.offsets import (
    AdmissionControl,
    OffsetRange,
    from_json_offsets,
    limit_offsets,
    new_offset_count,
    split_ranges,
    to_json_offsets,
)
from tests.support.clocks import StandingClock

A0, A1, A10, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 10), TopicPartition("b", 0))
BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a"}

offset_maps = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 12)), st.integers(0, 2**62), max_size=8
)


def test_offset_json_matches_spark_and_is_ordered() -> None:
    text = json.dumps(to_json_offsets({B0: 1, A10: 5, A1: 4, A0: 23}), separators=(",", ":"))
    assert text == '{"a":{"0":23,"1":4,"10":5},"b":{"0":1}}'


@given(offset_maps)
def test_offset_json_round_trips(offsets: dict[TopicPartition, int]) -> None:
    assert from_json_offsets(json.loads(json.dumps(to_json_offsets(offsets)))) == offsets


def test_foreign_offsets_are_refused() -> None:
    with pytest.raises(EosKafkaError, match="not a Kafka offset"):
        from_json_offsets({"index": 3})


def test_rate_limit_matches_spark_example_101_11_1_limit_10() -> None:
    start = dict.fromkeys((A0, A1, A10), 0)
    end = {A0: 101, A1: 11, A10: 1}
    first = limit_offsets(start, end, 10)
    assert first == {A0: 8, A1: 1, A10: 1}
    assert limit_offsets(first, end, 10) == {A0: 8 + 9, A1: 1 + 1, A10: 1}  # KafkaMicroBatchSourceSuite: 9 + 1


def test_limits_beyond_a_long_are_accepted() -> None:
    assert limit_offsets({A0: 0, A1: 0}, {A0: 5, A1: 2**62}, 2**63 - 1) == {A0: 5, A1: 2**62}


@given(offset_maps, offset_maps, st.integers(1, 1_000))
def test_limit_moves_forward_and_stays_within_the_range(
    start: dict[TopicPartition, int], sizes: dict[TopicPartition, int], most: int
) -> None:
    end = {tp: start[tp] + sizes.get(tp, 0) for tp in start}
    limited = limit_offsets(start, end, most)
    assert all(start[tp] <= limited[tp] <= end[tp] for tp in end)
    assert all(limited[tp] > start[tp] for tp in end if end[tp] > start[tp])
    assert new_offset_count(start, limited) <= most + len(end)


def test_unchanged_end_yields_no_batch() -> None:
    assert limit_offsets({A0: 5}, {A0: 5}, 3) == {A0: 5}
    assert limit_offsets({A0: 5}, {A0: 3}, 3) == {A0: 3}


def admission(clock: StandingClock, **options: str) -> AdmissionControl:
    return AdmissionControl(stream_options(BASE | options), clock)


def test_default_limits_are_unlimited() -> None:
    clock = StandingClock()
    assert admission(clock).default_limit == ReadAllAvailable()
    assert admission(clock, maxOffsetsPerTrigger="7").default_limit == ReadMaxRows(7)
    assert admission(clock, minOffsetsPerTrigger="7").default_limit == ReadMinRows(7)
    both = admission(clock, minOffsetsPerTrigger="7", maxOffsetsPerTrigger="9")
    assert both.default_limit == ReadMaxRows(9)


def test_all_available_takes_precedence_over_the_options() -> None:
    limited = admission(StandingClock(), maxOffsetsPerTrigger="2", minOffsetsPerTrigger="1")
    assert limited.admit({A0: 0}, {A0: 50}, ReadAllAvailable()) == {A0: 50}


def test_min_offsets_waits_until_max_trigger_delay() -> None:
    clock = StandingClock()
    waiting = admission(clock, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    limit = waiting.default_limit
    assert waiting.admit({A0: 0}, {A0: 3}, limit) == {A0: 3}, "the first micro-batch has no delay"
    assert waiting.admit({A0: 3}, {A0: 9}, limit) == {A0: 3}
    clock.seconds += 4.9
    assert waiting.admit({A0: 3}, {A0: 9}, limit) == {A0: 3}
    clock.seconds += 0.1
    assert waiting.admit({A0: 3}, {A0: 9}, limit) == {A0: 9}
    assert waiting.admit({A0: 9}, {A0: 19}, limit) == {A0: 19}, "enough records cause no delay"


def test_min_and_max_offsets_apply_together() -> None:
    clock = StandingClock()
    both = admission(clock, minOffsetsPerTrigger="15", maxOffsetsPerTrigger="20")
    limit = both.default_limit
    assert both.admit({A0: 0}, {A0: 30}, limit) == {A0: 20}
    assert both.admit({A0: 20}, {A0: 30}, limit) == {A0: 20}
    assert both.admit({A0: 20}, {A0: 30}, limit, may_wait=False) == {A0: 30}


def test_limits_on_files_are_ignored() -> None:
    with pytest.raises(EosKafkaError, match="maxOffsetsPerTrigger"):
        admission(StandingClock()).admit({A0: 0}, {A0: 3}, ReadMaxFiles(1))


def cut(sizes: list[int], **limits: int | None) -> list[tuple[int, int, int]]:
    ranges = [OffsetRange("t", number, 10, 10 + size) for number, size in enumerate(sizes)]
    pieces = split_ranges(ranges, min_partitions=limits.get("min_partitions"), max_records=limits.get("max_records"))
    return [(piece.partition, piece.start, piece.end) for piece in pieces]


def test_one_range_makes_one_task_and_empty_ranges_are_dropped() -> None:
    assert cut([5, 0, 3]) == [(0, 10, 15), (2, 10, 13)]


def test_min_partitions_splits_large_ranges_in_proportion() -> None:
    assert cut([100], min_partitions=4) == [(0, 10, 35), (0, 35, 60), (0, 60, 85), (0, 85, 110)]
    assert [piece[0] for piece in cut([1, 100, 1], min_partitions=6)] == [0, 1, 1, 1, 1, 2]
    assert len(cut([30, 30, 30], min_partitions=6)) == 6
    assert len(cut([5, 5], min_partitions=1)) == 2
    assert cut([2], min_partitions=2**31 - 1) == [(0, 10, 11), (0, 11, 12)]


def test_max_records_applies_before_min_partitions() -> None:
    assert [end - start for _, start, end in cut([100, 7], max_records=30)] == [25, 25, 25, 25, 7]
    assert len(cut([100], max_records=60, min_partitions=5)) >= 4


@given(
    st.lists(st.integers(0, 500), max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_splitting_loses_no_offsets(sizes: list[int], least: int | None, most: int | None) -> None:
    pieces = cut(sizes, min_partitions=least, max_records=most)
    for number, size in enumerate(sizes):
        covered = [offset for part, start, end in pieces if part == number for offset in range(start, end)]
        assert covered == list(range(10, 10 + size))
    assert most is None or all(end - start <= most for _, start, end in pieces)
