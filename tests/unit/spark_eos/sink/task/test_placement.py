"""The topic-partition of every row, and the order of rows."""

import random
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.codec.partitioner import murmur2_partitions
from spark_eos.sink.task.partitioning import DataError, place_rows

COUNTS = {"a": 3, "b": 5, "c": 1}
row = st.tuples(
    st.sampled_from(sorted(COUNTS)), st.none() | st.binary(max_size=5), st.none() | st.just(0), st.integers(0, 10**6)
)


def _batch(rows: Sequence[tuple[str | None, bytes | None, int | None, int]]) -> pa.RecordBatch:
    topics, keys, partitions, numbers = (list(column) for column in zip(*rows, strict=True))
    return pa.record_batch(
        {
            "topic": pa.array(topics, pa.string()),
            "key": pa.array(keys, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
            "value": pa.array([str(number) for number in numbers]),
        }
    )


def _place(
    batch: pa.RecordBatch,
    topic: str | None = None,
    rows_per_run: int = 3,
    leaderless: Collection[int] = (),
    added: int = 0,
) -> dict[tuple[str, int], list[str]]:
    chance = random.Random(1)
    placed = place_rows(
        batch,
        topic=topic,
        partition_count=COUNTS.__getitem__,
        named_count=lambda name: COUNTS[name] + added,
        leaderless=lambda _: leaderless,
        rows_per_run=rows_per_run,
        chance=chance,
    )
    return {
        (place.topic, place.partition): placed.rows.column("value").to_pylist()[start:end]
        for place, (start, end) in zip(placed.topic_partitions, pairwise(placed.boundaries), strict=True)
    }


@given(st.lists(row, min_size=1, max_size=60))
def test_every_row_is_placed_once_and_in_order(rows: list[tuple[str, bytes | None, int | None, int]]) -> None:
    rows = [(topic, key, partition, number) for number, (topic, key, partition, _) in enumerate(rows)]
    placed = _place(_batch(rows))
    where = {int(value): place for place, values in placed.items() for value in values}
    assert sorted(where) == list(range(len(rows)))
    for values in placed.values():
        assert values == sorted(values, key=int)
    for topic, key, partition, number in rows:
        assert where[number][0] == topic
        if partition is not None:
            assert where[number][1] == partition
        elif key is not None:
            assert where[number][1] == murmur2_partitions(pa.array([key]), COUNTS[topic])[0]
        else:
            assert 0 <= where[number][1] < COUNTS[topic]


def test_topic_option_takes_precedence_over_the_topic_column() -> None:
    assert {topic for topic, _ in _place(_batch([("b", None, None, 1), (None, None, None, 2)]), topic="a")} == {"a"}


def test_keyless_rows_stay_together_in_runs_and_spread_evenly() -> None:
    sizes = Counter(
        {
            place: len(values)
            for place, values in _place(_batch([("b", None, None, n) for n in range(50)]), rows_per_run=5).items()
        }
    )
    assert sizes == {("b", number): 10 for number in range(5)}


def test_null_topic_is_refused_with_spark_error_text() -> None:
    with pytest.raises(DataError, match="null topic present in the data"):
        _place(_batch([("a", None, None, 1), (None, None, None, 2)]))


@pytest.mark.parametrize("partition", [3, -1])
def test_missing_partition_is_refused(partition: int) -> None:
    with pytest.raises(DataError, match=f"has the value {partition} for topic 'a', which has 3 partitions"):
        _place(_batch([("a", b"k", 0, 1), ("a", b"k", partition, 2), ("a", b"k", None, 3)]))


def test_added_partitions_are_used_only_where_rows_name_them() -> None:
    rows = [("a", b"k", None, 1), ("a", b"k", 4, 2), ("a", None, None, 3), ("b", None, 6, 4)]
    before = _place(_batch([rows[0], rows[2]]))
    assert _place(_batch(rows), added=2) == before | {("a", 4): ["2"], ("b", 6): ["4"]}


def test_no_rows_are_placed_for_empty_input() -> None:
    assert _place(_batch([("a", None, None, 1)]).slice(0, 0)) == {}


def test_keyless_rows_avoid_partitions_without_a_leader() -> None:
    rows = [("b", None, None, number) for number in range(30)]
    sizes = {place: len(values) for place, values in _place(_batch(rows), leaderless={1, 4}, rows_per_run=5).items()}
    assert sizes == {("b", number): 10 for number in (0, 2, 3)}
    everywhere = _place(_batch(rows), leaderless=set(range(5)), rows_per_run=5)
    assert len(everywhere) == 5, "without any leader all partitions are used"


def test_key_or_partition_column_determines_the_partition_even_without_a_leader() -> None:
    rows = [("b", b"k", None, 1), ("b", None, 4, 2)]
    assert murmur2_partitions(pa.array([b"k"]), COUNTS["b"]).tolist() == [2]
    for leaderless in ((), (2, 4)):
        assert _place(_batch(rows), leaderless=leaderless) == {("b", 2): ["1"], ("b", 4): ["2"]}
