"""Drive the client's transactional producer for tasks."""

from collections.abc import Collection, Iterable, Sequence

from broker_core.types import TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity
from spark_eos.client.producer import TransactionalProducer
from spark_eos.codec.encode import EncodedBatch
from spark_eos.sink.pool import TaskIdentity
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink_options import SinkOptions


class TaskTransaction:
    """Be the producer of a worker process, one transaction at a time."""

    def __init__(self, client: KafkaClient, options: SinkOptions) -> None:
        self._producer = TransactionalProducer(
            client, buffer_memory_bytes=options.buffer_bytes // 2, max_request_bytes=options.max_request_bytes
        )

    def begin(self, identity: TaskIdentity) -> None:
        """Get ready to send under an identity."""
        self._producer.begin(
            TransactionIdentity(identity.transactional_id, *identity.identity, identity.transaction_version)
        )

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
