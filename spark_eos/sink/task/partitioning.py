"""The partitioner: it chooses the topic-partition of every row as Spark's sink and the Java client do.

Topic: the option, or else the column. Partition: the column if it is not null, or else murmur2 of the key, or else one
random partition for a run of rows (the sticky choice of KIP-480: a random choice for each row would make many tiny
batches). That partition has a leader if any has: without a leader the task would wait until there is one. All of this
works on whole columns.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker_core.types import TopicPartition, counted
from spark_eos.codec.arrow_numbers import arrow_numbers, numbers_of, valid_of
from spark_eos.codec.partitioner import group_rows, murmur2_partitions
from spark_eos.errors import EosKafkaError
from spark_eos.sink import columns

Ids = npt.NDArray[np.int64]


class DataError(EosKafkaError, ValueError):
    """A row that cannot become a record."""


class PlacedRows(NamedTuple):
    """Rows ordered by partition: `topic_partitions[i]` has the rows between two of the boundaries."""

    rows: pa.RecordBatch
    topic_partitions: Sequence[TopicPartition]
    boundaries: Sequence[int]


def place_rows(
    rows: pa.RecordBatch,
    *,
    topic: str | None,
    partition_count: Callable[[str], int],
    named_count: Callable[[str], int],
    leaderless: Callable[[str], Collection[int]],
    rows_per_run: int,
    chance: Random,
) -> PlacedRows:
    """Group the rows by topic-partition, in their order.

    Rows are distributed over the first `partition_count` partitions of a topic, which is the same number in all tasks
    of a micro-batch. They may name partitions up to `named_count`, which is more if the topic has grown since.
    `leaderless` returns a topic's partitions without a leader; it is called only for rows that may go to any partition.
    """
    if not rows.num_rows:
        return PlacedRows(rows, [], [0])
    names, topic_of_row = _topics(rows, topic)
    placed = np.empty(rows.num_rows, dtype=np.int64)
    counts = [partition_count(name) for name in names]
    limits = [named_count(name) for name in names]
    stride = max(limits)
    for number, chosen in _rows_by_topic(topic_of_row) if len(names) > 1 else [(0, None)]:
        of_topic = rows if chosen is None else rows.take(arrow_numbers(chosen))
        given = given_partitions(of_topic)
        _check_given(of_topic, given, names[number], limits[number])
        partitions = given_or_by_key(of_topic, given, counts[number])
        free = np.flatnonzero(partitions < 0)
        if free.size:
            runs = np.arange(len(free)) // max(1, rows_per_run)
            with_leader = sorted(set(range(counts[number])) - set(leaderless(names[number])))
            choices = _choices(int(runs[-1]) + 1, with_leader or range(counts[number]), chance)
            partitions[free] = np.array(choices)[runs]
        placed[slice(None) if chosen is None else chosen] = partitions + number * stride
    groups = group_rows(placed)
    places = [_partitions(name, count) for name, count in zip(names, limits, strict=True)]
    return PlacedRows(
        rows if len(groups.partitions) == 1 else rows.take(arrow_numbers(groups.order)),
        [places[place // stride][place % stride] for place in groups.partitions.tolist()],
        groups.boundaries.tolist(),
    )


def _rows_by_topic(topic_of_row: Ids) -> Iterator[tuple[int, Ids]]:
    groups = group_rows(topic_of_row)
    for number, (start, end) in zip(groups.partitions.tolist(), pairwise(groups.boundaries.tolist()), strict=True):
        yield number, groups.order[start:end]


@lru_cache(maxsize=1024)
def _partitions(topic: str, count: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in range(count))


def _topics(rows: pa.RecordBatch, option: str | None) -> tuple[list[str], Ids]:
    if option is not None:
        return [option], np.zeros(rows.num_rows, dtype=np.int64)
    column = rows.column(columns.TOPIC)
    if column.null_count:
        raise DataError(
            "null topic present in the data",
            remedy="Use the topic option for setting a default topic, or filter the rows without one",
        )
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), numbers_of(encoded.indices).astype(np.int64)


def given_partitions(rows: pa.RecordBatch) -> Ids:
    if columns.PARTITION not in rows.schema.names:
        return np.full(rows.num_rows, -1, dtype=np.int64)
    return numbers_of(rows.column(columns.PARTITION), null=-1).astype(np.int64)


def given_or_by_key(rows: pa.RecordBatch, given: Ids, partition_count: int | Ids) -> Ids:
    """Return each row's partition, or -1 if neither the row nor a key determines it.

    `partition_count` is the topic's, or has one for each row.
    """
    if columns.KEY not in rows.schema.names or not (given < 0).any():
        return given
    return np.where(given < 0, murmur2_partitions(rows.column(columns.KEY), partition_count), given)


def _check_given(rows: pa.RecordBatch, given: Ids, topic: str, partition_count: int) -> None:
    if columns.PARTITION not in rows.schema.names:
        return
    is_given = valid_of(rows.column(columns.PARTITION))
    wrong = given[is_given & ((given < 0) | (given >= partition_count))]
    if wrong.size:
        raise DataError(
            f"The column 'partition' has the value {wrong[0]} for topic {topic!r}, which has "
            f"{counted(partition_count, 'partition')}",
            remedy="Use values from 0 to the number of partitions minus one, or null to have a partition chosen",
        )


def _choices(count: int, partitions: Sequence[int], chance: Random) -> list[int]:
    """Draw partitions evenly: all of them once in random order before any repeats."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += chance.sample(partitions, len(partitions))
    return drawn[:count]
