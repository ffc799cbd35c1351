"""Be one broker of the cluster: the leader of some partitions and the coordinator of some ids."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.broker.catalog import Catalog
from broker_core.broker.fetch_sessions import FetchSessions
from broker_core.broker.group_topics import CatalogTopics
from broker_core.broker.journals import TopicJournal
from broker_core.broker.logs import Logs
from broker_core.broker.meters import Meters
from broker_core.broker.outbox import Outbox
from broker_core.broker.purgatory import Purgatory
from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.security.authorizer import Authorizer
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    NO_LEADER,
    NO_LEADER_EPOCH,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)

if TYPE_CHECKING:
    from broker_core.broker.cluster import Cluster


class Broker:
    """Hold what belongs to one broker id; the logs and the catalog are the cluster's."""

    def __init__(self, broker_id: int, cluster: "Cluster", new_member_id: Callable[[str], str]) -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.config: BrokerConfig = cluster.config
        self.catalog: Catalog = cluster.catalog
        self.authorizer: Authorizer | None = cluster.authorizer
        self.logs: Logs = cluster.logs
        self.purgatory: Purgatory = cluster.purgatory
        self.outbox: Outbox = cluster.outbox
        self.meters: Meters = cluster.meters
        # What answers in this broker's place while it is cut off from the others; see `stale`.
        self.twin: Broker | None = None
        self.sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)
        self.transactions = TransactionCoordinator(
            config=self.config,
            journal=self._journal(TRANSACTION_STATE_TOPIC),
            next_producer_id=cluster.producer_ids.next,
            transaction_version=lambda: self.catalog.transaction_version,
            partition_count=self.config.transaction_state_log_num_partitions,
            partition_exists=self.catalog.has_partition,
        )
        self.groups = GroupCoordinator(
            config=self.config,
            journal=self._journal(CONSUMER_OFFSETS_TOPIC),
            partition_count=self.config.offsets_topic_num_partitions,
            new_member_id=new_member_id,
            topics=CatalogTopics(self.catalog),
        )

    def _journal(self, topic: str) -> TopicJournal:
        return TopicJournal(topic, self.broker_id, self.catalog, self.logs, lambda: self.cluster.now_ms)

    def led_log(
        self, topic_partition: TopicPartition, now_ms: int, client_epoch: int = NO_LEADER_EPOCH
    ) -> tuple[PartitionLog, int]:
        """Return the log of a partition this broker leads, and its leader epoch.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or FENCED_/UNKNOWN_LEADER_EPOCH when the
        client names another epoch than the current one (KIP-320).
        """
        leadership = self.catalog.leadership(topic_partition)
        if leadership.leader != self.broker_id:
            leader = "no broker" if leadership.leader == NO_LEADER else f"broker {leadership.leader}"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{leader} leads {topic_partition}, not broker {self.broker_id}"
            )
        if client_epoch not in (NO_LEADER_EPOCH, leadership.leader_epoch):
            behind = client_epoch < leadership.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{topic_partition} is at leader epoch {leadership.leader_epoch}")
        return self.logs.get(topic_partition, now_ms), leadership.leader_epoch
