"""Write the rows of one task into one transaction and leave it open for the driver's verdict."""

import logging
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.codec.encode import EncodedBatch, encode_batches
from spark_eos.errors import EosKafkaError
from spark_eos.sink import columns
from spark_eos.sink.content import RowCounter, check_topic, check_write
from spark_eos.sink.decision_log import DecisionLog
from spark_eos.sink.messages import (
    AlreadyCommitted,
    Empty,
    Prepared,
    PreparedTransaction,
    TaskMessage,
    WrittenRange,
)
from spark_eos.sink.placement import place_rows
from spark_eos.sink.pool import IdentityPool, TaskIdentity, TaskSet, is_worker_kept
from spark_eos.sink.ports import Cluster
from spark_eos.sink.recovery import Course, course_of_task, rolled_back_error, utc
from spark_eos.sink_options import FALLBACK_TIMEOUT_MS, SinkOptions

LOG: Final = logging.getLogger("spark_eos.sink")
_USED_COLUMNS: Final = (
    columns.KEY, columns.VALUE, columns.TOPIC, columns.HEADERS, columns.PARTITION, columns.TIMESTAMP,
)
# Rows are gathered up to this much, since a Spark batch spread over many partitions makes small record batches. Arrays
# much larger than this are mapped and cleared anew for every chunk, and placing and encoding take a fifth more time.
_CHUNK_BYTES: Final = 4 * 1024 * 1024


class TransactionPort(Protocol):
    """Be the producer of one transaction at a time."""

    def begin(self, identity: TaskIdentity) -> None:
        """Get ready to send under an identity; nothing goes to a broker yet."""

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Send batches in order; waits while the buffer is full."""

    @property
    def retries(self) -> int:
        """Count the requests sent again, over all transactions of this object."""

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged; the transaction stays open."""

    def abort(self) -> None:
        """Abort the open transaction."""


@dataclass(frozen=True, slots=True)
class Place:
    """Say which task of which micro-batch this is."""

    query: str
    run: str
    micro_batch: int
    split: int
    # One call of a batch write; a stream has none.
    write: str = ""


