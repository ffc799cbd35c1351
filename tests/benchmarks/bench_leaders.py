"""The first writes of transactions to one leader and to three, on three nodes of Apache Kafka.

`python -m tests.benchmarks.bench_leaders`. Under transactions V2 the first write to a partition adds it to the
transaction, one partition at a time. A write that meets another one is tried again by its broker after
`add.partitions.to.txn.retry.backoff.ms`. Each line has medians of transactions in turn, with one value of it.
"""

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import end_txn, init_producer_id
from spark_eos.options.sink import sink_options
from tests.support.apache_cluster import apache_cluster
from tests.support.spark_eos.client_world import encoded

BACKOFF = "add.partitions.to.txn.retry.backoff.ms"
BACKOFFS_MS = (20, 1)
TOPIC, LEADERS = "output", (1, 3)
WARM_UP, ROUNDS = 20, 140


def flush_ms(client: KafkaClient) -> dict[int, float]:
    """Return the median ms of the first writes to as many leaders."""
    identity = init_producer_id(client, "bench", transaction_timeout_ms=60_000)
    found: dict[int, list[float]] = {leaders: [] for leaders in LEADERS}
    for _ in range(WARM_UP + ROUNDS):
        for leaders, times in found.items():
            producer = TransactionalProducer(client)
            producer.begin(identity)
            began = time.perf_counter()
            for partition in range(leaders):
                producer.send(TopicPartition(TOPIC, partition), encoded(["value"]))
            producer.flush()
            times.append(1_000 * (time.perf_counter() - began))
            ended = end_txn(client, identity, commit=True, timeout_ms=30_000)
            assert ended.next_identity is not None, ended
            identity = identity._replace(producer=ended.next_identity)
            time.sleep(0.03)
    return {leaders: statistics.median(times[WARM_UP:]) for leaders, times in found.items()}


def main() -> None:
    """Print a line for each backoff."""
    for backoff_ms in BACKOFFS_MS:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = stack.enter_context(apache_cluster(folder, {BACKOFF: str(backoff_ms)}))
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, max(LEADERS), 3)])[TOPIC].result()
            options = sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC})
            found = flush_ms(stack.enter_context(KafkaClient(options.client)))
        figures = ", ".join(f"{leaders} leaders {figure:.1f}" for leaders, figure in found.items())
        print(f"{BACKOFF}={backoff_ms}, first writes, ms: {figures}", flush=True)


if __name__ == "__main__":
    main()
