"""An administrator's view of producers and transactions, and the end of what hangs (KIP-664).

kafka-python's admin client has these calls too, and is not used. Its `list_transactions` fails for a state that only a
newer broker knows, its `describe_transactions` as a whole for one unknown id, its `describe_producers` as a whole for
one partition, and its `abort_transaction` cannot commit. Its `find_hanging_transactions` lists what coordinators know
to be old: a transaction hangs if no coordinator knows it.
"""

from collections.abc import Collection
from typing import Final

from kafka.protocol.admin import ListTransactionsRequest

from broker_core.types import TopicPartition
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.end_markers import write_end_marker
from spark_eos.client.inspection import (
    FIRST_DURATION_VERSION,
    FIRST_PATTERN_VERSION,
    TransactionListing,
    list_by_broker,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.errors import UnsupportedError

_RECENT_MS: Final = 5_000


class TransactionAdmin:
    """An administrator's requests over a client, which the caller closes."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client

    def topics(self) -> list[str]:
        """List all topics, the internal ones included: offsets of groups hang as records do (KAFKA-13288)."""
        return sorted(self.client.metadata(None))

    def broker_ids(self) -> list[int]:
        self.client.metadata([])
        return sorted(broker.node_id for broker in self.client.brokers())

    def partitions(self, topics: Collection[str], broker_id: int | None = None) -> list[TopicPartition]:
        """List the partitions of topics that exist; of a broker, the partitions of its replicas."""
        found: list[TopicPartition] = []
        for topic in self._recent(topics):
            found += [
                TopicPartition(topic.name, number)
                for number, partition in topic.partitions.items()
                if broker_id is None or broker_id in partition.replicas
            ]
        return found

    def _recent(self, topics: Collection[str]) -> Collection[TopicMetadata]:
        """Describe topics; `topics()` has usually just requested all of them."""
        if not topics:
            return ()
        return self.client.require_topics(topics, need_leaders=False, max_age_ms=_RECENT_MS).values()

    def describe_producers(
        self,
        topic_partitions: Collection[TopicPartition],
        broker_id: int | None = None,
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Describe all producers of partitions, as their leaders know them or as one broker does."""
        return ProducerScan(self.client, broker_id).run(topic_partitions)

    def list_transactions(
        self,
        *,
        producer_ids: Collection[int] = (),
        states: Collection[str] = (),
        duration_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """List transactional ids by the broker that coordinates them; every broker must answer."""
        if duration_ms is not None:
            self._require_filter("duration", FIRST_DURATION_VERSION, "3.8")
        if id_pattern is not None:
            self._require_filter("pattern", FIRST_PATTERN_VERSION, "4.1")
        return list_by_broker(
            self.client, states=states, producer_ids=producer_ids, duration_ms=duration_ms, id_pattern=id_pattern
        )

    def _require_filter(self, what: str, version: int, kafka: str) -> None:
        try:
            self.client.api_version(ListTransactionsRequest, min_version=version)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"The brokers cannot filter transactions by {what}: Kafka {kafka} is the first that does",
                checked=error.happened,
                remedy="List all transactions and filter the output",
            ) from error

    def write_end_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
    ) -> None:
        """Have a partition's leader end a producer's open transaction there; see `write_end_marker`."""
        write_end_marker(self.client, topic_partition, producer_id, producer_epoch, coordinator_epoch, commit=commit)
