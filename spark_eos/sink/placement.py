"""Choose the topic-partition of every row as Spark's sink and the Java client do, without touching single rows.

Topic: option, else column. Partition: column where it is not null, else murmur2 of the key, else one random partition
for a run of rows (KIP-480's sticky choice: single random choices would make many tiny batches), one that has a leader
as long as any has: the others would hold the task until their leader is back.
"""

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.types import TopicPartition
from spark_eos.codec.partitioner import group_rows, murmur2_partitions
from spark_eos.errors import EosKafkaError
from spark_eos.sink import columns

Ids = npt.NDArray[np.int64]


class DataError(EosKafkaError, ValueError):
    """Refuse a row that no record can be made of."""


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Hold the rows that go to one topic-partition, in their order."""

    topic_partition: TopicPartition
    rows: pa.RecordBatch


class OrderedRows(NamedTuple):
    """Hold rows in the order of their places: `topic_partitions[i]` gets those between two of the boundaries."""

    rows: pa.RecordBatch
    topic_partitions: Sequence[TopicPartition]
    boundaries: Sequence[int]


def place_rows(
    rows: pa.RecordBatch,
    *,
    topic: str | None,
    partition_count: Callable[[str], int],
    leaderless: Callable[[str], Collection[int]],
    rows_per_run: int,
    chance: random.Random,
) -> Iterator[PlacedRows]:
    """Split rows by topic-partition; every row is placed before the first is handed out.

    `leaderless` names a topic's partitions without a leader; it is asked only for rows that may go anywhere.
    """
    ordered = order_rows(
        rows, topic=topic, partition_count=partition_count, leaderless=leaderless, rows_per_run=rows_per_run,
        chance=chance,
    )
    spans = zip(ordered.topic_partitions, ordered.boundaries, ordered.boundaries[1:], strict=False)
    for topic_partition, start, end in spans:
        yield PlacedRows(topic_partition, ordered.rows.slice(start, end - start))


def order_rows(
    rows: pa.RecordBatch,
    *,
    topic: str | None,
    partition_count: Callable[[str], int],
    leaderless: Callable[[str], Collection[int]],
    rows_per_run: int,
    chance: random.Random,
) -> OrderedRows:
    """Place rows as `place_rows` does and put those of each topic-partition beside each other, uncut."""
    if not rows.num_rows:
        return OrderedRows(rows, [], [0])
    names, topic_of_row = _topics(rows, topic)
    placed = np.empty(rows.num_rows, dtype=np.int64)
    counts = [partition_count(name) for name in names]
    stride = max(counts)
    for number, name in enumerate(names):
        chosen = None if len(names) == 1 else np.flatnonzero(topic_of_row == number)
        of_topic = rows if chosen is None else rows.take(pa.array(chosen))
        partitions = _given_or_by_key(of_topic, name, counts[number])
        free = np.flatnonzero(partitions < 0)
        if free.size:
            runs = np.arange(len(free)) // max(1, rows_per_run)
            with_leader = sorted(set(range(counts[number])) - set(leaderless(name)))
            choices = _choices(int(runs[-1]) + 1, with_leader or range(counts[number]), chance)
            partitions[free] = np.array(choices)[runs]
        placed[slice(None) if chosen is None else chosen] = partitions + number * stride
    groups = group_rows(placed)
    places = [_partitions(name, count) for name, count in zip(names, counts, strict=True)]
    return OrderedRows(
        rows if len(groups.partitions) == 1 else rows.take(pa.array(groups.order)),
        [places[place // stride][place % stride] for place in groups.partitions.tolist()],
        groups.boundaries.tolist(),
    )


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
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _given_or_by_key(rows: pa.RecordBatch, topic: str, partition_count: int) -> Ids:
    """Give each row's partition, -1 where neither the partition column nor a key says it."""
    partitions = np.full(rows.num_rows, -1, dtype=np.int64)
    if columns.PARTITION in rows.schema.names:
        given = pc.fill_null(rows.column(columns.PARTITION), -1).to_numpy(zero_copy_only=False).astype(np.int64)
        _check_given(rows, given, topic, partition_count)
        partitions = given
    if columns.KEY in rows.schema.names and (partitions < 0).any():
        by_key = murmur2_partitions(rows.column(columns.KEY), partition_count)
        partitions = np.where(partitions < 0, by_key, partitions)
    return partitions


def _check_given(rows: pa.RecordBatch, given: Ids, topic: str, partition_count: int) -> None:
    is_given = pc.is_valid(rows.column(columns.PARTITION)).to_numpy(zero_copy_only=False)
    wrong = given[is_given & ((given < 0) | (given >= partition_count))]
    if wrong.size:
        raise DataError(
            f"The column 'partition' has {wrong[0]} for topic {topic!r}, which has {partition_count} partitions",
            remedy="Give 0 to the number of partitions less one, or null to have one chosen",
        )


def _choices(count: int, partitions: Sequence[int], chance: random.Random) -> list[int]:
    """Draw partitions evenly: all of them once in random order before any comes again."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += chance.sample(partitions, len(partitions))
    return drawn[:count]
