"""The conversion of a task's Arrow batches to record batches for topic-partitions, and the count of its rows."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.types import NO_TIMESTAMP, TopicPartition
from spark_eos.codec.accumulator import RecordAccumulator
from spark_eos.codec.arrow_numbers import arrow_numbers, numbers_of, valid_of
from spark_eos.codec.columns import texts_of
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.codec.row_checksum import hash_rows, sum_of
from spark_eos.errors import RecordTooLargeError
from spark_eos.options.sink import TOPIC_NAME_RULE, SinkOptions, is_topic_name
from spark_eos.readable import utc
from spark_eos.runtime import now_ms
from spark_eos.sink import columns
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.messages import Place
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.rerun_checks import CHECKSUMS, NO_TOPIC
from spark_eos.sink.task.partitioning import DataError, PlacedRows, place_rows

# Rows are gathered up to this size, because a Spark batch that is spread over many partitions makes small record
# batches. Much larger arrays are mapped and cleared again for every chunk, and placing and encoding take 20% longer.
CHUNK_BYTES: Final = 4 * 1024 * 1024
# Requested for every chunk of rows without keys; a partition that loses its leader in between is waited for.
_LEADERS_KNOWN_MS: Final = 5_000


class RowCounter:
    """The counts and checksums of one task's rows, for decisions; `topic` is None if a column names it."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._counts: Counter[str] = Counter()
        self._checksums: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch, timestamp_ms: Any) -> None:
        """Add rows; `timestamp_ms` is the array of times that the user gave, or None."""
        if not rows.num_rows:
            return
        hashes = hash_rows(
            value=rows.column(columns.VALUE),
            key=columns.column_of(rows, columns.KEY),
            headers=columns.column_of(rows, columns.HEADERS),
            partition=columns.column_of(rows, columns.PARTITION),
            timestamp_ms=timestamp_ms,
        )
        if self._topic is not None:
            self._counts[self._topic] += rows.num_rows
            self._checksums[self._topic] += sum_of(hashes)
            return
        encoded = rows.column(columns.TOPIC).dictionary_encode()
        numbers = numbers_of(encoded.indices, null=len(encoded.dictionary))
        # The last entry is for rows without a topic: they are refused where rows are written, so none was decided.
        sums = np.zeros(len(encoded.dictionary) + 1, np.uint64)
        np.add.at(sums, numbers, hashes)
        counts = np.bincount(numbers, minlength=len(sums))
        topics = [*texts_of(encoded.dictionary, columns.TOPIC), NO_TOPIC]
        for topic, count, checksum in zip(topics, counts.tolist(), sums.tolist(), strict=True):
            if count:
                self._counts[topic] += count
                self._checksums[topic] += checksum

    def rows(self) -> tuple[TopicRows, ...]:
        return tuple(
            TopicRows(topic, count, self._checksums[topic] % CHECKSUMS) for topic, count in sorted(self._counts.items())
        )


