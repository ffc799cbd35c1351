"""Drive the client's transactional producer for tasks and for the driver's decisions."""

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from struct import Struct
from typing import Final

import pyarrow as pa

from broker_core.errors import ErrorCode
from broker_core.records.compression import Compression
from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity, end_txn
from spark_eos.client.group_offsets import OffsetAndMetadata, fetch_offsets_from, txn_offset_commit
from spark_eos.client.producer import TransactionalProducer
from spark_eos.codec.encode import EncodedBatch, encode_batches
from spark_eos.errors import EosKafkaError, FencedError, TransactionError
from spark_eos.sink.cluster import end_answer
from spark_eos.sink.pool import TaskIdentity
from spark_eos.sink.ports import CommittedOffset, DecisionWrite, EndAnswer
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink_options import SinkOptions

LOG: Final = logging.getLogger("spark_eos.sink")
# Where the only value of a column begins and ends.
_ENDS: Final = Struct("=ii")
# `_check_time` has just said that there is time; without any the end would not be sent at all.
_ONE_SEND_MS: Final = 1.0
# A step before the end may take this long however late it is: `_check_time` comes after it.
_SHORTEST_STEP_MS: Final = 1_000.0
# The next take-over aborts what is left open, so that a coordinator that is away is not waited for.
_ABORT_MS: Final = 5_000


class TaskTransaction:
    """Be the producer of a worker process, one transaction at a time."""

    def __init__(self, client: KafkaClient, options: SinkOptions) -> None:
        self._producer = TransactionalProducer(
            client, buffer_memory_bytes=options.buffer_bytes // 2, max_request_bytes=options.max_request_bytes
        )

    def begin(self, identity: TaskIdentity) -> None:
        """Get ready to send under an identity."""
        self._producer.begin(TransactionIdentity(
            identity.transactional_id, *identity.identity, identity.transaction_version
        ))

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Announce where batches will go."""
        self._producer.expect(topic_partitions)

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Send batches in order."""
        self._producer.send(topic_partition, batches)

    @property
    def retries(self) -> int:
        """Count the requests sent again."""
        return self._producer.retries

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged."""
        return [
            WrittenRange(place.topic, place.partition, result.first_offset, result.last_offset, result.record_count)
            for place, result in sorted(self._producer.flush().items())
        ]

    def abort(self) -> None:
        """Abort the open transaction."""
        self._producer.abort()


def write_decision(client: KafkaClient, write: DecisionWrite) -> EndAnswer:
    """Append a decision's records, commit the offset of the first to its group, and end: one transaction.

    Whatever fails before the end is sent aborts the transaction; only then is it certain that nothing was decided.
    Whatever fails afterwards is an unclear answer: the end may have been recorded before its answer was lost.
    """
    identity = TransactionIdentity(write.transactional_id, *write.identity, write.transaction_version)
    producer = TransactionalProducer(client, delivery_timeout_ms=_at_most(client.options.delivery_timeout_ms, write))
    producer.begin(identity)
    try:
        producer.send(write.topic_partition, _encode(write))
        first_offset = producer.flush()[write.topic_partition].first_offset
        failpoints.reach("driver.decision_flushed", write.micro_batch)
        if write.metadata is not None:
            place = {write.topic_partition: OffsetAndMetadata(first_offset, write.metadata)}
            coordinator = txn_offset_commit(
                client, identity, write.group_id, place, timeout_ms=_at_most(client.options.api_timeout_ms, write)
            )
            if write.check is not None:
                write.check(_committed(client, coordinator, write.group_id))
        failpoints.reach("driver.mid_decide", write.micro_batch)
        _check_time(write)
    except FencedError as error:
        return EndAnswer(ErrorCode(error.error_code) if error.error_code is not None else ErrorCode.PRODUCER_FENCED)
    except EosKafkaError:
        _abort(producer, write)
        raise
    try:
        return end_answer(end_txn(client, identity, commit=True, timeout_ms=_left_ms(write)))
    except EosKafkaError as error:
        LOG.warning("micro-batch %d: EndTxn of its decision has no clear answer: %s", write.micro_batch, error)
        return EndAnswer(None)


def _committed(client: KafkaClient, coordinator: int, group_id: str) -> list[CommittedOffset]:
    found = fetch_offsets_from(client, coordinator, group_id)
    return [CommittedOffset(place, each.offset, each.metadata) for place, each in found.items()]


def _at_most(timeout_ms: int, write: DecisionWrite) -> int:
    """Bound a step before the end of a decision by the time there is for all of them."""
    left_ms = _left_ms(write)
    return timeout_ms if left_ms is None else int(max(_SHORTEST_STEP_MS, min(timeout_ms, left_ms)))


def _left_ms(write: DecisionWrite) -> float | None:
    """Say how long the end of a decision may be repeated: never past its time, when it must not come any more.

    An end that was sent and not answered by then is unclear; `DecisionLog.decide` aborts it if it has not arrived.
    """
    if write.decide_by_ms is None:
        return None
    return max(_ONE_SEND_MS, write.decide_by_ms - time.time_ns() / 1_000_000)


def _check_time(write: DecisionWrite) -> None:
    late_ms = 0.0 if write.decide_by_ms is None else time.time_ns() / 1_000_000 - write.decide_by_ms
    if late_ms > 0:
        raise TransactionError(
            f"Micro-batch {write.micro_batch} is not decided: writing the decision took {late_ms:.0f} ms too long, and "
            "its transactions might time out before they could be completed",
            checked="The clock, before the decision's transaction was ended; it is aborted and nothing is visible",
            remedy="Start the query again, and look why the decision topic was slow; a longer transactionTimeout helps",
        )


def _abort(producer: TransactionalProducer, write: DecisionWrite) -> None:
    """Abort a decision that failed; that it failed is the news, so another failure is only logged."""
    try:
        producer.abort(_ABORT_MS)
    except EosKafkaError as error:
        LOG.warning("micro-batch %d: its decision is left to its timeout: %s", write.micro_batch, error)


def _encode(write: DecisionWrite) -> Iterable[EncodedBatch]:
    # One batch for each part: together they could be more than the topic takes in one.
    for key, value in write.records:
        yield from encode_batches(
            key=_column(key),
            value=_column(value),
            headers=None,
            timestamp_ms=write.now_ms,
            max_batch_bytes=len(key) + len(value or b"") + 1024,
            compression=Compression.GZIP,
        )


def _column(value: bytes | None) -> pa.Array:
    """Make a column of one value. `pa.array` would import pandas, for most of a second where nothing else needs it."""
    if value is None:
        return pa.nulls(1, pa.binary())
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(_ENDS.pack(0, len(value))), pa.py_buffer(value)])
