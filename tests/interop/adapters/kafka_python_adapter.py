"""Lend kafka-python to the scenarios."""

from contextlib import suppress
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from tests.interop.adapters.serving import BATCH, Copying, Reading, Unsupported, serve

POLL_MS = 100
WAIT_S = 30
# Calls without a time limit of their own wait as long as the broker is away.
LONGEST_BLOCK_MS = 30_000


class KafkaPython:
    """Hold the producers by their names."""

    def __init__(self) -> None:
        self._producers: dict[str, KafkaProducer] = {}

    def version(self) -> list[str]:
        return ["kafka-python", kafka.__version__]

    def producer(self, at: str, name: str, transactional_id: str, timeout_ms: int, block_ms: int) -> None:
        if block_ms < LONGEST_BLOCK_MS:
            raise Unsupported("commit and abort have no timeout")
        self._producers[name] = _producer(at, transactional_id, timeout_ms)

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> list[int]:
        producer = self._producers[name]
        sent = [producer.send(topic, value.encode(), partition=partition) for value in values]
        producer.flush(WAIT_S)
        return [each.get(WAIT_S).offset for each in sent]

    def offsets(self, name: str, group: str, topic: str, offsets: list[list[Any]]) -> None:
        self._producers[name].send_offsets_to_transaction(
            {TopicPartition(topic, partition): OffsetAndMetadata(offset, note, -1)
             for partition, offset, note in offsets}, group)

    def commit(self, name: str) -> None:
        self._producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction()

    def close(self, name: str) -> None:
        _close(self._producers.pop(name))

    def read(self, at: str, topic: str, partitions: int, isolation: str, max_wait_ms: int, **wanted: Any) -> Any:
        reading = Reading(partitions, **wanted)
        consumer = _consumer(at, None, isolation, max_wait_ms)
        try:
            consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
            consumer.seek_to_beginning()
            while reading.goes_on():
                for records in consumer.poll(POLL_MS).values():
                    for record in records:
                        reading.add(record.partition, record.offset, record.value)
        finally:
            consumer.close()
        return reading.records

    def committed(self, at: str, group: str, topic: str, partition: int) -> Any:
        consumer = _consumer(at, group, "read_committed", 100)
        try:
            found = consumer.committed(TopicPartition(topic, partition), metadata=True)
        finally:
            consumer.close()
        return None if found is None else [found.offset, found.metadata]

    def copy(self, at: str, group: str, transactional_id: str, source: str, partitions: int, target: str,
             abort_every: int, until: str) -> Any:
        copying = Copying(partitions, until, abort_every)
        while True:
            consumer = producer = None
            try:
                consumer = _consumer(at, group, "read_committed", 100)
                producer = _producer(at, transactional_id, 10_000)
                consumer.subscribe([source])
                _copy_on(copying, consumer, producer, source, target)
                return copying.outcome()
            except KafkaError:
                # A new producer ends what the old one left, and a new member begins where the group is.
                copying.failures += 1
                copying.goes_on(lambda _: -1)
            finally:
                with suppress(KafkaError):
                    if producer is not None:
                        _close(producer)
                    if consumer is not None:
                        consumer.close(timeout_ms=2_000)


def _copy_on(copying: Copying, consumer: KafkaConsumer, producer: KafkaProducer, source: str, target: str) -> None:
    while copying.goes_on(lambda partition: consumer.committed(TopicPartition(source, partition)) or 0):
        found = consumer.poll(POLL_MS)
        if not found:
            continue
        ends = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
        producer.begin_transaction()
        for partition, value in copying.copies(
                (each.partition, each.offset, each.value) for records in found.values() for each in records):
            producer.send(target, value, partition=partition)
        metadata = consumer.group_metadata()
        assert isinstance(metadata, ConsumerGroupMetadata)
        producer.send_offsets_to_transaction(ends, metadata)
        if copying.is_to_be_aborted():
            producer.abort_transaction()
            copying.aborts += 1
            for place, records in found.items():
                consumer.seek(place, records[0].offset)
        else:
            producer.commit_transaction()
            copying.commits += 1


def _producer(at: str, transactional_id: str, timeout_ms: int) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=at, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, acks="all",
        max_block_ms=LONGEST_BLOCK_MS, reconnect_backoff_max_ms=200)
    try:
        producer.init_transactions()
    except Exception:
        _close(producer)
        raise
    return producer


def _close(producer: KafkaProducer) -> None:
    # What was not sent is not wanted any more.
    with suppress(KafkaError):
        producer.close(timeout=1)


def _consumer(at: str, group: str | None, isolation: str, max_wait_ms: int) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=at, group_id=group, isolation_level=isolation, auto_offset_reset="earliest",
        enable_auto_commit=False, fetch_max_wait_ms=max_wait_ms, session_timeout_ms=6_000, heartbeat_interval_ms=500,
        max_poll_records=BATCH, reconnect_backoff_max_ms=200)


if __name__ == "__main__":
    adapter = KafkaPython()
    with suppress(KeyboardInterrupt):
        serve(lambda do, request: getattr(adapter, do)(**request), lambda failure: type(failure).__name__)
