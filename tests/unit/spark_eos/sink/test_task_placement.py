"""The place of each row among the tasks of a placed DataFrame, compared with the partition that the sink chooses."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from spark_eos.errors import OptionError
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.task.partitioning import place_rows
from spark_eos.sink.task_placement import Slots, check_placeable, default_tasks

COUNTS = {"a": 3, "b": 5, "c": 1}
ROWS = st.lists(
    st.tuples(st.sampled_from(sorted(COUNTS)), st.none() | st.binary(max_size=30), st.none() | st.just(0)), max_size=60
)


def options(topic: str | None = None) -> SinkOptions:
    return SinkOptions(ClientOptions(("localhost:9092",)), topic=topic)


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@given(ROWS, st.integers(1, 4), st.booleans())
def test_rows_of_one_task_have_the_partition_that_the_sink_chooses(
    rows: list[tuple[str, bytes | None, int | None]], share: int, by_column: bool
) -> None:
    names, keys, partitions = ([row[field] for row in rows] for field in range(3))
    counts = COUNTS if by_column else {"b": COUNTS["b"]}
    topic_names = [name if by_column else "b" for name in names]
    slots = Slots(counts, share, None if by_column else "b", ["topic", "key", "partition"])
    # Spark passes -1 for a row that names no partition: pandas has no null of an integer.
    columns = [
        pa.array(names, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array([-1 if number is None else number for number in partitions], pa.int32()),
    ]
    placed = slots(columns).to_pylist()
    assert all((slot < 0) == (row[1] is None and row[2] is None) for slot, row in zip(placed, rows, strict=True))
    batch = pa.record_batch(
        {
            "topic": pa.array(topic_names, pa.string()),
            "key": columns[1],
            "partition": pa.array(partitions, pa.int32()),
            "value": pa.array([str(number) for number in range(len(rows))]),
        }
    )
    by_sink = place_rows(
        batch,
        topic=None,
        partition_count=counts.__getitem__,
        named_count=counts.__getitem__,
        leaderless=lambda _: (),
        rows_per_run=1,
        chance=random.Random(1),
    )
    found: dict[int, object] = {}
    tasks: dict[object, set[int]] = {}
    for place, (start, end) in zip(by_sink.topic_partitions, pairwise(by_sink.boundaries), strict=True):
        for number in by_sink.rows.column("value").to_pylist()[start:end]:
            slot = placed[int(number)]
            if slot >= 0:
                assert slot < slots.count
                assert found.setdefault(slot, place) == place
                tasks.setdefault(place, set()).add(slot)
    assert all(len(slots_of_one) <= share for slots_of_one in tasks.values())


def test_keys_of_one_partition_are_divided_over_spare_tasks() -> None:
    keys = pa.array([str(number) for number in range(1000)])
    few, many = (Slots({"b": 5}, share, "b", ["key"])([keys]).to_pylist() for share in (1, 4))
    assert sorted(set(few)) == list(range(5))
    assert sorted(set(many)) == list(range(20))
    assert [slot % 5 for slot in many] == few


def test_rows_of_a_topic_that_is_not_listed_are_spread() -> None:
    topics = pa.array([b"new"] * 999 + [b"\xff", None]).view(pa.string())
    keys = pa.array([str(number) for number in range(1001)])
    placed = Slots(COUNTS, 1, None, ["topic", "key"])([topics, keys]).to_pylist()
    assert sorted(set(placed)) == list(range(sum(COUNTS.values())))


def test_no_rows_have_no_places() -> None:
    assert Slots({"b": 5}, 1, "b", ["key"])([pa.array([], pa.string())]).to_pylist() == []


def test_columns_of_pandas_give_a_column_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    slots = Slots(COUNTS, 2, None, ["topic", "key"])
    columns = [["a", "b", None, "b"], ["1", None, "2", "ä"]]
    from_pandas = slots([pandas.Series(column, dtype=object) for column in columns])
    assert isinstance(from_pandas, pandas.Series)
    assert from_pandas.tolist() == slots([pa.array(column) for column in columns]).to_pylist()


@pytest.mark.parametrize(
    ("columns", "topic", "topics", "tasks", "partitions", "message"),
    [
        ({"value": StringType()}, "t", (), None, None, "no column 'key' or 'partition'"),
        ({"value": StringType(), "topic": StringType()}, "t", (), None, None, "no column 'key' or 'partition'"),
        ({"value": StringType(), "key": IntegerType()}, "t", (), None, None, "key attribute unsupported type int"),
        ({"key": BinaryType()}, "t", (), None, None, "Required attribute 'value' not found"),
        ({"value": StringType(), "key": StringType()}, None, (), None, None, "topic option required"),
        (
            {"value": StringType(), "key": StringType(), "topic": StringType()},
            None,
            (),
            None,
            None,
            "'topics' is empty",
        ),
        ({"value": StringType(), "key": StringType()}, "t", ("t",), None, None, "both 'topic' and 'topics'"),
        (
            {"value": StringType(), "key": StringType(), "topic": StringType()},
            None,
            "orders",
            None,
            None,
            "'topics' is the text 'orders'",
        ),
        ({"value": StringType(), "key": StringType()}, "t", (), 0, None, "'tasks' is 0"),
        ({"value": StringType(), "key": StringType()}, "t", (), None, -1, "'partitions' is -1"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    columns: dict[str, object],
    topic: str | None,
    topics: tuple[str, ...] | str,
    tasks: int | None,
    partitions: int | None,
    message: str,
) -> None:
    with pytest.raises(OptionError, match=message):
        check_placeable(schema(**columns), options(topic), topics, tasks, partitions)


@pytest.mark.parametrize(
    ("shuffle_partitions", "cores", "tasks"),
    [("200", 2, 8), ("5", 2, 5), ("200", 100, 90), ("auto", 2, 8), ("auto", None, 90), ("50", None, 50)],
)
def test_default_is_four_tasks_for_each_core_and_no_more_than_partitions(
    shuffle_partitions: str, cores: int | None, tasks: int
) -> None:
    """A session of Spark Connect has no context, and Databricks chooses the shuffle's partitions itself."""
    session = SimpleNamespace(conf={"spark.sql.shuffle.partitions": shuffle_partitions})
    if cores is not None:
        session.sparkContext = SimpleNamespace(defaultParallelism=cores)
    assert default_tasks(session, 90) == tasks
