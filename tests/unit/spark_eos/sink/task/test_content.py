"""The counts and checksums of a task's rows, which a re-run of a decided micro-batch compares."""

import itertools
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.types import ProducerIdentity
from spark_eos.codec.row_checksum import hash_rows
from spark_eos.errors import DifferentRowsError, OptionError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared, TaskMessage
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange
from spark_eos.sink.protocol.rerun_checks import check_topic, check_write, rows_of
from spark_eos.sink.task.batching import RowCounter
from tests.support.examples import examples
from tests.support.spark_eos.driving import check_rows

QUERY = "8a1c0d3e-0000-4000-8000-000000000001"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
READABLE_CHARACTERS = 3_000

# Counting

times = st.none() | st.integers(-(2**40), 2**40)
row_fields = st.tuples(
    st.sampled_from(["a", "b", "c.d"]),
    st.none() | st.text(max_size=9),
    st.none() | st.binary(max_size=9),
    st.none() | st.integers(0, 9),
    times,
    st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)


def batch_of(rows: Sequence[tuple[Any, ...]]) -> tuple[pa.RecordBatch, pa.Array]:
    topics, keys, values, partitions, timestamps, headers = zip(*rows, strict=True) if rows else [()] * 6
    pairs = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    return pa.record_batch(
        {
            "topic": pa.array(topics, pa.string()),
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
            "headers": pa.array(pairs, HEADERS),
        }
    ), pa.array(timestamps, pa.int64())


