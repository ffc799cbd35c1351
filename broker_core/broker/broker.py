"""One broker of a cluster: the leader of some partitions and the coordinator of some ids."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.controller import BrokerPart, Controller, Coordinator, NoCoordinator
from broker_core.broker.endpoints import Address, Listener
from broker_core.broker.feature_levels import TRANSACTION_VERSION
from broker_core.broker.fetch_sessions import FetchSessions
from broker_core.broker.journals import TopicJournal
from broker_core.broker.limits import client_limits
from broker_core.broker.log_manager import LogManager
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_records import ConfigResource
from broker_core.broker.meters import Meters
from broker_core.broker.purgatory import Purgatory
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.groups.shard import KafkaRecords
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import ErrorCode, KafkaError
from broker_core.installed import parts
from broker_core.log.partition_log import PartitionLog
from broker_core.security.authorizer import Authorizer
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    NO_LEADER_EPOCH,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from broker_core.wire.kafka_versions import is_before
from broker_core.wire.served import ServedApi

Effect = Callable[[int], None]


class SyncQueue:
    """The effects of handled requests, in order."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.put: Callable[[Effect], None] = self._effects.append

    def take(self) -> list[Effect]:
        """Take all effects; the caller syncs the writes they confirm before it runs them."""
        effects = self._effects.copy()
        self._effects.clear()
        return effects


PartT = TypeVar("PartT")


@dataclass(eq=False, kw_only=True, repr=False)
class Broker:
    """The state of one broker id; all but the id and what follows from it belongs to the cluster.

    `throttled` contains the clients whose next request waits because of a quota; it uses the cluster's time, as quotas
    do. `stale_addresses` is set for a broker that is cut off from the others: the addresses it knew then, by listener.
    """

    broker_id: int
    settings: BrokerSettings
    metadata: ClusterMetadata
    authorizer: Authorizer | None
    logs: LogManager
    controller: Controller
    purgatory: Purgatory
    throttled: Purgatory
    sync_queue: SyncQueue
    meters: Meters
    next_producer_id: Callable[[], int]
    new_member_id: Callable[[str], str]
    now_ms: Callable[[], int]
    served_apis: Callable[[str], Mapping[int, ServedApi]]
    stale_addresses: Mapping[str, Mapping[int, Address]] | None = None

    def __post_init__(self) -> None:
        # Handlers use this for every request; a copy here saves a lookup each time.
        self.config = self.settings.of(self.broker_id)
        self.served = self.served_apis(self.config.kafka_version)
        # The broker that answers in this one's place while it is cut off from the others; see `stale_broker`.
        self.stale_twin: Broker | None = None
        self.quotas = client_limits(self.metadata, self.config)
        self.sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)
        self.transactions = TransactionCoordinator(
            config=self.config,
            journal=self.journal(TRANSACTION_STATE_TOPIC),
            next_producer_id=self.next_producer_id,
            transaction_version=partial(self.metadata.features.__getitem__, TRANSACTION_VERSION),
            partition_count=self.config.transaction_state_log_num_partitions,
            partition_exists=self.metadata.has_partition,
        )
        self.groups = GroupCoordinator(
            config=self.config,
            journal=self.journal(CONSUMER_OFFSETS_TOPIC),
            partition_count=self.config.offsets_topic_num_partitions,
            group_settings=self.group_settings,
            own_settings=lambda group_id: self.metadata.stored.of(ConfigResource.GROUP, group_id),
            new_member_id=self.new_member_id,
            topics=self.metadata,
            recorded=KafkaRecords(*(not is_before(self.config.kafka_version, each) for each in ("4.1", "4.3"))),
        )
        self.parts: list[BrokerPart] = [each.PART(self) for each in parts("broker_parts")]
        # By the internal topic that has their state.
        self.coordinators: Mapping[str, Coordinator] = {
            **dict.fromkeys(INTERNAL_TOPICS, NoCoordinator()),
            TRANSACTION_STATE_TOPIC: self.transactions,
            CONSUMER_OFFSETS_TOPIC: self.groups,
            **{topic: coordinator for part in self.parts for topic, coordinator in part.coordinators.items()},
        }

    def reconfigure(self) -> None:
        self.config = self.settings.of(self.broker_id)

    def group_settings(self, group_id: str) -> ConsumerGroupSettings:
        return ConsumerGroupSettings.of(
            "consumer", self.metadata.stored.of(ConfigResource.GROUP, group_id), self.config
        )

    def part(self, kind: type[PartT]) -> PartT:
        """Return what a feature keeps here, by its class."""
        return next(each for each in self.parts if isinstance(each, kind))

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None:
        self.groups.forget_topics(topic_ids, now_ms)
        for each in self.parts:
            each.forget_topics(topic_ids, now_ms)

    def journal(self, topic: str) -> TopicJournal:
        return TopicJournal(topic, self.broker_id, self.metadata, self.logs, self.now_ms)

    @property
    def is_stale(self) -> bool:
        return self.stale_addresses is not None

    def addresses_of(self, listener: Listener) -> Mapping[int, Address]:
        """Return the brokers' addresses for clients of a listener, as far as this broker knows them."""
        stale_addresses = self.stale_addresses
        return listener.addresses if stale_addresses is None else stale_addresses[listener.name]

    def forget_sessions(self) -> None:
        self.sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)
        for each in self.parts:
            each.forget_sessions()

    def is_replica_of(self, topic_partition: TopicPartition) -> bool:
        return self.broker_id in self.metadata.replicas(self.metadata.leadership(topic_partition))

    def require_in_sync(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Raise NOT_ENOUGH_REPLICAS if fewer replicas run than `min.insync.replicas`, at most all of them."""
        # Most topics demand one, which the leader is.
        if log.config.min_insync_replicas > 1:
            partition = self.metadata.leadership(topic_partition)
            found = len(self.metadata.in_sync(partition))
            needed = min(log.config.min_insync_replicas, len(self.metadata.replicas(partition)))
            if found < needed:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS, f"{topic_partition} has {found} replicas in sync of {needed} needed"
                )

    def led_log(
        self, topic_partition: TopicPartition, now_ms: int, client_epoch: int = NO_LEADER_EPOCH
    ) -> tuple[PartitionLog, int]:
        """Return the log of a partition this broker leads, and its leader epoch.

        Raises UNKNOWN_TOPIC_OR_PARTITION, FENCED_/UNKNOWN_LEADER_EPOCH when the client's leader epoch is not the
        current one (KIP-320), which every replica knows, or NOT_LEADER_OR_FOLLOWER.
        """
        leadership = self.metadata.leadership(topic_partition)
        is_leader = leadership.leader == self.broker_id
        if client_epoch not in (NO_LEADER_EPOCH, leadership.leader_epoch) and (
            is_leader or self.is_replica_of(topic_partition)
        ):
            behind = client_epoch < leadership.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{topic_partition} is at leader epoch {leadership.leader_epoch}")
        if not is_leader:
            leader = "no broker" if leadership.leader == NO_LEADER else f"broker {leadership.leader}"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{leader} leads {topic_partition}, not broker {self.broker_id}"
            )
        return self.logs.get(topic_partition, now_ms), leadership.leader_epoch
