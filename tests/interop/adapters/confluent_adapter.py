"""Lend confluent-kafka, that is librdkafka, to the scenarios."""

from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.adapters.serving import BATCH, DEADLINE_S, Copying, Reading, serve

POLL_S = 0.1
# Errors are what many scenarios are about; the client would report them as emergencies. With one broker every restart
# would make the client start over from its bootstrap servers (KIP-899), after which send_offsets_to_transaction waits
# for ever for the coordinator's former connection (seen with 2.16).
COMMON = {"log_level": 0, "reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none"}
FAILURES = (KafkaException, KafkaError)


class Confluent:
    """Hold the producers by their names."""

    def __init__(self) -> None:
        self._producers: dict[str, tuple[Producer, float]] = {}

    def version(self) -> list[str]:
        return ["confluent-kafka", confluent_kafka.__version__]

    def producer(self, at: str, name: str, transactional_id: str, timeout_ms: int, block_ms: int) -> None:
        producer = _producer(at, transactional_id, timeout_ms)
        producer.init_transactions(block_ms / 1000)
        self._producers[name] = producer, block_ms / 1000

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

    def offsets(self, name: str, group: str, topic: str, offsets: list[list[Any]]) -> None:
        producer, block_s = self._producers[name]
        consumer = Consumer(COMMON | {"bootstrap.servers": "127.0.0.1:1", "group.id": group})
        try:
            metadata = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, partition, offset, note) for partition, offset, note in offsets], metadata, block_s)

    def commit(self, name: str) -> None:
        producer, block_s = self._producers[name]
        producer.commit_transaction(block_s)

    def abort(self, name: str) -> None:
        producer, block_s = self._producers[name]
        producer.abort_transaction(block_s)

    def close(self, name: str) -> None:
        producer, _ = self._producers.pop(name)
        # A fenced producer says so once more.
        with suppress(*FAILURES):
            producer.close(1)

    def read(self, at: str, topic: str, partitions: int, isolation: str, max_wait_ms: int, **wanted: Any) -> Any:
        reading = Reading(partitions, **wanted)
        consumer = _consumer(at, "nobody", isolation, max_wait_ms)
        try:
            consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
            while reading.goes_on():
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
        return [found.offset, found.metadata] if found.offset >= 0 else None

    def copy(self, at: str, group: str, transactional_id: str, source: str, partitions: int, target: str,
             abort_every: int, until: str) -> Any:
        copying = Copying(partitions, until, abort_every)
        while True:
            consumer = _consumer(at, group, "read_committed", 100)
            consumer.subscribe([source])
            try:
                producer = _producer(at, transactional_id, 10_000)
                producer.init_transactions(10)
                _copy_on(copying, consumer, producer, source, target)
                return copying.outcome()
            except FAILURES:
                # A new producer ends what the old one left, and a new member begins where the group is.
                copying.failures += 1
                copying.goes_on(lambda _: -1)
            finally:
                consumer.close()


def _copy_on(copying: Copying, consumer: Consumer, producer: Producer, source: str, target: str) -> None:
    def committed(partition: int) -> int:
        (found,) = consumer.committed([TopicPartition(source, partition)], 10)
        return found.offset

    while copying.goes_on(committed):
        messages = _messages(consumer, BATCH)
        if not messages:
            continue
        ends = {each.partition(): each.offset() + 1 for each in messages}
        starts = {each.partition(): each.offset() for each in reversed(messages)}
        producer.begin_transaction()
        for partition, value in copying.copies((m.partition(), m.offset(), m.value()) for m in messages):
            producer.produce(target, value, partition=partition)
        producer.send_offsets_to_transaction(
            [TopicPartition(source, *end) for end in ends.items()], consumer.consumer_group_metadata(), 10)
        if copying.is_to_be_aborted():
            producer.abort_transaction(10)
            copying.aborts += 1
            for partition, start in starts.items():
                consumer.seek(TopicPartition(source, partition, start))
        else:
            producer.commit_transaction(10)
            copying.commits += 1


def _producer(at: str, transactional_id: str, timeout_ms: int) -> Producer:
    return Producer(COMMON | {
        "bootstrap.servers": at, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms,
        "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200, "message.timeout.ms": timeout_ms,
    })


def _consumer(at: str, group: str, isolation: str, max_wait_ms: int) -> Consumer:
    return Consumer(COMMON | {
        "bootstrap.servers": at, "group.id": group, "isolation.level": isolation, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "fetch.wait.max.ms": max_wait_ms, "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500, "fetch.error.backoff.ms": 50,
    })


def _messages(consumer: Consumer, count: int) -> list[Any]:
    """Poll; a broker that is away shows as an error among the records."""
    return [each for each in consumer.consume(count, POLL_S) if each.error() is None]


def _name_of(failure: BaseException) -> str:
    """Return librdkafka's name of an error, of which there are three wrappings.

    A fatal one is raised in whatever callback comes next, which shows as SystemError.
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