def naive(rows: Sequence[tuple[Any, ...]], option: str | None) -> tuple[TopicRows, ...]:
    """Count one row at a time."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        batch, timestamp = batch_of([row])
        total = totals[option or row[0]]
        total[0] += 1
        total[1] += int(
            hash_rows(
                value=batch["value"],
                key=batch["key"],
                headers=batch["headers"],
                partition=batch["partition"],
                timestamp_ms=timestamp,
            )[0]
        )
    return tuple(TopicRows(topic, count, total % 2**64) for topic, (count, total) in sorted(totals.items()))


@given(st.lists(row_fields, max_size=12), st.lists(st.integers(0, 12), max_size=3), st.sampled_from([None, "t"]))
@examples(100)
def test_rows_are_counted_by_topic_for_any_chunking(
    rows: list[tuple[Any, ...]], cuts: list[int], option: str | None
) -> None:
    counter = RowCounter(option)
    bounds = [0, *sorted(cuts), len(rows)]
    for start, end in itertools.pairwise(bounds):
        counter.add(*batch_of(rows[start:end]))
    assert counter.rows() == naive(rows, option)


def test_missing_columns_count_as_nulls() -> None:
    counter, other = RowCounter("t"), RowCounter("t")
    counter.add(pa.record_batch({"value": pa.array(["x", None])}), None)
    other.add(*batch_of([("b", None, None, None, None, None), ("a", None, b"x", None, None, [])]))
    assert counter.rows() == other.rows() == (TopicRows("t", 2, counter.rows()[0].checksum),)


def test_row_without_a_topic_counts_as_a_difference() -> None:
    """A write would refuse the row; a re-run must not accept it only because it writes nothing."""
    counter = RowCounter(None)
    counter.add(pa.record_batch({"value": pa.array(["x", "y"]), "topic": pa.array(["t", None])}), None)
    whole = RowCounter(None)
    whole.add(pa.record_batch({"value": pa.array(["x"]), "topic": pa.array(["t"])}), None)
    with pytest.raises(DifferentRowsError, match="without a topic"):
        check_rows(decided([whole.rows()]), repeated([counter.rows()]), is_job=False, accept_difference=False)


def test_row_whose_topic_is_no_text_counts_as_a_difference() -> None:
    counter = RowCounter(None)
    counter.add(pa.record_batch({"value": pa.array(["x"]), "topic": pa.array([b"\xff"]).view(pa.string())}), None)
    assert [(each.topic, each.record_count) for each in counter.rows()] == [("\ufffd", 1)]


# Comparing


def prepared(split: int, rows: Sequence[TopicRows]) -> PreparedTransaction:
    ranges = tuple(WrittenRange(each.topic, 0, 0, each.record_count - 1, each.record_count) for each in rows)
    return PreparedTransaction(
        split,
        OpenTransaction(f"id{split}", ProducerIdentity(split, 0), 2),
        60_000,
        5,
        ranges,
        tuple(rows),
    )


def decided(tasks: Sequence[Sequence[TopicRows]], **fields: Any) -> Decision:
    found = tuple(prepared(split, rows) for split, rows in enumerate(tasks) if rows)
    return Decision(
        **{
            "prefix": "p",
            "query": QUERY,
            "run": "run1",
            "micro_batch": 7,
            "attempt": 1,
            "split_count": len(tasks),
            "decided_at_ms": 0,
            "transactions": found,
            **fields,
        }
    )


def repeated(tasks: Sequence[Sequence[TopicRows]]) -> list[TaskMessage]:
    return [AlreadyCommitted(Place(QUERY, "run2", 7, split), tuple(rows)) for split, rows in enumerate(tasks)]


def check(
    decision: Decision,
    tasks: Sequence[Sequence[TopicRows]],
    *,
    is_job: bool = False,
    accept: bool = False,
    by_task: bool = False,
) -> None:
    check_rows(decision, repeated(tasks), is_job=is_job, accept_difference=accept, by_task=by_task)


def t(count: int, checksum: int | None, topic: str = "t") -> TopicRows:
    return TopicRows(topic, count, checksum)


SAME = [
    ([[t(2, 5)], [t(3, 9)]], [[t(2, 5)], [t(3, 9)]]),
    ([[t(2, 5)], [t(3, 9)]], [[t(3, 9)], [t(2, 5)]]),
    ([[t(2, 5)], [t(3, 9)]], [[t(5, 14)]]),
    ([[t(2, 5)], []], [[], [t(1, 2)], [t(1, 3)], []]),
    ([[t(1, 2**64 - 1)], [t(1, 3)]], [[t(2, 2)]]),
    ([[t(1, 1, "a"), t(1, 2, "b")]], [[t(1, 2, "b")], [t(1, 1, "a")]]),
    ([[t(1, 1, "a")]], [[t(1, 1, "a"), t(0, 0, "b")]]),
]


@pytest.mark.parametrize(("before", "now"), SAME)
def test_equal_rows_compare_equal_for_any_distribution_over_tasks(
    before: list[list[TopicRows]], now: list[list[TopicRows]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        check(decided(before), now)
    assert not caplog.records


DIFFERENT = [
    ([[t(2, 5)]], [[t(2, 6)]], "topic 't': 2 rows written before, now 2 different rows; they differ in task 0"),
    ([[t(2, 5)], [t(1, 1)]], [[t(2, 5)], []], "3 rows written before, now 2 rows; they differ in task 1"),
    ([[t(2, 5)]], [[]], "2 rows written before, now 0 rows"),
    ([[t(2, 5)]], [[t(2, 5), t(1, 7, "u")]], "topic 'u': 0 rows written before, now 1 row"),
    (
        [[t(2, 5, "a"), t(2, 6, "b")]],
        [[t(2, 6, "a"), t(2, 5, "b")]],
        "'a': .* 2 different rows; topic 'b': .* 2 different rows",
    ),
    ([[t(2, 5)], [t(2, 5)]], [[t(5, 10)]], "4 rows .* 5 rows; the number of tasks differs as well"),
    ([[t(1, 2**63)], [t(1, 2**63)]], [[t(2, 1)]], "2 different rows"),
]


@pytest.mark.parametrize(("before", "now", "text"), DIFFERENT)
@pytest.mark.parametrize("is_job", [True, False])
def test_different_rows_stop_the_query_and_only_as_many_are_discarded_on_request(
    before: list[list[TopicRows]], now: list[list[TopicRows]], text: str, is_job: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DifferentRowsError, match=text) as caught:
        check(decided(before), now, is_job=is_job)
    for part in (
        QUERY,
        "run run1 at 1970-01-01 00:00:00 UTC",
        "nothing was written",
        "discardDifferingRows=true",
        "jobId" if is_job else "micro-batch",
    ):
        assert part in str(caught.value), part
    if re.search(r"\d different rows", text):
        with caplog.at_level(logging.WARNING):
            check(decided(before), now, is_job=is_job, accept=True)
        assert "rows of this re-run are discarded" in caplog.text
        return
    with pytest.raises(DifferentRowsError, match="does not accept another number of rows"):
        check(decided(before), now, is_job=is_job, accept=True)


@pytest.mark.parametrize("is_job", [True, False])
@pytest.mark.parametrize(("before", "now"), SAME[1:4])
def test_by_task_comparison_requires_equal_rows_per_task(
    before: list[list[TopicRows]], now: list[list[TopicRows]], is_job: bool
) -> None:
    check(decided(before), before, by_task=True)
    with pytest.raises(
        DifferentRowsError, match=r"with its rows in other tasks: topic 't': the same \d rows"
    ) as caught:
        check(decided(before), now, by_task=True, is_job=is_job)
    for way_to_write_them_twice in ("their own jobId", "UUID", "set discardDifferingRows"):
        assert way_to_write_them_twice not in str(caught.value)


def test_by_task_comparison_accepts_no_difference() -> None:
    """Some tasks write and others do not: rows moved between them would be lost or written twice."""
    before, now = [[t(2, 5)], [t(2, 9)]], [[t(2, 6)], [t(2, 8)]]
    with pytest.raises(DifferentRowsError, match="they differ in tasks 0, 1") as caught:
        check(decided(before), now, by_task=True, accept=True)
    assert "onLostTransaction=rewrite" in str(caught.value)
    assert "set discardDifferingRows" not in str(caught.value)


def test_rows_prepared_before_the_decision_was_seen_are_compared() -> None:
    rows = (t(2, 5),)
    messages: list[TaskMessage] = [
        Prepared(Place(QUERY, "run2", 7, 0), prepared(0, rows)),
        AlreadyCommitted(Place(QUERY, "run2", 7, 1), (t(1, 1),)),
        Empty(Place(QUERY, "run2", 7, 2)),
    ]
    assert [rows_of(message) for message in messages] == [rows, (t(1, 1),), ()]
    check_rows(decided([rows, [t(1, 1)], []]), messages, is_job=False, accept_difference=False)
    with pytest.raises(DifferentRowsError):
        check_rows(decided([rows, [t(1, 2)], []]), messages, is_job=False, accept_difference=False)


# Messages


@pytest.mark.parametrize("is_same_plan", [True, False])
@pytest.mark.parametrize("by_task", [True, False])
def test_messages_stay_readable_with_very_many_topics_and_tasks(is_same_plan: bool, by_task: bool) -> None:
    topics = [f"topic-{number:04}" for number in range(1_000)]
    tasks = [[t(1, 1, topics[split % 1_000])] for split in range(5_000)]
    others = [[t(1, 2, topics[split % 1_000])] for split in range(5_000)]
    with pytest.raises(DifferentRowsError) as caught:
        check(decided(tasks), others if is_same_plan else others[:-1], by_task=by_task)
    text = str(caught.value)
    assert len(text) < READABLE_CHARACTERS
    assert "topic 'topic-0000': 5 rows written before" in text and "990 more topics" in text
    if is_same_plan:
        assert "they differ in tasks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4990 more" in text


def test_different_topic_is_reported_with_the_topics_written() -> None:
    topics = [f"topic-{number:04}" for number in range(1_000)]
    decision = decided([[t(1, 1, topic) for topic in topics]])
    for topic in (None, topics[0], topics[-1]):
        check_topic(decision, topic, is_job=False)
    with pytest.raises(DifferentRowsError, match="and 990 more; now it would be written to topic 'new'") as caught:
        check_topic(decision, "new", is_job=False)
    assert len(str(caught.value)) < READABLE_CHARACTERS
    assert "discardDifferingRows" not in str(caught.value), "the remedy does not suggest the option for another topic"
    with pytest.raises(DifferentRowsError, match=f"The job with jobId={QUERY} was already written, to topic 't'"):
        check_topic(decided([[t(1, 1)]]), "new", is_job=True)


# Two writes under one name


WRITE = {"query": f"{QUERY}/orders", "write": "first"}


def test_remedy_for_two_writes_keeps_the_name_of_the_committed_one() -> None:
    """A new name would write its rows again; after a restart the second write looks like a re-run."""
    decision = decided([[t(2, 5)]], **WRITE)
    with pytest.raises(OptionError) as refused:
        check_write(decision, "run1", "second")
    with pytest.raises(DifferentRowsError) as differs:
        check(decision, [[t(3, 7)]])
    for caught in (refused, differs):
        assert "keep the name 'orders' for the first write" in str(caught.value)
        assert 'option("writeName", ...)' in str(caught.value)
    with pytest.raises(DifferentRowsError) as of_stream:
        check(decided([[t(2, 5)]]), [[t(3, 7)]])
    assert "writeName" not in str(of_stream.value)
