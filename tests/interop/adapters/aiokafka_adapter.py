"""The adapter for aiokafka."""

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.adapters.serving import BATCH, Copying, Reading, serve

POLL_MS = 100
LONGEST_BLOCK_MS = 30_000
CLOSE_S = 2


class Aiokafka:
    """The producers by name, in an event loop that also runs between the commands."""

    def __init__(self) -> None:
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._block_s: dict[str, float] = {}

    async def version(self) -> list[str]:
        return ["aiokafka", aiokafka.__version__]

    async def producer(
        self,
        at: str,
        name: str,
        transactional_id: str | None,
        timeout_ms: int,
        block_ms: int,
        in_flight: int | None,
        compression: str | None,
    ) -> None:
        assert in_flight is None, "there is no setting for it"
        self._producers[name] = AIOKafkaProducer(
            bootstrap_servers=at,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable_idempotence=True,
            compression_type=compression,
        )
        self._block_s[name] = block_ms / 1000
        if transactional_id is None:
            await self.init(name)

    async def init(self, name: str) -> None:
        await _start(self._producers[name], self._block_s[name])

    async def begin(self, name: str) -> None:
        await self._producers[name].begin_transaction()

    async def send(self, name: str, topic: str, partition: int, values: list[str]) -> list[int]:
        producer = self._producers[name]
        try:
            sent = [await producer.send(topic, value.encode(), partition=partition) for value in values]
            return [record.offset for record in await asyncio.gather(*sent)]
        except KafkaError as failure:
            raise _reason(producer, failure) from failure

    async def add(self, name: str, topic: str, partition: int) -> None:
        # There is no public call for it: `send` does it as a side effect.
        manager, place = self._producers[name]._txn_manager, TopicPartition(topic, partition)
        manager.maybe_add_partition_to_txn(place)
        manager.notify_task_waiter()
        while place in manager.partitions_to_add():
            await asyncio.sleep(POLL_MS / 1000)

    async def offsets(self, name: str, group: str, topic: str, offsets: list[list[Any]], member: None) -> None:
        assert all(epoch is None for *_, epoch in offsets), "there is no place for it"
        await self._producers[name].send_offsets_to_transaction(
            {TopicPartition(topic, partition): (offset, note) for partition, offset, note, _ in offsets}, group
        )

    async def commit(self, name: str) -> None:
        await self._producers[name].commit_transaction()

    async def abort(self, name: str) -> None:
        await self._producers[name].abort_transaction()

    async def close(self, name: str) -> None:
        await _close(self._producers.pop(name))

    async def read(
        self, at: str, topic: str, partitions: int, isolation: str, max_wait_ms: int, fetch_bytes: int, **wanted: Any
    ) -> Any:
        reading = Reading(partitions, **wanted)
        consumer = await _consumer(at, None, isolation, max_wait_ms, max_partition_fetch_bytes=fetch_bytes)
        try:
            consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
            while reading.continues():
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for record in records:
                        reading.add(record.partition, record.offset, record.value)
        finally:
            await consumer.stop()
        return reading.records

    async def committed(self, at: str, group: str, topic: str, partition: int) -> Any:
        consumer = await _consumer(at, group, "read_committed", 100)
        try:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            # The public call returns the offset only; metadata comes from the coordinator object behind it.
            found = await consumer._coordinator.fetch_committed_offsets([place])
        finally:
            await consumer.stop()
        return [found[place].offset, found[place].metadata, None] if place in found else None

    async def end_of(self, at: str, topic: str, partition: int, isolation: str) -> int:
        consumer, place = await _consumer(at, None, isolation, 100), TopicPartition(topic, partition)
        try:
            consumer.assign([place])
            await consumer.seek_to_end(place)
            return await consumer.position(place)
        finally:
            await consumer.stop()

    async def offset_at(self, at: str, topic: str, partition: int, isolation: str, timestamp_ms: int) -> int | None:
        consumer, place = await _consumer(at, None, isolation, 100), TopicPartition(topic, partition)
        try:
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
        finally:
            await consumer.stop()
        return None if found is None or found.offset < 0 else found.offset

    async def copy(
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
        assert not metadata, "offsets are sent with the group's name alone"
        copying = Copying(**plan)
        while True:
            consumer = producer = None
            try:
                consumer = await _consumer(
                    at, group, "read_committed", 100, session_timeout_ms=session_ms, group_instance_id=instance
                )
                producer = AIOKafkaProducer(
                    bootstrap_servers=at, transactional_id=transactional_id, transaction_timeout_ms=10_000
                )
                await _start(producer, LONGEST_BLOCK_MS / 1000)
                consumer.subscribe([source])
                await _copy_on(copying, consumer, producer, source, target)
                return copying.outcome()
            except (KafkaError, TimeoutError):
                # A new producer ends the former one's transaction, and a new member continues at the group's offset.
                copying.failures += 1
                copying.continues(lambda _: -1)
            finally:
                if producer is not None:
                    await _close(producer)
                if consumer is not None:
                    with suppress(KafkaError, TimeoutError):
                        await asyncio.wait_for(consumer.stop(), CLOSE_S)


async def _copy_on(
    copying: Copying, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, source: str, target: str
) -> None:
    committed = {place: await consumer.committed(TopicPartition(source, place)) or 0 for place in copying.ends_seen()}
    # A member that joins again fetches offsets in a version that does not wait for pending transactions (KIP-447), so
    # it may go back. The adapter waits for them here.
    copied: dict[TopicPartition, int] = {}
    while copying.continues(lambda partition: committed.get(partition, 0)):
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        fresh = {
            place: [each for each in records if each.offset >= copied.get(place, 0)] for place, records in found.items()
        }
        batch = {place: records for place, records in fresh.items() if records}
        if not batch:
            continue
        ends = {place: records[-1].offset + 1 for place, records in batch.items()}
        await producer.begin_transaction()
        for partition, value in copying.copies(
            (each.partition, each.offset, each.value) for records in batch.values() for each in records
        ):
            await producer.send(target, value, partition=partition)
        await producer.send_offsets_to_transaction(ends, consumer._group_id)
        if copying.is_to_be_held():
            await producer.flush()
            copying.hold()
        if copying.is_to_be_aborted():
            await producer.abort_transaction()
            copying.aborts += 1
            for place, records in batch.items():
                consumer.seek(place, records[0].offset)
        else:
            await producer.commit_transaction()
            copying.commits += 1
            committed.update({place.partition: end for place, end in ends.items()})
            copied.update(ends)


async def _start(producer: AIOKafkaProducer, block_s: float) -> None:
    try:
        await asyncio.wait_for(producer.start(), block_s)
    except BaseException:
        await _close(producer)
        raise


async def _close(producer: AIOKafkaProducer) -> None:
    # Unsent records are dropped; a fenced producer raises its error again.
    with suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(producer.stop(), CLOSE_S)


async def _consumer(at: str, group: str | None, isolation: str, max_wait_ms: int, **own: Any) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        **{
            "bootstrap_servers": at,
            "group_id": group,
            "isolation_level": isolation,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": max_wait_ms,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 500,
        }
        | own
    )
    await consumer.start()
    return consumer


def _reason(producer: AIOKafkaProducer, failure: KafkaError) -> BaseException:
    """Return the error that ended the sender's task, if one did: its batches carry no reason."""
    task = producer._sender.sender_task
    ended = task.exception() if task.done() and not task.cancelled() else None
    return failure if ended is None else ended.__cause__ or ended


def _name_of(failure: Exception) -> str:
    """Return the error's name; the check for calls in the wrong order is a bare assertion."""
    return "Invalid state transition" if str(failure).startswith("Invalid state transition") else type(failure).__name__


def main() -> None:
    """Serve from the main thread, and run the client in a loop beside it."""
    logging.disable(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    adapter = Aiokafka()

    def command(do: str, request: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(getattr(adapter, do)(**request), loop).result()

    with suppress(KeyboardInterrupt):
        serve(command, _name_of)


if __name__ == "__main__":
    main()
