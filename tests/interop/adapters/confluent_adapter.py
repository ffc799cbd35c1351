"""The adapter for confluent-kafka (librdkafka)."""

import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.adapters.serving import BATCH, DEADLINE_S, LONG_SESSION_MS, Copying, Reading, serve

POLL_S = 0.1
# Many scenarios cause errors, which the client would log as emergencies. With one broker, every restart would make the
# client start over from its bootstrap servers (KIP-899), after which send_offsets_to_transaction waits forever for the
# coordinator's former connection (seen with 2.16). Without that it does so rarely.
COMMON = {"log_level": 0, "reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none"}
FAILURES = (KafkaException, KafkaError)


class Confluent:
    """The producers by name."""

    def __init__(self) -> None:
        self._producers: dict[str, tuple[Producer, float]] = {}
        # Each with its metadata at the time of its join.
        self._members: dict[str, tuple[Consumer, Any]] = {}

    def version(self) -> list[str]:
        return ["confluent-kafka", confluent_kafka.__version__]

    def producer(
        self,
        at: str,
        name: str,
        transactional_id: str | None,
        timeout_ms: int,
        block_ms: int,
        in_flight: int | None,
        compression: str | None,
    ) -> None:
        own = {"max.in.flight": in_flight, "compression.type": compression}
        self._producers[name] = _producer(at, transactional_id, timeout_ms, own), block_ms / 1000

    def init(self, name: str) -> None:
        producer, block_s = self._producers[name]
        producer.init_transactions(block_s)

    def begin(self, name: str) -> None:
        self._producers[name][0].begin_transaction()

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> list[int]:
        producer, block_s = self._producers[name]
        offsets: list[int] = []
        errors = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        if producer.flush(block_s):
            raise TimeoutError("not delivered")
        if errors:
            raise KafkaException(errors[0])
        return offsets

    def offsets(self, name: str, group: str, topic: str, offsets: list[list[Any]], member: str | None) -> None:
        producer, block_s = self._producers[name]
        metadata = self._members[member][1] if member else _metadata_without_member(group)
        producer.send_offsets_to_transaction(
            [
                TopicPartition(topic, partition, offset, note, -1 if epoch is None else epoch)
                for partition, offset, note, epoch in offsets
            ],
            metadata,
            block_s,
        )

    def join(self, at: str, member: str, group: str, topic: str, instance: str | None) -> None:
        consumer = _consumer(at, group, "read_committed", 100, LONG_SESSION_MS, instance)
        consumer.subscribe([topic])
        end_s = time.monotonic() + DEADLINE_S
        while not consumer.assignment() and time.monotonic() < end_s:
            consumer.poll(POLL_S)
        self._members[member] = consumer, consumer.consumer_group_metadata()

    def leave(self, member: str) -> None:
        self._members[member][0].close()

    def commit(self, name: str) -> None:
        producer, block_s = self._producers[name]
        producer.commit_transaction(block_s)

    def abort(self, name: str) -> None:
        producer, block_s = self._producers[name]
        producer.abort_transaction(block_s)

    def close(self, name: str) -> None:
        producer, _ = self._producers.pop(name)
        # A fenced producer raises its error again.
        with suppress(*FAILURES):
            producer.close(1)

    def read(
        self, at: str, topic: str, partitions: int, isolation: str, max_wait_ms: int, fetch_bytes: int, **wanted: Any
    ) -> Any:
        reading = Reading(partitions, **wanted)
        consumer = _consumer(at, "unused", isolation, max_wait_ms, fetch_bytes=fetch_bytes)
        try:
            consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
            while reading.continues():
                for message in _messages(consumer, 100):
                    reading.add(message.partition(), message.offset(), message.value())
        finally:
            consumer.close()
        return reading.records

    def committed(self, at: str, group: str, topic: str, partition: int) -> Any:
        consumer = _consumer(at, group, "read_committed", 100)
        try:
            (found,) = consumer.committed([TopicPartition(topic, partition)], DEADLINE_S)
        finally:
            consumer.close()
        return [found.offset, found.metadata, found.leader_epoch] if found.offset >= 0 else None

    def end_of(self, at: str, topic: str, partition: int, isolation: str) -> int:
        consumer = _consumer(at, "unused", isolation, 100)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)[1])
        finally:
            consumer.close()

    def offset_at(self, at: str, topic: str, partition: int, isolation: str, timestamp_ms: int) -> int | None:
        consumer = _consumer(at, "unused", isolation, 100)
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], DEADLINE_S)
        finally:
            consumer.close()
        return found.offset if found.offset >= 0 else None

    def copy(
        self,
        at: str,
        group: str,
        transactional_id: str,
        source: str,
        target: str,
        metadata: bool,
        instance: str | None,
        session_ms: int,
        **plan: Any,
    ) -> Any:
        copying = Copying(**plan)
        while True:
            consumer = _consumer(at, group, "read_committed", 100, session_ms, instance)
            consumer.subscribe([source])
            try:
                producer = _producer(at, transactional_id, 10_000)
                producer.init_transactions(10)
                _copy_on(copying, consumer, producer, source, target, None if metadata else group)
                return copying.outcome()
            except FAILURES:
                # A new producer ends the former one's transaction, and a new member continues at the group's offset.
                copying.failures += 1
                copying.continues(lambda _: -1)
            finally:
                consumer.close()


