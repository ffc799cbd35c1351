"""The adapter for kafka-python."""

import re
import time
from contextlib import suppress
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from tests.interop.adapters.serving import BATCH, LONG_SESSION_MS, Copying, Reading, serve

POLL_MS = 100
WAIT_S = 30
# A member that joins twice in a row sometimes never reports its assignment; it is a member all the same.
JOIN_S = 5
# Calls without a time limit of their own wait as long as the broker is offline.
LONGEST_BLOCK_MS = 30_000


class KafkaPython:
    """The producers by name."""

    def __init__(self) -> None:
        self._producers: dict[str, KafkaProducer] = {}
        # Each with its metadata at the time of its join.
        self._members: dict[str, tuple[KafkaConsumer, Any]] = {}

    def version(self) -> list[str]:
        return ["kafka-python", kafka.__version__]

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
        self._producers[name] = _producer(
            at,
            transactional_id,
            timeout_ms,
            block_ms,
            compression_type=compression,
            max_in_flight_requests_per_connection=in_flight or 5,
        )

    def init(self, name: str) -> None:
        self._producers[name].init_transactions()

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> list[int]:
        producer = self._producers[name]
        sent = [producer.send(topic, value.encode(), partition=partition) for value in values]
        producer.flush(WAIT_S)
        return [each.get(WAIT_S).offset for each in sent]

    def add(self, name: str, topic: str, partition: int) -> None:
        # There is no public call for it: `send` does it as a side effect.
        self._producers[name]._transaction_manager.maybe_add_partition_to_transaction(TopicPartition(topic, partition))

    def offsets(self, name: str, group: str, topic: str, offsets: list[list[Any]], member: str | None) -> None:
        self._producers[name].send_offsets_to_transaction(
            {
                TopicPartition(topic, partition): OffsetAndMetadata(offset, note, -1 if epoch is None else epoch)
                for partition, offset, note, epoch in offsets
            },
            self._members[member][1] if member else group,
        )

    def join(self, at: str, member: str, group: str, topic: str, instance: str | None) -> None:
        consumer = _consumer(
            at, group, "read_committed", 100, session_timeout_ms=LONG_SESSION_MS, group_instance_id=instance
        )
        consumer.subscribe([topic])
        end_s = time.monotonic() + JOIN_S
        while not consumer.assignment() and time.monotonic() < end_s:
            consumer.poll(POLL_MS)
        self._members[member] = consumer, consumer.group_metadata()

    def leave(self, member: str) -> None:
        self._members[member][0].close(timeout_ms=2_000)

    def commit(self, name: str) -> None:
        self._producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction()

    def close(self, name: str) -> None:
        _close(self._producers.pop(name))

    def read(
        self, at: str, topic: str, partitions: int, isolation: str, max_wait_ms: int, fetch_bytes: int, **wanted: Any
    ) -> Any:
        reading = Reading(partitions, **wanted)
        consumer = _consumer(
            at, None, isolation, max_wait_ms, max_partition_fetch_bytes=fetch_bytes, max_poll_records=500
        )
        try:
            consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
            consumer.seek_to_beginning()
            while reading.continues():
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
        return None if found is None else [found.offset, found.metadata, found.leader_epoch]

    def end_of(self, at: str, topic: str, partition: int, isolation: str) -> int:
        consumer, place = _consumer(at, None, isolation, 100), TopicPartition(topic, partition)
        try:
            consumer.assign([place])
            consumer.seek_to_end(place)
            return int(consumer.position(place))
        finally:
            consumer.close()

    def offset_at(self, at: str, topic: str, partition: int, isolation: str, timestamp_ms: int) -> int | None:
        consumer, place = _consumer(at, None, isolation, 100), TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
        finally:
            consumer.close()
        return None if found is None or found.offset < 0 else found.offset

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
            consumer = producer = None
            try:
                consumer = _consumer(
                    at, group, "read_committed", 100, session_timeout_ms=session_ms, group_instance_id=instance
                )
                producer = _producer(at, transactional_id, 10_000)
                producer.init_transactions()
                consumer.subscribe([source])
                _copy_on(copying, consumer, producer, source, target, None if metadata else group)
                return copying.outcome()
            except KafkaError:
                # A new producer ends the former one's transaction, and a new member continues at the group's offset.
                copying.failures += 1
                copying.continues(lambda _: -1)
            finally:
                with suppress(KafkaError):
                    if producer is not None:
                        _close(producer)
                    if consumer is not None:
                        consumer.close(timeout_ms=2_000)


def _copy_on(
    copying: Copying,
    consumer: KafkaConsumer,
    producer: KafkaProducer,
    source: str,
    target: str,
    group_alone: str | None,
) -> None:
    while copying.continues(lambda partition: consumer.committed(TopicPartition(source, partition)) or 0):
        found = consumer.poll(POLL_MS)
        if not found:
            continue
        ends = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
        producer.begin_transaction()
        for partition, value in copying.copies(
            (each.partition, each.offset, each.value) for records in found.values() for each in records
        ):
            producer.send(target, value, partition=partition)
        metadata = consumer.group_metadata()
        assert isinstance(metadata, ConsumerGroupMetadata)
        producer.send_offsets_to_transaction(ends, group_alone or metadata)
        if copying.is_to_be_held():
            producer.flush(WAIT_S)
            copying.hold()
        if copying.is_to_be_aborted():
            producer.abort_transaction()
            copying.aborts += 1
            for place, records in found.items():
                consumer.seek(place, records[0].offset)
        else:
            producer.commit_transaction()
            copying.commits += 1


def _producer(
    at: str, transactional_id: str | None, timeout_ms: int, block_ms: int = LONGEST_BLOCK_MS, **own: Any
) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=at,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        acks="all",
        enable_idempotence=True,
        max_block_ms=block_ms,
        reconnect_backoff_max_ms=200,
        # kafka-python 3.0.12 connects in the thread that sends. That poll can take the wake-up of a commit, which then
        # waits until the thread wakes for the next metadata: five minutes by default.
        metadata_max_age_ms=2_000,
        **own,
    )


def _close(producer: KafkaProducer) -> None:
    # Unsent records are dropped.
    with suppress(KafkaError):
        producer.close(timeout=1)


def _consumer(at: str, group: str | None, isolation: str, max_wait_ms: int, **own: Any) -> KafkaConsumer:
    return KafkaConsumer(
        **{
            "bootstrap_servers": at,
            "group_id": group,
            "isolation_level": isolation,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": max_wait_ms,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 500,
            "max_poll_records": BATCH,
            "reconnect_backoff_max_ms": 200,
        }
        | own
    )


def _name_of(failure: Exception) -> str:
    """Return the error's name; some errors are wrapped in a KafkaError that only quotes them."""
    name = type(failure).__name__
    quoted = re.search(r"(Invalid transition|(?<=\] )\w+Error)", str(failure)) if name == "KafkaError" else None
    return quoted[1] if quoted else name


if __name__ == "__main__":
    adapter = KafkaPython()
    with suppress(KeyboardInterrupt):
        serve(lambda do, request: getattr(adapter, do)(**request), _name_of)
