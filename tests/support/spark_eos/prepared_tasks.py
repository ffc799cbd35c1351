"""A task of the sink without Spark: it writes rows and leaves its transaction open."""

import time
from collections.abc import Sequence

from broker_core.types import TopicPartition
from spark_eos.client import transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange
from tests.support.spark_eos.client_world import encoded


def prepare(
    client: KafkaClient,
    task_id: TaskId,
    task: int,
    place: TopicPartition,
    rows: list[str],
    *,
    timeout_ms: int,
    written: Sequence[TopicRows] = (),
) -> PreparedTransaction:
    """Write rows to a partition in a transaction of the task; `written` is what a decision says of their content."""
    opened = transactions.init_producer_id(client, str(task_id), transaction_timeout_ms=timeout_ms)
    started_at_ms = int(time.time() * 1000)
    producer = TransactionalProducer(client)
    producer.begin(opened)
    producer.send(place, encoded(rows))
    result = producer.flush()[place]
    return PreparedTransaction(
        task,
        opened,
        timeout_ms,
        started_at_ms,
        (WrittenRange(place.topic, place.partition, result.first_offset, result.last_offset, len(rows)),),
        tuple(written) or (TopicRows(place.topic, len(rows), 0),),
    )
