"""Put the rooms together: one catalog, one set of logs, n brokers, and the order in which effects happen.

The order is the whole point. A request changes logs and queues effects: its answer, the markers of a
transaction it decided. `settle` makes durable what those effects promise, lets them happen, and goes on until
nothing is left. So no client learns of a write, and no partition of a verdict, that a crash could take back.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple
from uuid import UUID

from broker_core.broker.absences import Absences
from broker_core.broker.broker import Broker
from broker_core.broker.catalog import Catalog, Leadership, Topic
from broker_core.broker.faults import Hooks
from broker_core.broker.housekeeping import Housekeeping
from broker_core.broker.listener import Listener
from broker_core.broker.logs import Logs, internal_topic_config
from broker_core.broker.markers import deliver
from broker_core.broker.meters import Meters, Stopwatch, stopped
from broker_core.broker.outbox import Outbox
from broker_core.broker.purgatory import Purgatory
from broker_core.config import BrokerConfig, TopicConfig
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.producer_ids import ProducerIds
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.partition_log import PartitionLog
from broker_core.ports import Entropy, Storage
from broker_core.records.batch import NewRecord, build_batch
from broker_core.security.authorizer import authorizer_for
from broker_core.types import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    LONGEST_STRING_BYTES,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    coordinator_partition,
)

log = logging.getLogger(__name__)

_METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_PARTITION_COUNTS = {
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.num.partitions",
}

# What a partition of an internal topic is about, and what becomes of that without it.
_COORDINATED = {
    TRANSACTION_STATE_TOPIC: (
        "transactional ids",
        "the ids are then unknown, and open transactions have to be found and aborted by hand"
        " (kafka-transactions.sh or eos-kafka transactions, find-hanging)",
    ),
    CONSUMER_OFFSETS_TOPIC: ("groups", "the groups then begin without committed offsets"),
}


class Address(NamedTuple):
    """Say where clients reach a broker."""

    host: str
    port: int


class Cluster:
    """Run n brokers over one storage; everything happens in the caller's thread, at the caller's time."""

    # Whether it is what a broker that is cut off remembers; see `stale`.
    is_past: ClassVar[bool] = False

    def __init__(
        self,
        *,
        storage: Storage,
        entropy: Entropy,
        config: BrokerConfig,
        addresses: Mapping[int, Address],
        now_ms: int,
        stopwatch: Stopwatch = stopped,
        purgatory: Purgatory | None = None,
    ) -> None:
        self.config = config
        self.addresses = dict(addresses)
        self.now_ms = now_ms
        self.outbox = Outbox()
        self.meters = Meters(stopwatch)
        self.purgatory = Purgatory() if purgatory is None else purgatory
        # Whoever notes requests and lets faults strike them; usually nobody.
        self.hooks: Hooks | None = None
        self.entropy = entropy
        self.storage = storage
        self._metadata_log = PartitionLog.open(
            storage, f"{CLUSTER_METADATA_TOPIC}-0", _METADATA, TopicConfig(cleanup_policy="compact"), now_ms
        )
        self.catalog = Catalog(self._append_metadata, self.addresses)
        self.catalog.load(
            (offset, record.value) for offset, _, record in self._metadata_log.read_journal() if record.value
        )
        self._open_catalog(config)
        self.config = config = self._with_actual_counts(config)
        self.authorizer = authorizer_for(config, self.catalog.acls)
        self.logs = self._open_logs(storage)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.brokers = {broker_id: Broker(broker_id, self, self._new_member_id) for broker_id in self.addresses}
        for name in sorted(INTERNAL_TOPICS & set(self.catalog.topics)):
            self._elect_coordinators(self.catalog.topics[name])
        self.absences = Absences(self)
        self._housekeeping = Housekeeping(self.logs, config, now_ms)
        self.settle(now_ms)

    def _open_catalog(self, config: BrokerConfig) -> None:
        self.catalog.open_cluster(
            config.cluster_id or self._new_cluster_id(), config.transaction_version, config.group_version
        )

    def _open_logs(self, storage: Storage) -> Logs:
        return Logs(storage, self.config, self.catalog)

    # Time

    def advance(self, now_ms: int) -> None:
        """Do what has come due, then settle."""
        self.now_ms = now_ms
        self.purgatory.advance(now_ms)
        for broker in self.brokers.values():
            broker.transactions.advance(now_ms)
            broker.groups.advance(now_ms)
        self._housekeeping.advance(now_ms)
        self.settle(now_ms)

    def next_deadline_ms(self) -> int:
        """Return when `advance` wants to be called again, at the latest."""
        deadlines = [self._housekeeping.next_deadline_ms(), self.purgatory.next_deadline_ms()]
        for broker in self.brokers.values():
            deadlines += [broker.transactions.next_deadline_ms(), broker.groups.next_deadline_ms()]
        return min(deadline for deadline in deadlines if deadline is not None)

    def settle(self, now_ms: int) -> None:
        """Sync what was promised, then let answers leave and markers be written, until all is quiet."""
        self.now_ms = now_ms
        self.sync()
        is_quiet = False
        while not is_quiet:
            # Taken before the sync: what they rest on is written, and durable after it. They may bring about more.
            orders = [
                (broker, order) for broker in self.brokers.values() for order in broker.transactions.take_markers()
            ]
            effects = self.outbox.take()
            if orders or effects:
                # What nobody waits for, such as the record that completes a transaction, shares somebody's next sync.
                self.sync()
            for effect in effects:
                effect(now_ms)
            for broker, order in orders:
                deliver(self, broker, order, now_ms)
            changed = self.logs.take_changed()
            if changed:
                self.purgatory.wake(changed, now_ms)
            is_quiet = not (orders or effects or changed)

    def close(self, now_ms: int) -> None:
        """Settle and close all logs cleanly."""
        self.settle(now_ms)
        self.logs.close(now_ms)
        self._metadata_log.close(now_ms)

    # Topics

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> Topic:
        """Create a topic; coordinators are elected at once if it is one of theirs."""
        self.config.topic_defaults().override(config or {})
        topic = self.catalog.create_topic(name, self._new_uuid(), partition_count, config or {}, leaders)
        self._sync_metadata()
        self.logs.clear_leftovers(topic.topic_partitions())
        if topic.is_internal:
            self._elect_coordinators(topic)
        return topic

    def ensure_topic(self, name: str) -> Topic:
        """Return the topic, creating it with the cluster's defaults if it is not there.

        Kafka answers COORDINATOR_NOT_AVAILABLE while it creates an internal topic and the client asks again; here
        creation takes no time, so the first answer is already the right one.
        """
        topic = self.catalog.topics.get(name)
        if topic is not None:
            return topic
        if name in INTERNAL_TOPICS:
            count = int(self.config.as_text()[_PARTITION_COUNTS[name]])
            return self.create_topic(name, count, internal_topic_config(self.config, name))
        return self.create_topic(name, self.config.num_partitions)

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        known = len(self.catalog.topic(name).partitions)
        topic = self.catalog.add_partitions(name, count)
        self._sync_metadata()
        self.logs.clear_leftovers(topic.topic_partitions()[known:])

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its logs: first the record, durably, then the files."""
        topic = self.catalog.delete_topic(name)
        self._sync_metadata()
        self.logs.delete(topic, self.now_ms)
        for broker in self.brokers.values():
            broker.groups.forget_partitions(topic.topic_partitions(), self.now_ms)

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Make another broker the leader; a coordinator moves with its state partition."""
        old = self.catalog.leadership(topic_partition)
        self._begin_term(topic_partition, old, self.catalog.move_leader(topic_partition, broker_id))

    def lose_leader(self, topic_partition: TopicPartition) -> None:
        """Leave a partition without a leader, and what it coordinates without a coordinator, until it gets one."""
        old = self.catalog.leadership(topic_partition)
        if old.leader != NO_LEADER:
            self._begin_term(topic_partition, old, self.catalog.lose_leader(topic_partition))

    def _begin_term(self, topic_partition: TopicPartition, old: Leadership, new: Leadership) -> None:
        # Before anything is written in the new term: terms that a crash took back would be given out again, and their
        # markers be refused as a zombie's.
        self._sync_metadata()
        if new.leader != NO_LEADER:
            self.logs.begin_leader_epoch(topic_partition, new.leader_epoch)
        if topic_partition.topic in INTERNAL_TOPICS:
            if old.leader != NO_LEADER:
                coordinator_of(self.brokers[old.leader], topic_partition.topic).resign(topic_partition.partition)
            self._elect_coordinator(topic_partition, new)
        self.logs.moved(topic_partition)

    def leader_of(self, topic_partition: TopicPartition) -> Broker | None:
        """Return the broker that leads a partition, None while it has no leader."""
        return self.brokers.get(self.catalog.leadership(topic_partition).leader)

    def addresses_by(self, listener: Listener) -> Mapping[int, Address]:
        """Return where clients that came in by a listener reach the brokers."""
        return listener.addresses

    def coordinator_partition_of(self, topic_name: str, key: str) -> TopicPartition:
        """Return the partition of an internal topic whose leader coordinates a transactional id or group."""
        return TopicPartition(topic_name, coordinator_partition(key, len(self.ensure_topic(topic_name).partitions)))

    def _elect_coordinators(self, topic: Topic) -> None:
        for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True):
            self._elect_coordinator(topic_partition, leadership)

    def _elect_coordinator(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        """Let the leader coordinate; a partition that cannot be read costs its own ids their coordinator, no others."""
        if leadership.leader == NO_LEADER:
            return
        began_ms = self.meters.stopwatch()
        try:
            coordinator_of(self.brokers[leadership.leader], topic_partition.topic).become_leader(
                topic_partition.partition, leadership.leader_epoch, self.now_ms
            )
        except (DamageError, InvalidBatch) as damage:
            what, without = _COORDINATED[topic_partition.topic]
            log.error(
                "%s cannot be read: %s. Nobody coordinates the %s of this partition until a restart: they are answered"
                " COORDINATOR_LOAD_IN_PROGRESS, all others go on. Look at the folder %s with Kafka's kafka-dump-log.sh."
                " To go on without it, stop the broker, move the folder away, and start again: %s",
                topic_partition,
                damage,
                what,
                topic_partition,
                without,
            )
        else:
            self.meters.loaded(topic_partition.topic, began_ms)

    def _with_actual_counts(self, config: BrokerConfig) -> BrokerConfig:
        """Return the settings with the partition counts that existing internal topics have: ids hash by those."""
        actual = {
            key: str(len(self.catalog.topics[name].partitions))
            for name, key in _PARTITION_COUNTS.items()
            if name in self.catalog.topics
        }
        return config.override(actual)

    # The cluster's own journal and chance

    def sync(self) -> None:
        """Make durable all that was promised."""
        self._sync_metadata()
        self.logs.sync()

    def _sync_metadata(self) -> None:
        if self._metadata_log.unsynced:
            self._metadata_log.sync()

    def _append_metadata(self, key: bytes, value: bytes) -> int:
        batch = build_batch([NewRecord(key, value, (), self.now_ms)])
        return self._metadata_log.append_as_leader(batch, now_ms=self.now_ms, leader_epoch=0).base_offset

    def _allocate_producer_ids(self) -> tuple[int, int]:
        """Give out a block of producer ids, durably: an id that a crash took back would be given out twice."""
        found = self.catalog.allocate_producer_ids()
        self._sync_metadata()
        return found

    def _new_uuid(self) -> UUID:
        return UUID(bytes=self.entropy.random_bytes(16), version=4)

    def _new_cluster_id(self) -> str:
        # Kafka prints a UUID as 22 URL-safe base64 characters; hexadecimal is as good and easier to read.
        return self.entropy.random_bytes(11).hex()

    def _new_member_id(self, client_id: str) -> str:
        ending = f"-{self._new_uuid()}"
        # A name as long as a string may be leaves room for what makes it unique.
        return client_id.encode()[: LONGEST_STRING_BYTES - len(ending)].decode(errors="ignore") + ending


def coordinator_of(broker: Broker, topic: str) -> TransactionCoordinator | GroupCoordinator:
    """Return the broker's coordinator that keeps its state in this internal topic."""
    return broker.transactions if topic == TRANSACTION_STATE_TOPIC else broker.groups
