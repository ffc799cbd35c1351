"""The transaction that a task writes into: the interface it needs, and the client's producer behind it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.cluster import client_transaction
from spark_eos.sink.prepared import OpenTransaction, WrittenRange


class TransactionPort(Protocol):
    """The producer of one transaction at a time."""

    def begin(self, transaction: OpenTransaction) -> None:
        """Prepare to send in a transaction; nothing is sent to a broker yet."""

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Announce the target partitions, so that one lookup covers all of them."""

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Send batches in order; wait while the buffer is full."""

    @property
    def retries(self) -> int:
        """Return the number of requests sent again, over all transactions of this object."""

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged; the transaction stays open."""

    def abort(self) -> None:
        """Abort the open transaction."""


class TaskTransaction:
    """The client's producer in a worker process."""

    def __init__(self, client: KafkaClient, options: SinkOptions) -> None:
        if options.topic is not None and options.topic_id is not None:
            # What this process knows may be minutes old. A leader refuses the old id only in requests that name it.
            client.recent.forget_other(options.topic, options.topic_id)
        self._producer = TransactionalProducer(
            client, buffer_memory_bytes=options.buffer_bytes // 2, max_request_bytes=options.max_request_bytes
        )

    def begin(self, transaction: OpenTransaction) -> None:
        self._producer.begin(client_transaction(transaction))

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        self._producer.expect(topic_partitions)

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        self._producer.send(topic_partition, batches)

    @property
    def retries(self) -> int:
        return self._producer.retries

    def flush(self) -> Sequence[WrittenRange]:
        written = sorted(self._producer.flush().items())
        ids = self._producer.topic_ids({place.topic for place, _ in written})
        return [
            WrittenRange(*place, result.first_offset, result.last_offset, result.record_count, ids[place.topic])
            for place, result in written
        ]

    def abort(self) -> None:
        self._producer.abort()