@dataclass(slots=True)
class TaskWriter:
    """Write one task's rows.

    `log` is None where an earlier decision cannot exist: a batch job without a job id of its own. `task_set` is None
    where two attempts of a task may run at a time.
    """

    options: SinkOptions
    place: Place
    cluster: Cluster
    pool: IdentityPool
    transaction: TransactionPort
    log: DecisionLog | None
    task_set: TaskSet | None = None

    def write(self, arrow_batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Prepare the rows, or say that there is nothing to prepare; aborts what it began when anything fails."""
        place = self.place
        failpoints.reach("task.begin", place.micro_batch)
        chunks = gather(arrow_batches, min(_CHUNK_BYTES, self.options.buffer_bytes // 4))
        if self._is_decided():
            return self._compare(chunks)
        first = next(chunks, None)
        if first is None:
            return Empty(place.query, place.run, place.micro_batch, place.split)
        return self._prepare(first, chunks)

    def _compare(self, chunks: Iterator[pa.RecordBatch]) -> AlreadyCommitted:
        """Read the rows to their end without writing them: the driver judges whether they are those that were decided.

        One task cannot tell: a re-run may give each task other rows, and all of them together the same.
        """
        counter = RowCounter(self.options.topic)
        for rows in chunks:
            counter.add(rows, _given_timestamps(rows))
        place = self.place
        return AlreadyCommitted(place.query, place.run, place.micro_batch, place.split, counter.rows())

    def _is_decided(self) -> bool:
        """Say whether an earlier decision is known to cover this task's rows, so that they need not be written."""
        earlier = self.log.pointed(self.place.micro_batch, self.place.write) if self.log is not None else None
        if earlier is None:
            return False
        if earlier.micro_batch > self.place.micro_batch:
            raise rolled_back_error(earlier, self.place.micro_batch)
        check_write(earlier, self.place.run, self.place.write)
        failpoints.reach("task.before_settle", self.place.micro_batch)
        course = course_of_task(self.cluster, earlier, self.place.split, self.options.on_lost_transaction)
        failpoints.reach("task.settled", self.place.micro_batch)
        # Of a job this may be news: its name was used before, and nothing of what it has computed is written.
        level = logging.WARNING if self.options.job_id is not None and course is Course.SKIP else logging.INFO
        LOG.log(level, "task %s: decided by run %s at %s, now %s", self.place, earlier.run,
                utc(earlier.decided_at_ms), course.name)
        if course is Course.WRITE:
            return False
        if not earlier.is_skipped:
            check_topic(earlier, self.options.topic, is_job=self.options.job_id is not None)
        return True

    def _prepare(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Prepared:
        started = time.monotonic()
        micro_batch = self.place.micro_batch
        timeout_ms = self.options.transaction_timeout_ms or FALLBACK_TIMEOUT_MS
        # Places are found before the transaction begins, so that a wrong first row costs nobody anything.
        placer = _Placer(self.options, self.cluster)
        sends = placer.place(first)
        failpoints.reach("task.before_identity", micro_batch)
        identity = self.pool.take(timeout_ms, micro_batch, self.task_set)
        started_at_ms = time.time_ns() // 1_000_000
        self.transaction.begin(identity)
        try:
            failpoints.reach("task.before_write", micro_batch)
            self._send(sends)
            for rows in others:
                self._send(placer.place(rows))
            failpoints.reach("task.before_flush", micro_batch)
            ranges = tuple(self.transaction.flush())
            failpoints.reach("task.flushed", micro_batch)
        except BaseException:
            self._abort()
            raise
        if self.task_set is not None:
            self.pool.note_prepared(identity.transactional_id, self.task_set)
        transaction = PreparedTransaction(
            self.place.split, identity.transactional_id, *identity.identity, identity.transaction_version, timeout_ms,
            started_at_ms, ranges, placer.counter.rows(),
        )
        LOG.info("task %s: prepare took %.0f ms: %d records, %d bytes, %d retries, as %s", self.place,
                 (time.monotonic() - started) * 1000, transaction.record_count, placer.size_bytes,
                 self.transaction.retries, identity)
        failpoints.reach("task.prepared", micro_batch)
        return Prepared(
            self.place.query, self.place.run, micro_batch, self.place.split, transaction, placer.size_bytes,
            self.transaction.retries, is_worker_kept=is_worker_kept(),
        )

    def _send(self, sends: Iterable[tuple[TopicPartition, Iterable[EncodedBatch]]]) -> None:
        for topic_partition, batches in sends:
            self.transaction.send(topic_partition, batches)
        failpoints.reach("task.mid_write", self.place.micro_batch)

    def _abort(self) -> None:
        """End the transaction of a failing task; its own failure is the news, so another one is only logged."""
        try:
            self.transaction.abort()
        except EosKafkaError as error:
            LOG.warning("task %s: its transaction could not be aborted and is left to the sweep: %s", self.place, error)


class _Placer:
    """Turn chunks of rows into encoded batches for each topic-partition."""

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._counts: dict[str, int] = {}
        self._chance = random.Random()
        self.counter = RowCounter(options.topic)
        self.size_bytes = 0

    def place(self, rows: pa.RecordBatch) -> list[tuple[TopicPartition, Iterator[EncodedBatch]]]:
        self.size_bytes += rows.nbytes
        rows_per_run = self._options.batch_bytes * rows.num_rows // max(1, rows.nbytes)
        placed = place_rows(
            rows, topic=self._options.topic, partition_count=self._count,
            leaderless=self._cluster.leaderless_partitions, rows_per_run=rows_per_run, chance=self._chance,
        )
        self.counter.add(rows, _given_timestamps(rows))
        return [(each.topic_partition, self._encode(each.rows)) for each in placed]

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._cluster.partition_count(topic)
        return self._counts[topic]

    def _encode(self, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
        return encode_batches(
            key=columns.column_of(rows, columns.KEY),
            value=rows.column(columns.VALUE),
            headers=columns.column_of(rows, columns.HEADERS),
            timestamp_ms=_timestamps(rows),
            max_batch_bytes=self._options.batch_bytes,
            compression=self._options.compression,
            level=self._options.compression_level,
        )


def gather(arrow_batches: Iterator[pa.RecordBatch], chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small Arrow batches and cut large ones to about `chunk_bytes`; drop columns nobody uses."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for whole in arrow_batches:
        for part in _cut(whole.select([name for name in _USED_COLUMNS if name in whole.schema.names]), chunk_bytes):
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


def _timestamps(rows: pa.RecordBatch) -> pa.Array | int:
    now_ms = time.time_ns() // 1_000_000
    given = _given_timestamps(rows)
    return now_ms if given is None else pc.fill_null(given, now_ms)


def _given_timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Give the times that the user gave, in milliseconds, null where there is none; None without such a column."""
    if columns.TIMESTAMP not in rows.schema.names:
        return None
    in_us = rows.column(columns.TIMESTAMP).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded down, as Spark does it, also before 1970.
    return pa.array(pc.fill_null(in_us, 0).to_numpy(zero_copy_only=False) // 1000, mask=_is_null(in_us))


def _is_null(array: pa.Array) -> Any:
    return pc.is_null(array).to_numpy(zero_copy_only=False)