def given_timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Return the given timestamps in milliseconds, null where there is none; None without such a column."""
    if columns.TIMESTAMP not in rows.schema.names:
        return None
    in_us = rows.column(columns.TIMESTAMP).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded down, as Spark does, also before 1970.
    return arrow_numbers(numbers_of(in_us) // 1000, valid_of(in_us))


class PlacedBatches(NamedTuple):
    """Batches in the order in which to send them, and the partitions of the rows in these and later ones."""

    topic_partitions: Collection[TopicPartition]
    batches: Iterator[tuple[TopicPartition, EncodedBatch]]


class BatchBuilder:
    """The encoder of chunks of rows into record batches for each topic-partition.

    Rows that do not fill a batch wait here for more, up to half of `buffer.memory`; the other half is the producer's.
    """

    def __init__(self, options: SinkOptions, cluster: KafkaCluster, place: Place) -> None:
        self._options = options
        self._cluster = cluster
        self._micro_batch = place._replace(split=0)
        # Of the driver, or else of this process: one count for all tasks, so that a key has one partition.
        self._counts: dict[str, int] = {}
        if options.topic is not None and options.partition_count is not None:
            self._counts[options.topic] = options.partition_count
        # The partitions that rows may name: more than that if some were added since.
        self._named: dict[str, int] = {}
        self._clock = cluster.runtime.clock
        self._chance = cluster.runtime.random.generator()
        self._batches: RecordAccumulator[TopicPartition] = RecordAccumulator(
            max_batch_bytes=lambda place: cluster.batch_bytes(place.topic, options.batch_bytes),
            max_open_bytes=options.buffer_bytes // 2,
            check_record_bytes=self._check_record_bytes,
            compression=options.compression,
            level=options.compression_level,
        )
        self.counter = RowCounter(options.topic)
        self.size_bytes = 0
        # The newest time that rows were given, by topic.
        self.newest_ms: dict[str, int] = {}

    def place(self, rows: pa.RecordBatch) -> PlacedBatches:
        """Assign a chunk of rows to partitions; the full batches are encoded as they are read."""
        self.size_bytes += rows.nbytes
        placed = self._order(rows)
        ordered = placed.rows
        given = given_timestamps(ordered)
        timestamps: Any = now_ms(self._clock)
        if given is not None:
            _check_times(given)
            times = numbers_of(given, null=timestamps)
            timestamps = arrow_numbers(times)
            for place, newest in zip(
                placed.topic_partitions, np.maximum.reduceat(times, placed.boundaries[:-1]).tolist(), strict=True
            ):
                self.newest_ms[place.topic] = max(newest, self.newest_ms.get(place.topic, newest))
        self.counter.add(ordered, given)
        return PlacedBatches(
            placed.topic_partitions,
            self._batches.add(
                placed.topic_partitions,
                placed.boundaries,
                key=columns.column_of(ordered, columns.KEY),
                value=ordered.column(columns.VALUE),
                headers=columns.column_of(ordered, columns.HEADERS),
                timestamp_ms=timestamps,
            ),
        )

    def rest(self) -> PlacedBatches:
        return PlacedBatches((), self._batches.close())

    def _order(self, rows: pa.RecordBatch) -> PlacedRows:
        topics = self._topics(rows)
        unknown = [topic for topic in topics if topic not in self._counts]
        if unknown:
            self._counts.update(self._cluster.known_counts(unknown, self._micro_batch))
        try:
            return self._order_as_known(rows, topics)
        except DataError:
            # A partition that is named in a row may have just been added.
            self._named.update(self._cluster.partition_counts(topics))
            return self._order_as_known(rows, topics)

    def _order_as_known(self, rows: pa.RecordBatch, topics: Sequence[str]) -> PlacedRows:
        @cache
        def leaderless() -> Mapping[str, Collection[int]]:
            return self._cluster.leaderless_partitions(topics, _LEADERS_KNOWN_MS)

        return place_rows(
            rows,
            topic=self._options.topic,
            partition_count=self._counts.__getitem__,
            named_count=lambda topic: max(self._counts[topic], self._named.get(topic, 0)),
            leaderless=lambda topic: leaderless().get(topic, ()),
            rows_per_run=self._options.batch_bytes * rows.num_rows // max(1, rows.nbytes),
            chance=self._chance,
        )

    def _check_record_bytes(self, size_bytes: int) -> None:
        limit = self._options.max_request_bytes
        if size_bytes > limit:
            raise RecordTooLargeError(
                f"A record is {size_bytes} bytes when serialized, which is larger than {limit}, the value of "
                "kafka.max.request.size",
                checked="The largest record of a group of rows, before it was sent",
                remedy=f"Set kafka.max.request.size to {size_bytes} or more, and max.message.bytes of the topic as "
                "well, or make the records smaller",
            )

    def _topics(self, rows: pa.RecordBatch) -> Sequence[str]:
        topics = self._named_topics(rows)
        if self._options.decision_topic in topics:
            raise DataError(
                f"There are rows for '{self._options.decision_topic}', where this sink writes its decisions",
                checked="The topic is compacted: of rows with equal keys only the last one would stay",
                remedy="Write them to another topic",
            )
        return topics

    def _named_topics(self, rows: pa.RecordBatch) -> Sequence[str]:
        if self._options.topic is not None:
            return [self._options.topic]
        found = texts_of(pc.unique(rows.column(columns.TOPIC)).drop_null(), columns.TOPIC)
        wrong = [topic for topic in found if topic not in self._counts and not is_topic_name(topic)]
        if wrong:
            raise DataError(
                f"The column 'topic' has the value {wrong[0]!r}, which cannot be the name of a topic",
                remedy=f"{TOPIC_NAME_RULE}, or filter the rows without a topic",
            )
        return found


def _check_times(given: pa.Array) -> None:
    earliest = pc.min(given).as_py()
    if earliest is not None and earliest < NO_TIMESTAMP:
        raise DataError(
            f"The column 'timestamp' has the value {utc(earliest)}, which is before 1970",
            checked="Brokers would accept it, but Java's producer refuses it, and so do applications that copy the "
            "record with its time; look-ups by time skip the record",
            remedy="Use null for the time of writing, or drop the column, and keep such a time in the value",
        )


def gather(arrow_batches: Iterator[pa.RecordBatch], chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small Arrow batches and split large ones to about `chunk_bytes`; drop columns that are not used."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for whole in arrow_batches:
        for part in _cut(whole.select([name for name in columns.NAMES if name in whole.schema.names]), chunk_bytes):
            if held and held_bytes + part.nbytes > chunk_bytes:
                yield _join(held)
                held, held_bytes = [], 0
            held.append(part)
            held_bytes += part.nbytes
    if held:
        yield _join(held)


def _cut(rows: pa.RecordBatch, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    step = max(1, rows.num_rows * chunk_bytes // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _join(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
