"""The producer of one transaction at a time, which it leaves open: prepared, for another process to end.

The caller's thread does all the work: `send` queues, starts requests and reads responses as they arrive; `flush` waits
for the rest. A final failure fails the transaction: the same error is raised again until `abort` or the next `begin`.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka.protocol.producer import ProduceRequest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition, counted
from spark_eos.backoff import backoff_ms
from spark_eos.client.error_table import Api, Verdict, classify, code_name, failure, meaning
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import Leaders
from spark_eos.client.produce import PartitionAnswer, produce_answers, produce_request
from spark_eos.client.send_queue import PartitionQueue, PartitionResult, SendQueue
from spark_eos.client.transactions import TV2, add_partitions_to_txn, end_txn
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import AbortableError, DeliveryTimeoutError, EosKafkaError, RecordTooLargeError, UnansweredError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.runtime import Pending

DEFAULT_BUFFER_MEMORY_BYTES: Final = 32 * 1024 * 1024
DEFAULT_MAX_REQUEST_BYTES: Final = 1024 * 1024
_IDLE_WAIT_SECONDS: Final = 0.5
# Polling the network costs as much as some batches do.
_LOOK_EVERY_BYTES: Final = 256 * 1024
# The last transaction of the id is being completed, which takes a coordinator some milliseconds.
_CONCURRENT_BACKOFF_MS: Final = 20
_LOOK_AFTER_MS: Final = 2_000
# A leader may have appended the batch although it responded with one of these.
_MAYBE_APPENDED: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION}
)


@dataclass(slots=True)
class _InFlight:
    pending: Pending
    request: ProduceRequest
    leader: int
    queues: list[PartitionQueue]
    topic_ids: Mapping[str, uuid.UUID | None]
    size_bytes: int


class TransactionalProducer:
    """The sender of the sealed record batches of one open transaction, with bounded memory.

    `buffer_memory_bytes` limits what waits here together with the copies being sent, which are at most half of it;
    `max_request_bytes` limits one request (a single batch may be larger).

    >>> producer.begin(identity)                                                    # doctest: +SKIP
    >>> producer.send(TopicPartition("counts", 0), encode_batches(...))             # doctest: +SKIP
    >>> results = producer.flush()          # the transaction stays open            # doctest: +SKIP
    """

    def __init__(
        self,
        client: KafkaClient,
        *,
        buffer_memory_bytes: int = DEFAULT_BUFFER_MEMORY_BYTES,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        delivery_timeout_ms: int | None = None,
    ) -> None:
        self._client = client
        self._monotonic = client.runtime.clock.monotonic
        self._buffer_memory_bytes = buffer_memory_bytes
        self._max_request_bytes = max_request_bytes
        self.delivery_timeout_ms = delivery_timeout_ms or client.options.delivery_timeout_ms
        self._identity: OpenTransaction | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # The partitions that the transaction has announced, and partitions its coordinator does not know yet (TV1).
        self._expected: set[TopicPartition] = set()
        self._unregistered: list[PartitionQueue] = []
        self._waiting = SendQueue()
        self._leaders = Leaders(client)
        self._in_flight: list[_InFlight] = []
        self._in_flight_bytes = 0
        self._failure: EosKafkaError | None = None
        self._spent: ProducerIdentity | None = None
        self._queued_bytes = 0
        self._unseen_bytes = 0
        self._touched = False
        self.retries = 0

    def begin(self, identity: OpenTransaction) -> None:
        """Begin a transaction locally; nothing is sent.

        Sequences start at 0 for a producer id and epoch that is new here, and continue where the last transaction of
        this object ended for the same ones (TV1 without InitProducerId in between).
        """
        is_over = not self._in_flight and (self._failure is not None or not self._queued_bytes)
        assert is_over, "records of the transaction before are unacknowledged"
        assert self._spent != identity.producer, "a transaction that failed or was aborted had this epoch"
        # Usually the next transaction writes to the same topics.
        self._leaders.keep_only({each.topic for each in self._queues})
        before = self._identity
        continued = self._queues.values() if before is not None and before[:2] == identity[:2] else ()
        self._queues = {each.topic_partition: PartitionQueue(each.topic_partition, each.sequence) for each in continued}
        self._drop_all()
        self._identity, self._spent = identity, None
        self._touched = False

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, uuid.UUID | None]:
        """Return the ids of topics that the transaction has written to; None if the brokers do not name them."""
        return self._leaders.topic_ids(topics)

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Announce the target partitions, so that one look-up covers all of them."""
        self._check_open()
        fresh = [each for each in topic_partitions if each not in self._expected]
        if fresh:
            self._leaders.require(fresh)
            self._expected.update(fresh)
            queues = [self._queues.get(each) or PartitionQueue(each) for each in fresh]
            self._queues.update(zip(fresh, queues, strict=True))
            self._unregistered += queues

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches for one partition in order; block, and process the network, while the buffer is full."""
        self._check_open()
        self.expect([topic_partition])
        queue = self._queues[topic_partition]
        for batch in batches:
            self._enqueue(queue, batch)
            is_full = self._waiting.ready_bytes(queue.queued_for) >= self._max_request_bytes
            if is_full or self._unseen_bytes >= _LOOK_EVERY_BYTES:
                self._step(waits=False)
            while self._memory_bytes > self._buffer_memory_bytes and self._queued_bytes:
                self._step(waits=True)

    def flush(self) -> dict[TopicPartition, PartitionResult]:
        """Wait until everything is acknowledged by all in-sync replicas; the transaction stays open."""
        self._check_open()
        while self._queued_bytes:
            self._step(waits=True)
        return {each: queue.result for each, queue in self._queues.items() if queue.result is not None}

    @property
    def places(self) -> Collection[TopicPartition]:
        """The partitions that the transaction may have written to."""
        return self._expected

    def abort(self, timeout_ms: float | None = None, *, sends_end: bool = True) -> EndAnswer | None:
        """Drop what is queued, wait for responses, and abort; return None if nothing had reached the cluster.

        Without `sends_end` the transaction stays open, for another process or its timeout.
        """
        identity = self._identity
        assert identity is not None, "no transaction is open"
        deadline = self._client.deadline(timeout_ms)
        self._client.transport.wait([each.pending for each in self._in_flight], deadline)
        self._drop_all()
        self._identity, self._spent = None, identity.producer
        self._queues.clear()
        if not (self._touched and sends_end):
            return None
        return end_txn(self._client, identity, commit=False, timeout_ms=timeout_ms)

    # Internals.

    def _drop_all(self) -> None:
        self._in_flight.clear()
        self._waiting.clear()
        self._expected.clear()
        self._unregistered.clear()
        self._in_flight_bytes = self._queued_bytes = 0
        self._failure = None

    @property
    def _memory_bytes(self) -> int:
        return self._queued_bytes + self._in_flight_bytes

    def _check_open(self) -> OpenTransaction:
        if self._failure is not None:
            raise self._failure
        assert self._identity is not None, "no transaction is open"
        return self._identity

    def _step(self, *, waits: bool) -> None:
        """Start full requests, and process the responses that are there; or start all, and wait for the first one."""
        self._unseen_bytes = 0
        try:
            self._dispatch(waits)
            if waits:
                self._wait()
            else:
                self._client.transport.poll(0)
            self._collect()
        except EosKafkaError as error:
            self._failure = error
            identity = self._identity
            self._spent = None if identity is None else identity.producer
            # Perhaps because the feature levels have changed.
            self._client.features.doubt()
            raise

    def _wait(self) -> None:
        now = self._monotonic()
        until = now + _IDLE_WAIT_SECONDS
        if self._waiting.next_due is not None:
            until = min(until, self._waiting.next_due)
        if self._in_flight:
            self._client.transport.wait_any([each.pending for each in self._in_flight], until)
        elif until > now:
            self._client.transport.pause(until - now)

    def _enqueue(self, queue: PartitionQueue, batch: EncodedBatch) -> None:
        queue.append(batch)
        self._queued_bytes += batch.size_bytes
        self._unseen_bytes += batch.size_bytes
        if queue.is_queued:
            self._waiting.note_growth(queue, batch.size_bytes)
        elif not queue.in_flight:
            self._make_ready(queue)

    def _make_ready(self, queue: PartitionQueue) -> None:
        topic = queue.topic_partition.topic
        while queue.attempts == 0 and self._client.batch_limits.is_too_large(topic, queue.batches[0]):
            self._queued_bytes += queue.split_head()
        leader, epoch = self._leaders.leader(queue.topic_partition)
        if queue.result is None:
            queue.leader_epoch = epoch
        if leader < 0:
            self._retry(queue, "the partition has no leader", refresh=True)
        else:
            self._waiting.put(queue, leader)

    def _dispatch(self, waits: bool) -> None:
        identity = self._check_open()
        due = self._waiting.take_due(self._monotonic())
        least_bytes = 0 if waits else self._max_request_bytes
        if not due and not self._waiting.leaders(least_bytes):
            return
        if self._leaders.refresh():
            self._check_replaced()
            due += self._waiting.take_ready()
        for queue in due:
            self._make_ready(queue)
        # One request to each leader in turn, so that all of them have work.
        while leaders := self._waiting.leaders(least_bytes):
            for leader in leaders:
                if self._in_flight and self._in_flight_bytes >= self._buffer_memory_bytes // 2:
                    return
                queues = self._waiting.take_request(leader, self._max_request_bytes)
                if identity.transaction_version < TV2 and self._unregistered:
                    self._register(identity)
                self._start(leader, queues, identity)

    def _register(self, identity: OpenTransaction) -> None:
        """Name new partitions to the coordinator (TV1). If it does not know one for long, look for its topic."""
        self._touched = True
        fresh, self._unregistered = [each.topic_partition for each in self._unregistered], []
        deadline = self._client.deadline(self.delivery_timeout_ms)
        while True:
            left_ms = self._client.remaining_ms(deadline)
            try:
                add_partitions_to_txn(self._client, identity, fresh, timeout_ms=min(left_ms, _LOOK_AFTER_MS))
                return
            except UnansweredError as error:
                if left_ms <= _LOOK_AFTER_MS:
                    raise
                if error.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    for each in fresh:
                        self._leaders.doubt(each.topic)
                    self._leaders.refresh()

    def _check_replaced(self) -> None:
        """Raise if a topic that was deleted and created again had records of this transaction, or has fewer places."""
        replaced = self._leaders.take_replaced()
        queues = [queue for queue in self._queues.values() if queue.topic_partition.topic in replaced]
        for queue in queues:
            topic, number = queue.topic_partition
            if queue.result is not None:
                raise AbortableError(
                    f"Topic '{topic}' was deleted and created again while the transaction wrote to it: "
                    f"{counted(queue.result.record_count, 'record')} for partition {number} are gone",
                    checked="The topic id in Metadata",
                    remedy="Run the micro-batch again: all of it is written to the new topic. Nothing of it is visible",
                )
        self._leaders.require([queue.topic_partition for queue in queues if queue.batches])

    def _start(self, leader: int, queues: list[PartitionQueue], identity: OpenTransaction) -> None:
        now = self._monotonic()
        batches = [(queue.topic_partition, queue.take(identity, now)) for queue in queues]
        topic_ids = self._leaders.topic_ids(queue.topic_partition.topic for queue in queues)
        timeout_ms = self._client.options.request_timeout_ms
        transactional_id, _, transaction_version = identity
        request = produce_request(transactional_id, batches, topic_ids, timeout_ms, transaction_version)
        self._touched = True
        try:
            pending = self._client.start(leader, request, now + timeout_ms / 1000)
        except UnansweredError as error:
            self._client.recent.forget_leader(leader)
            for queue in queues:
                self._retry(queue, error.happened, refresh=True)
            return
        size_bytes = sum(len(data) for _, data in batches)
        self._in_flight_bytes += size_bytes
        self._in_flight.append(_InFlight(pending, request, leader, queues, topic_ids, size_bytes))

    def _collect(self) -> None:
        done = [each for each in self._in_flight if each.pending.is_done]
        self._in_flight = [each for each in self._in_flight if not each.pending.is_done]
        for exchange in done:
            self._in_flight_bytes -= exchange.size_bytes
            try:
                response = self._client.outcome(exchange.pending, exchange.request, exchange.leader)
            except UnansweredError as error:
                self._client.recent.forget_leader(exchange.leader)
                for queue in exchange.queues:
                    queue.unanswered += 1
                    self._retry(queue, error.happened, refresh=True, unsure=True, size_bytes=exchange.size_bytes)
                continue
            answers = {each.topic_partition: each for each in produce_answers(response, exchange.topic_ids)}
            for queue in exchange.queues:
                self._judge(queue, answers.get(queue.topic_partition))

    def _judge(self, queue: PartitionQueue, answer: PartitionAnswer | None) -> None:
        if answer is None:
            self._retry(queue, "the response left the partition out", refresh=True, unsure=True)
            return
        if answer.error_code == ErrorCode.NONE and answer.base_offset < 0:
            raise AbortableError(
                f"The leader of {queue.topic_partition} acknowledged records without an offset",
                remedy="Run the micro-batch or job again; if this repeats, report the broker's version",
            )
        verdict = classify(Api.PRODUCE, answer.error_code)
        if verdict is Verdict.SUCCESS:
            self._check_order(queue, answer.base_offset)
            self._queued_bytes -= queue.acknowledge(answer.base_offset)
            if queue.batches:
                self._make_ready(queue)
        elif verdict in (Verdict.RETRIABLE, Verdict.REFRESH):
            self._retry(
                queue,
                code_name(answer.error_code),
                refresh=verdict is Verdict.REFRESH,
                unsure=answer.error_code in _MAYBE_APPENDED,
                code=answer.error_code,
            )
        elif verdict is Verdict.SPLIT and queue.batches[0].record_count > 1 and not queue.unsure:
            self._client.batch_limits.note_refused(queue.topic_partition.topic, queue.batches[0])
            self._queued_bytes += queue.split_head()
            self._make_ready(queue)
        else:
            raise self._refused(queue, answer)

    def _check_order(self, queue: PartitionQueue, base_offset: int) -> None:
        """Raise if a log has given an offset twice; a leader that has lost all of the producer takes any sequence."""
        before = queue.result
        if before is not None and base_offset <= before.last_offset:
            raise AbortableError(
                f"{queue.topic_partition} has lost records of the transaction: it acknowledged "
                f"{counted(before.record_count, 'record')} up to offset {before.last_offset}, and then one at offset "
                f"{base_offset}",
                checked="The offsets in the responses to Produce",
                remedy="Run the micro-batch or job again; nothing of it is visible. Find out whether the leader lost "
                "its disk, or was elected uncleanly: older records may be lost too",
            )

    def _refused(self, queue: PartitionQueue, answer: PartitionAnswer) -> EosKafkaError:
        error = failure(Api.PRODUCE, answer.error_code, str(queue.topic_partition), detail=answer.detail)
        if isinstance(error, RecordTooLargeError):
            return RecordTooLargeError(
                f"A record batch of {queue.batches[0].size_bytes} bytes with "
                f"{counted(queue.batches[0].record_count, 'record')} is too large for {queue.topic_partition}",
                checked=error.checked,
                remedy=error.remedy,
                error_code=answer.error_code,
            )
        return error

    def _retry(
        self,
        queue: PartitionQueue,
        trouble: str,
        *,
        refresh: bool = False,
        unsure: bool = False,
        code: int = ErrorCode.NONE,
        size_bytes: int = 0,
    ) -> None:
        options = self._client.options
        if refresh:
            self._leaders.doubt(queue.topic_partition.topic)
        if queue.attempts == 0:
            # Waiting for a leader counts against the delivery timeout as well.
            queue.first_attempt_at = self._monotonic()
            queue.attempts = 1
        wait_ms = backoff_ms(queue.attempts - 1, options.retry_backoff_ms, options.retry_backoff_max_ms)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            wait_ms = _CONCURRENT_BACKOFF_MS
        now = self._monotonic()
        queue.retry_later(now + wait_ms / 1000, trouble, unsure=unsure)
        self._waiting.put_off(queue)
        self.retries += 1
        if now - queue.first_attempt_at > self.delivery_timeout_ms / 1000:
            raise self._late(queue, size_bytes, code)

    def _late(self, queue: PartitionQueue, size_bytes: int, code: int) -> DeliveryTimeoutError:
        checked = f"{counted(queue.attempts, 'attempt')}; the last one failed with: {queue.last_trouble}"
        words, what_to_do = meaning(Api.PRODUCE, code)
        checked += f": {words}" if words else ""
        remedy = (
            f"{what_to_do}. If it takes longer, raise kafka.delivery.timeout.ms"
            if words
            else "Check the partition's leader and its in-sync replicas, or raise kafka.delivery.timeout.ms"
        )
        if queue.unanswered == queue.attempts:
            # A broker closes the connection of a request that is too large, and says why only in its log.
            checked += f". No attempt got a response; the last request had {size_bytes} bytes of records"
            remedy += (
                f". If {size_bytes} bytes with a header are more than socket.request.max.bytes of the brokers, they "
                "close the connection: raise that, or lower batch.size and kafka.max.request.size, or make the record "
                "smaller"
            )
        return DeliveryTimeoutError(
            f"Records for {queue.topic_partition} were not acknowledged within {self.delivery_timeout_ms} ms",
            checked=checked,
            remedy=remedy,
        )
