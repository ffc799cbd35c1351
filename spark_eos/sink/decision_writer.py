"""The writer of decisions: one transaction with the records, the offset of the first record, and the end.

While the records are appended, the driver verifies the transactions to be decided on. The offset is sent when the
records are acknowledged, not beside them: a transaction takes up one new partition at a time, and a second request is
refused with CONCURRENT_TRANSACTIONS, and sent again after a pause that takes longer than the first request.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.client.group_offsets import OffsetAndMetadata, fetch_offsets_from, txn_offset_commit
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import end_txn
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import EosKafkaError, FencedError
from spark_eos.open_transaction import EndAnswer
from spark_eos.runtime import Clock
from spark_eos.sink.protocol.answers import Appended, CommittedOffset, DecisionWrite

logger = logging.getLogger(__name__)
# The driver has just confirmed that there is time; with a limit of zero the end would not be sent at all.
_ONE_SEND_MS: Final = 1.0
# A step before the end may always take this long: the driver looks at the time after it.
_SHORTEST_STEP_MS: Final = 1_000.0
# The next take-over aborts what is left open, so an unavailable coordinator is not waited for.
_ABORT_MS: Final = 5_000
# A leader that moves needs less. If the topic was deleted, the next attempt finds that out when it looks for decisions.
_FIRST_DELIVERY_MS: Final = 10_000
# Send a record batch as soon as it is complete.
_AT_ONCE: Final = 1


class DecisionWriter:
    """The writer of decisions on top of one client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._clock = client.runtime.clock
        # Kept, because it knows the leaders of the decision topic.
        self._producer: TransactionalProducer | None = None
        # Whether the last decision failed before its end.
        self._has_failed = False
        # The decision whose transaction has begun and is not ended.
        self._open: TransactionalProducer | None = None

    def start(self, write: DecisionWrite) -> Appended:
        self._open = None
        kept, self._producer = self._producer, None
        producer = kept or TransactionalProducer(self._client, max_request_bytes=_AT_ONCE)
        delivery_ms = self._client.options.delivery_timeout_ms
        if not self._has_failed:
            delivery_ms = min(delivery_ms, _FIRST_DELIVERY_MS)
        producer.delivery_timeout_ms = _at_most(delivery_ms, write, self._clock)
        self._has_failed = True
        producer.begin(write.transaction)
        self._open = producer
        try:
            producer.send(write.topic_partition, _encode(write))
        except FencedError as error:
            return self._fenced(error)
        return Appended()

    def append(self, write: DecisionWrite) -> Appended:
        assert self._open is not None
        try:
            first_offset = self._open.flush()[write.topic_partition].first_offset
            failpoints.reach("driver.decision_flushed", write.micro_batch)
            appended = Appended(first_offset=first_offset)
            if write.metadata is None:
                return appended
            timeout_ms = _at_most(self._client.options.api_timeout_ms, write, self._clock)
            offsets = {write.topic_partition: OffsetAndMetadata(first_offset, write.metadata)}
            coordinator = txn_offset_commit(
                self._client, write.transaction, write.group_id, offsets, timeout_ms=timeout_ms
            )
            if not write.reads_offsets:
                return appended
            offsets_before = fetch_offsets_from(self._client, coordinator, write.group_id)
            return appended._replace(offsets=tuple(offsets_in(offsets_before)))
        except FencedError as error:
            return self._fenced(error)

    def _fenced(self, error: FencedError) -> Appended:
        # The transaction belongs to another driver by now.
        self._open = None
        return Appended(ErrorCode.PRODUCER_FENCED if error.error_code is None else ErrorCode(error.error_code))

    def end(self, write: DecisionWrite, commit: bool) -> EndAnswer:
        """End the transaction; an abort is attempted once, and a failure of it is only logged."""
        opened, self._open = self._open, None
        if commit:
            assert opened is not None
            self._producer, self._has_failed = opened, False
        try:
            if commit:
                left_ms = _left_ms(write, self._clock)
                return end_txn(self._client, write.transaction, commit=True, timeout_ms=left_ms)
            if opened is not None:
                opened.abort(_ABORT_MS)
        except EosKafkaError as error:
            problem = "EndTxn of its decision had no conclusive response"
            if not commit:
                problem = "the transaction of its decision is left to time out"
            logger.warning("micro-batch %d: %s: %s", write.micro_batch, problem, error)
        return EndAnswer(None)


def _at_most(timeout_ms: int, write: DecisionWrite, clock: Clock) -> int:
    """Limit a step before the end of a decision to the time that is left for all of them."""
    left_ms = _left_ms(write, clock)
    return timeout_ms if left_ms is None else int(max(_SHORTEST_STEP_MS, min(timeout_ms, left_ms)))


def _left_ms(write: DecisionWrite, clock: Clock) -> float | None:
    """Return how long the end of a decision may be retried: never beyond the time at which it must not be applied.

    An end that was sent and not answered by then is inconclusive; `DecisionLog.decide` aborts it if it has not been
    applied.
    """
    if write.decide_by_ms is None:
        return None
    return max(_ONE_SEND_MS, write.decide_by_ms - clock.time_ns() / 1_000_000)


def _encode(write: DecisionWrite) -> Iterable[EncodedBatch]:
    # One batch for each part: together they could exceed the batch size limit of the topic.
    for key, value in write.records:
        record = NewRecord(key, value, timestamp_ms=write.now_ms)
        yield EncodedBatch(bytearray(build_batch([record], compression=Compression.GZIP)), 1)


def offsets_in(found: Mapping[TopicPartition, OffsetAndMetadata]) -> list[CommittedOffset]:
    return [CommittedOffset(place, each.offset, each.metadata) for place, each in found.items()]