def _copy_on(
    copying: Copying, consumer: Consumer, producer: Producer, source: str, target: str, group_alone: str | None
) -> None:
    def committed(partition: int) -> int:
        (found,) = consumer.committed([TopicPartition(source, partition)], 10)
        return found.offset

    while copying.continues(committed):
        messages = _messages(consumer, BATCH)
        if not messages:
            continue
        ends = {each.partition(): each.offset() + 1 for each in messages}
        starts = {each.partition(): each.offset() for each in reversed(messages)}
        producer.begin_transaction()
        for partition, value in copying.copies((m.partition(), m.offset(), m.value()) for m in messages):
            producer.produce(target, value, partition=partition)
        producer.send_offsets_to_transaction(
            [TopicPartition(source, *end) for end in ends.items()],
            _metadata_without_member(group_alone) if group_alone else consumer.consumer_group_metadata(),
            10,
        )
        if copying.is_to_be_held():
            producer.flush(10)
            copying.hold()
        if copying.is_to_be_aborted():
            producer.abort_transaction(10)
            copying.aborts += 1
            for partition, start in starts.items():
                consumer.seek(TopicPartition(source, partition, start))
        else:
            producer.commit_transaction(10)
            copying.commits += 1


def _producer(
    at: str,
    transactional_id: str | None,
    timeout_ms: int,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> Producer:
    kind = (
        {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        if transactional_id
        else {"enable.idempotence": True}
    )
    return Producer(
        COMMON
        | kind
        | {name: value for name, value in own.items() if value is not None}
        | {
            "bootstrap.servers": at,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "message.timeout.ms": timeout_ms,
        }
    )


def _consumer(
    at: str,
    group: str,
    isolation: str,
    max_wait_ms: int,
    session_ms: int = 6_000,
    instance: str | None = None,
    fetch_bytes: int = 1 << 20,
) -> Consumer:
    return Consumer(
        COMMON
        | ({"group.instance.id": instance} if instance else {})
        | {
            "bootstrap.servers": at,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": max_wait_ms,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "fetch.error.backoff.ms": 50,
            "max.partition.fetch.bytes": fetch_bytes,
        }
    )


def _metadata_without_member(group: str) -> Any:
    """Return metadata with a group and without a member, which only a consumer that has never joined has."""
    consumer = Consumer(COMMON | {"bootstrap.servers": "127.0.0.1:1", "group.id": group})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _messages(consumer: Consumer, count: int) -> list[Any]:
    """Poll; an offline broker appears as an error among the records."""
    return [each for each in consumer.consume(count, POLL_S) if each.error() is None]


def _name_of(failure: BaseException) -> str:
    """Return librdkafka's name of an error, which is wrapped in one of three ways.

    A fatal error is raised in the next callback, which appears as SystemError.
    """
    if isinstance(failure, KafkaException):
        return str(failure.args[0].name())
    if isinstance(failure, KafkaError):
        return str(failure.name())
    if isinstance(failure, SystemError) and failure.__cause__ is not None:
        return _name_of(failure.__cause__)
    return type(failure).__name__


if __name__ == "__main__":
    adapter = Confluent()
    with suppress(KeyboardInterrupt):
        serve(lambda do, request: getattr(adapter, do)(**request), _name_of)
