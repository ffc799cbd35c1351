"""The controller of a cluster: it creates topics, elects leaders, and knows which brokers run.

Every change is recorded in the cluster's metadata first. A coordinator runs on the leader of its partition of the
internal topic. While a broker is offline, other brokers lead its partitions; it leads them again when it returns.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from broker_core.broker.endpoints import Address
from broker_core.broker.internal_topics import internal_partition_count, internal_topic_config
from broker_core.broker.log_manager import LogManager
from broker_core.broker.metadata import ClusterMetadata, Leadership, Topic
from broker_core.broker.metadata_log import MetadataLog
from broker_core.broker.meters import Meters
from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.shares.coordinator import ShareCoordinator
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import DamageError, InvalidBatch
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    coordinator_partition,
)

logger = logging.getLogger(__name__)

# The ids that a partition of an internal topic serves, and the effect on them when it cannot be read.
_COORDINATED = {
    TRANSACTION_STATE_TOPIC: (
        "transactional ids",
        "the ids are then unknown, and open transactions have to be found and aborted by hand"
        " (kafka-transactions.sh or eos-kafka transactions, find-hanging)",
    ),
    CONSUMER_OFFSETS_TOPIC: ("groups", "the groups then begin without committed offsets"),
    SHARE_GROUP_STATE_TOPIC: ("share partitions", "these share partitions then begin again"),
}


class ControlledBroker(Protocol):
    """The part of a broker that the controller uses."""

    broker_id: int
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    share_states: ShareCoordinator

    def forget_sessions(self) -> None:
        """Drop all fetch and share sessions."""
        ...


class _Substitution(NamedTuple):
    """The preferred leader of a partition, and the broker that leads it meanwhile."""

    preferred: int
    substitute: int


class Controller:
    """The management of topics, elections, and brokers that stop and start.

    `addresses` contains the running brokers; it is one mapping, updated in place, for the life of the cluster.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        metadata_log: MetadataLog,
        logs: LogManager,
        addresses: dict[int, Address],
        meters: Meters,
        new_uuid: Callable[[], UUID],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._metadata_log = metadata_log
        self._logs = logs
        self.addresses = addresses
        # All brokers of the cluster, running or not.
        self.broker_ids = tuple(addresses)
        self._meters = meters
        self.new_uuid = new_uuid
        self._now_ms = now_ms
        self.brokers: Mapping[int, ControlledBroker] = {}
        self._substitutions: dict[TopicPartition, _Substitution] = {}
        # The preferred leaders of partitions whose election failed because no broker was running.
        self._waiting: dict[TopicPartition, int] = {}

    def start(self, brokers: Mapping[int, ControlledBroker]) -> None:
        """Register the brokers, and start the coordinators of the partitions they lead."""
        self.brokers = brokers
        for name in sorted(INTERNAL_TOPICS & set(self._metadata.topics)):
            self._elect_coordinators(self._metadata.topics[name])

    # Topics

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> Topic:
        """Create a topic; for an internal topic, elect the coordinators at once."""
        self._config.topic_defaults().override(config or {})
        topic = self._metadata.create_topic(name, self.new_uuid(), partition_count, config or {}, leaders)
        self._metadata_log.sync()
        self._logs.clear_leftovers(topic.topic_partitions())
        if topic.is_internal:
            self._elect_coordinators(topic)
        return topic

    def ensure_topic(self, name: str) -> Topic:
        """Return the topic, creating it with the cluster's defaults if it does not exist.

        Kafka answers COORDINATOR_NOT_AVAILABLE while it creates an internal topic, and the client retries; here
        creation takes no time, so the first response succeeds.
        """
        topic = self._metadata.topics.get(name)
        if topic is not None:
            return topic
        if name in INTERNAL_TOPICS:
            count = internal_partition_count(self._config, name)
            return self.create_topic(name, count, internal_topic_config(self._config, name))
        return self.create_topic(name, self._config.num_partitions)

    def add_partitions(self, name: str, count: int, leaders: Sequence[int] | None = None) -> None:
        """Increase the number of a topic's partitions to `count`; `leaders` are those of the new ones."""
        known = len(self._metadata.topic(name).partitions)
        topic = self._metadata.add_partitions(name, count, leaders)
        self._metadata_log.sync()
        self._logs.clear_leftovers(topic.topic_partitions()[known:])

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its logs: first the record, durably, then the files."""
        topic = self._metadata.delete_topic(name)
        self._metadata_log.sync()
        now_ms = self._now_ms()
        self._logs.delete(topic, now_ms)
        for broker in self.brokers.values():
            broker.groups.forget_partitions(topic.topic_partitions(), now_ms)
            broker.groups.forget_topics((topic.topic_id,), now_ms)
            broker.share_states.forget_topics((topic.topic_id,), now_ms)

    def coordinator_partition_of(self, topic_name: str, key: str) -> TopicPartition:
        """Return the partition of an internal topic whose leader coordinates a transactional id or group."""
        return TopicPartition(topic_name, coordinator_partition(key, len(self.ensure_topic(topic_name).partitions)))

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocate a block of producer ids, durably: otherwise a crash could lead to an id that is allocated twice."""
        found = self._metadata.allocate_producer_ids()
        self._metadata_log.sync()
        return found

    @property
    def metadata_end_offset(self) -> int:
        """Return the offset of the next record of the cluster's metadata."""
        return self._metadata_log.end_offset

    # Leaders

    def leader_of(self, topic_partition: TopicPartition) -> ControlledBroker | None:
        """Return the broker that leads a partition, or None while it has no leader."""
        return self.brokers.get(self._metadata.leadership(topic_partition).leader)

    def has_substitute(self, topic_partition: TopicPartition) -> bool:
        """Return whether another broker leads the partition until its preferred leader returns."""
        substitution = self._substitutions.get(topic_partition)
        leader = self._metadata.leadership(topic_partition).leader
        return substitution is not None and substitution.substitute == leader

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Make another broker the leader; a coordinator moves with its state partition."""
        old = self._metadata.leadership(topic_partition)
        self._begin_term(topic_partition, old, self._metadata.move_leader(topic_partition, broker_id))

    def lose_leader(self, topic_partition: TopicPartition) -> None:
        """Remove the leader of a partition, and the coordinator of its ids, until the next election."""
        old = self._metadata.leadership(topic_partition)
        if old.leader != NO_LEADER:
            self._begin_term(topic_partition, old, self._metadata.lose_leader(topic_partition))

    def elect(self, topic_partition: TopicPartition, preferred: int) -> None:
        """Elect the preferred leader of a partition without one, or another broker until that one is back."""
        if not self._metadata.has_partition(topic_partition) or self.leader_of(topic_partition) is not None:
            return
        if not self.addresses:
            self._waiting[topic_partition] = preferred
            return
        leader = preferred if preferred in self.addresses else min(self.addresses)
        if leader != preferred:
            self._substitutions[topic_partition] = _Substitution(preferred, leader)
        self.move_leader(topic_partition, leader)

    def _begin_term(self, topic_partition: TopicPartition, old: Leadership, new: Leadership) -> None:
        # Before anything is written in the new leader epoch: an epoch lost in a crash would be assigned again, and its
        # markers would be refused as a zombie's.
        self._metadata_log.sync()
        if new.leader != NO_LEADER:
            self._logs.begin_leader_epoch(topic_partition, new.leader_epoch)
        if topic_partition.topic in INTERNAL_TOPICS:
            if old.leader != NO_LEADER:
                _coordinator_of(self.brokers[old.leader], topic_partition.topic).resign(topic_partition.partition)
            self._elect_coordinator(topic_partition, new)
        self._logs.moved(topic_partition)

    def _elect_coordinators(self, topic: Topic) -> None:
        for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True):
            self._elect_coordinator(topic_partition, leadership)

    def _elect_coordinator(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        """Start the leader's coordinator; if the partition cannot be read, only its own ids have no coordinator."""
        if leadership.leader == NO_LEADER:
            return
        began_ms = self._meters.stopwatch()
        try:
            _coordinator_of(self.brokers[leadership.leader], topic_partition.topic).become_leader(
                topic_partition.partition, leadership.leader_epoch, self._now_ms()
            )
        except (DamageError, InvalidBatch) as damage:
            what, without = _COORDINATED[topic_partition.topic]
            logger.error(
                "%s cannot be read: %s. The %s of this partition have no coordinator until a restart: requests for them"
                " get COORDINATOR_LOAD_IN_PROGRESS, others work. Inspect the folder %s with Kafka's kafka-dump-log.sh."
                " To go on without it, stop the broker, move the folder away, and start again: %s",
                topic_partition,
                damage,
                what,
                topic_partition,
                without,
            )
        else:
            self._meters.loaded(topic_partition.topic, began_ms)

    def resign_coordinators(self) -> None:
        """Stop all coordinators, without an election: waiting members are answered NOT_COORDINATOR."""
        for name in sorted(INTERNAL_TOPICS & set(self._metadata.topics)):
            for topic_partition in self._metadata.topics[name].topic_partitions():
                leader = self._metadata.leadership(topic_partition).leader
                if leader != NO_LEADER:
                    _coordinator_of(self.brokers[leader], name).resign(topic_partition.partition)

    # Brokers that come and go

    def broker_left(self, broker_id: int) -> None:
        """Move a broker's partitions to others. If none is running, they wait for the first broker to return."""
        if self.addresses.pop(broker_id, None) is None:
            return
        self._metadata.broker_ids = others = tuple(self.addresses)
        if others:
            for index, topic_partition in enumerate(self._led_by(broker_id)):
                substitute = others[index % len(others)]
                known = self._substitutions.get(topic_partition)
                preferred = broker_id if known is None else known.preferred
                self._substitutions[topic_partition] = _Substitution(preferred, substitute)
                self.move_leader(topic_partition, substitute)

    def broker_joined(self, broker_id: int, address: Address) -> None:
        """Return a broker's partitions to it, except those that were moved with `move_leader` meanwhile."""
        # In the brokers' order, and in place: connections share this mapping.
        ordered = sorted({**self.addresses, broker_id: address}.items())
        self.addresses.clear()
        self.addresses.update(ordered)
        self._metadata.broker_ids = tuple(self.addresses)
        self.brokers[broker_id].forget_sessions()
        for topic_partition, substitution in list(self._substitutions.items()):
            if substitution.preferred == broker_id:
                del self._substitutions[topic_partition]
                if topic_partition in self._led_by(substitution.substitute):
                    self.move_leader(topic_partition, broker_id)
        for absent in self.brokers.keys() - self.addresses.keys():
            for topic_partition in self._led_by(absent):
                self._substitutions[topic_partition] = _Substitution(absent, broker_id)
                self.move_leader(topic_partition, broker_id)
        waiting, self._waiting = self._waiting, {}
        for topic_partition, preferred in waiting.items():
            self.elect(topic_partition, preferred)

    def _led_by(self, broker_id: int) -> list[TopicPartition]:
        return [
            topic_partition
            for topic in self._metadata.topics.values()
            for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True)
            if leadership.leader == broker_id
        ]


def _coordinator_of(
    broker: ControlledBroker, topic: str
) -> TransactionCoordinator | GroupCoordinator | ShareCoordinator:
    """Return the broker's coordinator whose state is in this internal topic."""
    if topic == SHARE_GROUP_STATE_TOPIC:
        return broker.share_states
    return broker.transactions if topic == TRANSACTION_STATE_TOPIC else broker.groups
