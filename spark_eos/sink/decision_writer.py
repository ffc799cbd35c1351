"""The writer of decisions: one transaction with the records, the offset of the first record, and the end.

The records are sent first. Under transactions V2 the offset is sent with them if it can be predicted: the log of a
partition continues after the marker of this process's last decision there, unless other processes have written. A wrong
prediction is replaced in the same transaction, of which only the last offset counts. While both requests are pending,
the driver verifies the transactions to be decided on. The end waits for all three.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos import failpoints
from spark_eos.client.group_offsets import (
    OffsetAndMetadata,
    StartedCommit,
    fetch_offsets_from,
    start_txn_offset_commit,
    txn_offset_commit,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import TV2, EndTxnResult, TransactionIdentity, end_txn
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import EosKafkaError, FencedError, UnansweredError
from spark_eos.runtime import Clock
from spark_eos.sink.protocol.answers import Appended, CommittedOffset, DecisionWrite, EndAnswer

logger = logging.getLogger(__name__)
# `_check_time` has just confirmed that there is time; with a limit of zero the end would not be sent at all.
_ONE_SEND_MS: Final = 1.0
# A step before the end may always take this long: `_check_time` comes after it.
_SHORTEST_STEP_MS: Final = 1_000.0
# The next take-over aborts what is left open, so an unavailable coordinator is not waited for.
_ABORT_MS: Final = 5_000
# A leader that moves needs less. If the topic was deleted, the next attempt finds that out when it looks for decisions.
_FIRST_DELIVERY_MS: Final = 10_000
# Send a record batch as soon as it is complete.
_AT_ONCE: Final = 1


@dataclass(slots=True)
class _OpenDecision:
    """A decision whose transaction has begun and is not ended; `expected` is the predicted offset."""

    producer: TransactionalProducer
    identity: TransactionIdentity
    expected: int | None
    started: StartedCommit | None = None
    first_offset: int = -1


class DecisionWriter:
    """The writer of decisions on top of one client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._clock = client.runtime.clock
        # Kept, because it knows the leaders of the decision topic.
        self._producer: TransactionalProducer | None = None
        # The offset of the next record, if no other process has written since.
        self._ends: dict[TopicPartition, int] = {}
        # Whether the last decision failed before its end.
        self._has_failed = False
        self._open: _OpenDecision | None = None

    def start(self, write: DecisionWrite, identity: TransactionIdentity) -> Appended:
        """Send the records, and under transactions V2 the offset that the first of them will have."""
        self._open = None
        kept, self._producer = self._producer, None
        producer = kept or TransactionalProducer(self._client, max_request_bytes=_AT_ONCE)
        delivery_ms = self._client.options.delivery_timeout_ms
        if not self._has_failed:
            delivery_ms = min(delivery_ms, _FIRST_DELIVERY_MS)
        producer.delivery_timeout_ms = _at_most(delivery_ms, write, self._clock)
        self._has_failed = True
        producer.begin(identity)
        self._open = opened = _OpenDecision(producer, identity, self._ends.pop(write.topic_partition, None))
        try:
            producer.send(write.topic_partition, _encode(write))
            if opened.expected is not None and write.metadata is not None and identity.transaction_version >= TV2:
                opened.started = self._start_commit(write, identity, opened.expected)
        except FencedError as error:
            return self._fenced(error)
        return Appended()

    def append(self, write: DecisionWrite) -> Appended:
        """Wait until the records and the offset are accepted."""
        opened = self._open
        assert opened is not None
        try:
            return self._append(write, opened)
        except FencedError as error:
            return self._fenced(error)

    def _fenced(self, error: FencedError) -> Appended:
        """Forget a decision whose transaction belongs to another driver by now."""
        self._open = None
        return Appended(ErrorCode.PRODUCER_FENCED if error.error_code is None else ErrorCode(error.error_code))

    def _append(self, write: DecisionWrite, opened: _OpenDecision) -> Appended:
        opened.first_offset = opened.producer.flush()[write.topic_partition].first_offset
        failpoints.reach("driver.decision_flushed", write.micro_batch)
        if write.metadata is None:
            return Appended()
        is_as_predicted = opened.first_offset == opened.expected
        coordinator = None if opened.started is None else self._accepted_by(opened.started, is_as_predicted)
        if coordinator is None or not is_as_predicted:
            coordinator = self._commit(write, opened.identity, opened.first_offset)
        return Appended(offsets=tuple(self._committed(coordinator, write.group_id)) if write.reads_offsets else ())

    def end(self, write: DecisionWrite, commit: bool) -> EndAnswer:
        """End the transaction; an abort is attempted once, and a failure of it is only logged."""
        opened, self._open = self._open, None
        if not commit:
            if opened is not None:
                self._abort(write, opened)
            return EndAnswer(None)
        assert opened is not None
        self._producer, self._has_failed = opened.producer, False
        try:
            left_ms = _left_ms(write, self._clock)
            answer = end_answer(end_txn(self._client, opened.identity, commit=True, timeout_ms=left_ms))
        except EosKafkaError as error:
            logger.warning(
                "micro-batch %d: EndTxn of its decision had no conclusive response: %s", write.micro_batch, error
            )
            return EndAnswer(None)
        if answer.code is ErrorCode.NONE and opened.expected in (None, opened.first_offset):
            # After the marker. After a wrong prediction make none: another driver writes to this partition too.
            self._ends[write.topic_partition] = opened.first_offset + len(write.records) + 1
        return answer

    def _start_commit(self, write: DecisionWrite, identity: TransactionIdentity, offset: int) -> StartedCommit:
        timeout_ms = _at_most(self._client.options.request_timeout_ms, write, self._clock)
        return start_txn_offset_commit(
            self._client, identity, write.group_id, _offset_of(write, offset), timeout_ms=timeout_ms
        )

    def _accepted_by(self, started: StartedCommit, is_as_predicted: bool) -> int | None:
        """Return the node that accepted an offset, or None if it was refused or has to be sent again.

        A request without a response may be applied late, and must then not replace another offset.
        """
        try:
            return started.accepted_by(self._client)
        except UnansweredError:
            if is_as_predicted:
                return None
            raise

    def _commit(self, write: DecisionWrite, identity: TransactionIdentity, offset: int) -> int:
        timeout_ms = _at_most(self._client.options.api_timeout_ms, write, self._clock)
        return txn_offset_commit(
            self._client, identity, write.group_id, _offset_of(write, offset), timeout_ms=timeout_ms
        )

    def _abort(self, write: DecisionWrite, opened: _OpenDecision) -> None:
        try:
            if opened.started is not None:
                limit = min(opened.started.deadline, self._client.deadline(_ABORT_MS))
                self._client.transport.wait([opened.started.pending], limit)
            if opened.producer.abort(_ABORT_MS) is None and opened.started is not None:
                end_txn(self._client, opened.identity, commit=False, timeout_ms=_ABORT_MS)
        except EosKafkaError as error:
            logger.warning(
                "micro-batch %d: the transaction of its decision is left to time out: %s", write.micro_batch, error
            )

    def _committed(self, coordinator: int, group_id: str) -> list[CommittedOffset]:
        found = fetch_offsets_from(self._client, coordinator, group_id)
        return [CommittedOffset(place, each.offset, each.metadata) for place, each in found.items()]


def _offset_of(write: DecisionWrite, offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    assert write.metadata is not None
    return {write.topic_partition: OffsetAndMetadata(offset, write.metadata)}


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


def end_answer(result: EndTxnResult) -> EndAnswer:
    """Return EndTxn's result; an unknown code is not success."""
    if not result.answered:
        return EndAnswer(None)
    try:
        code = ErrorCode(result.error_code)
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    following = result.next_identity
    identity = None if following is None else ProducerIdentity(following.producer_id, following.producer_epoch)
    return EndAnswer(code, identity)
