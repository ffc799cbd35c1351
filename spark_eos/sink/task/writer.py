"""The writer of one task's rows, into one transaction that is left open for the driver."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from broker_core.types import counted
from spark_eos import failpoints
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import FALLBACK_TIMEOUT_MS, SinkOptions
from spark_eos.runtime import now_ms
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import utc
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared, TaskMessage
from spark_eos.sink.performing import perform
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.rerun_checks import check_topic, check_write, rolled_back_error
from spark_eos.sink.protocol.settlement import must_task_write
from spark_eos.sink.task.batching import CHUNK_BYTES, BatchBuilder, PlacedBatches, RowCounter, gather, given_timestamps
from spark_eos.sink.task.identity_pool import IdentityPool, TaskSet
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.worker_memory import is_worker_kept

if TYPE_CHECKING:
    from spark_eos.sink.protocol.decision_log import DecisionLog

logger = logging.getLogger(__name__)
# How often a task that takes long reports what it has written.
_REPORT_SECONDS: Final = 30.0


@dataclass(slots=True)
class TaskWriter:
    """The writer of one task's rows.

    `log` is None if an earlier decision cannot exist: a batch job without a job id. `task_set` is None if two attempts
    of a task may run at the same time.
    """

    options: SinkOptions
    place: Place
    cluster: KafkaCluster
    pool: IdentityPool
    transaction: TaskTransaction
    log: "DecisionLog | None"
    task_set: TaskSet | None = None

    def write(self, arrow_batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Prepare the rows, or report that there is nothing to prepare; abort the transaction on any failure."""
        place = self.place
        failpoints.reach("task.begin", place.micro_batch)
        chunks = gather(arrow_batches, min(CHUNK_BYTES, self.options.buffer_bytes // 4))
        if self._is_decided():
            return self._compare(chunks)
        first = next(chunks, None)
        if first is None:
            return Empty(place)
        return self._prepare(first, chunks)

    def _compare(self, chunks: Iterator[pa.RecordBatch]) -> AlreadyCommitted:
        """Read all rows without writing them; the driver judges whether they are the decided rows.

        One task cannot tell: a re-run may give each task other rows, and all of them together the same.
        """
        counter = RowCounter(self.options.topic)
        for rows in chunks:
            counter.add(rows, given_timestamps(rows))
        place = self.place
        return AlreadyCommitted(place, counter.rows())

    def _is_decided(self) -> bool:
        """Return whether an earlier decision is known to cover this task's rows, so that they need not be written."""
        if self.log is None:
            return False
        earlier = perform(self.cluster, self.log.pointed(self.place.micro_batch, self.place.write))
        if earlier is None:
            return False
        if earlier.micro_batch > self.place.micro_batch:
            raise rolled_back_error(earlier, self.place.micro_batch)
        check_write(earlier, self.place.run, self.place.write)
        failpoints.reach("task.before_settle", self.place.micro_batch)
        must_write = perform(self.cluster, must_task_write(earlier, self.place.split, self.options.on_lost_transaction))
        failpoints.reach("task.settled", self.place.micro_batch)
        # For a job this is unexpected: its name was used before, and nothing of what it computed is written.
        level = logging.WARNING if self.options.job_id is not None and not must_write else logging.INFO
        logger.log(
            level,
            "task %s: decided by run %s at %s, now %s",
            self.place,
            earlier.run,
            utc(earlier.decided_at_ms),
            "WRITE" if must_write else "SKIP",
        )
        if must_write:
            return False
        if not earlier.is_skipped:
            check_topic(earlier, self.options.topic, is_job=self.options.job_id is not None)
        return True

    def _prepare(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Prepared:
        clock = self.cluster.runtime.clock
        started = clock.monotonic()
        micro_batch = self.place.micro_batch
        timeout_ms = self.options.transaction_timeout_ms or FALLBACK_TIMEOUT_MS
        # Choose partitions before the transaction begins, so that a bad first row costs nothing.
        placer = BatchBuilder(self.options, self.cluster, self.place)
        sends = placer.place(first)
        failpoints.reach("task.before_identity", micro_batch)
        opened = self.pool.take(timeout_ms, micro_batch, self.task_set, started)
        started_at_ms = now_ms(clock)
        self.transaction.begin(opened)
        try:
            failpoints.reach("task.before_write", micro_batch)
            self._send(sends)
            reported = started
            for rows in others:
                self._send(placer.place(rows))
                if clock.monotonic() >= reported + _REPORT_SECONDS:
                    reported = clock.monotonic()
                    logger.info(
                        "task %s: %s so far, in %.0f s",
                        self.place,
                        counted(sum(each.record_count for each in placer.counter.rows()), "record"),
                        reported - started,
                    )
            self._send(placer.rest())
            failpoints.reach("task.before_flush", micro_batch)
            ranges = self.transaction.prepare()
            failpoints.reach("task.flushed", micro_batch)
        except BaseException:
            self._abort()
            raise
        self.pool.note_prepared(opened.transactional_id, ranges, self.task_set)
        transaction = PreparedTransaction(
            self.place.split,
            opened,
            timeout_ms,
            started_at_ms,
            ranges,
            placer.counter.rows(),
        )
        logger.info(
            "task %s: prepare took %.0f ms: %s, %d bytes, %s, as %s",
            self.place,
            (clock.monotonic() - started) * 1000,
            counted(transaction.record_count, "record"),
            placer.size_bytes,
            counted(self.transaction.retries, "retry", "retries"),
            opened,
        )
        failpoints.reach("task.prepared", micro_batch)
        return Prepared(
            self.place,
            transaction,
            placer.size_bytes,
            self.transaction.retries,
            is_worker_kept=is_worker_kept(self.cluster.runtime.process),
            newest_ms=placer.newest_ms,
        )

    def _send(self, placed: PlacedBatches) -> None:
        self.transaction.expect(placed.topic_partitions)
        for topic_partition, batch in placed.batches:
            self.transaction.send(topic_partition, [batch])
        failpoints.reach("task.mid_write", self.place.micro_batch)

    def _abort(self) -> None:
        try:
            self.transaction.abort()
        except EosKafkaError as error:
            logger.warning(
                "task %s: its transaction could not be aborted and is left to the abort sweep: %s", self.place, error
            )
