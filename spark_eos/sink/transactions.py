"""Drive the client's transactional producer for tasks and for the driver's decisions."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from broker_core.errors import ErrorCode
from broker_core.records.compression import Compression
from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity, end_txn
from spark_eos.client.group_offsets import OffsetAndMetadata, txn_offset_commit
from spark_eos.client.producer import TransactionalProducer
from spark_eos.codec.encode import EncodedBatch, encode_batches
from spark_eos.errors import EosKafkaError, FencedError
from spark_eos.sink.cluster import end_answer
from spark_eos.sink.messages import WrittenRange
from spark_eos.sink.pool import TaskIdentity
from spark_eos.sink.ports import DecisionWrite, EndAnswer
from spark_eos.sink_options import SinkOptions


class TaskTransaction:
    """Be the producer of a worker process, one transaction at a time."""

    def __init__(self, client: KafkaClient, options: SinkOptions) -> None:
        self._producer = TransactionalProducer(
            client, buffer_memory_bytes=options.buffer_bytes, max_request_bytes=options.max_request_bytes
        )

    def begin(self, identity: TaskIdentity) -> None:
        """Get ready to send under an identity."""
        self._producer.begin(TransactionIdentity(
            identity.transactional_id, *identity.identity, identity.transaction_version
        ))

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Send batches in order."""
        self._producer.send(topic_partition, batches)

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged."""
        return [
            WrittenRange(place.topic, place.partition, result.first_offset, result.last_offset, result.record_count)
            for place, result in sorted(self._producer.flush().items())
        ]

    def abort(self) -> None:
        """Abort the open transaction."""
        self._producer.abort()


def write_decision(client: KafkaClient, write: DecisionWrite) -> EndAnswer:
    """Append a decision's records, commit the offset of the first to its group, and end: one transaction.

    Whatever fails before the end is sent aborts the transaction; only then is it certain that nothing was decided.
    """
    identity = TransactionIdentity(write.transactional_id, *write.identity, write.transaction_version)
    producer = TransactionalProducer(client)
    producer.begin(identity)
    try:
        producer.send(write.topic_partition, _encode(write))
        first_offset = producer.flush()[write.topic_partition].first_offset
        place = {write.topic_partition: OffsetAndMetadata(first_offset, write.metadata)}
        txn_offset_commit(client, identity, write.group_id, place)
    except FencedError as error:
        return EndAnswer(ErrorCode(error.error_code) if error.error_code is not None else ErrorCode.PRODUCER_FENCED)
    except EosKafkaError:
        producer.abort()
        raise
    failpoints.reach("driver.mid_decide", write.micro_batch)
    return end_answer(end_txn(client, identity, commit=True))


def _encode(write: DecisionWrite) -> Iterable[EncodedBatch]:
    # One batch for each part: together they could be more than the topic takes in one.
    for key, value in write.records:
        yield from encode_batches(
            key=pa.array([key], pa.binary()),
            value=pa.array([value], pa.binary()),
            headers=None,
            timestamp_ms=write.now_ms,
            max_batch_bytes=len(key) + len(value) + 1024,
            compression=Compression.GZIP,
        )
