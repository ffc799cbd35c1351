"""The controller of a cluster: it creates topics, elects leaders, and knows which brokers run.

Every change is recorded in the cluster's metadata first. A coordinator runs on the leader of its partition of the
internal topic. While a broker is offline, other replicas lead its partitions; it leads them again when it returns. A
partition without a replica that runs has no leader.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker_core.broker.endpoints import Address
from broker_core.broker.journals import MetadataLog
from broker_core.broker.log_manager import LogManager
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.meters import Meters
from broker_core.broker.partitions import (
    Leadership,
    Topic,
    coordinated_in,
    internal_partition_count,
    internal_topic_config,
)
from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import DamageError, ErrorCode, InvalidBatch, KafkaError
from broker_core.types import INTERNAL_TOPICS, NO_LEADER, TopicPartition, coordinator_partition


class Coordinator(Protocol):
    """What keeps its state in an internal topic."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None: ...

    def resign(self, partition: int) -> None: ...


class NoCoordinator:
    """What stands for the coordinator of a feature that is not installed: its topic is kept, and nothing reads it."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Do nothing."""

    def resign(self, partition: int) -> None:
        """Do nothing."""


class BrokerPart(Protocol):
    """What one feature keeps in one broker."""

    @property
    def coordinators(self) -> Mapping[str, Coordinator]: ...

    def advance(self, now_ms: int) -> None: ...

    def next_deadline_ms(self) -> int | None: ...

    def forget_sessions(self) -> None: ...

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None: ...

    def delete_kept_for(self, group_id: str, now_ms: int) -> ErrorCode: ...


logger = logging.getLogger(__name__)

# Kafka's controller refuses an operation with more: one for a new topic, and for each of its partitions and settings.
MOST_RECORDS: Final = 10_000
TOO_LARGE: Final = "Unable to perform excessively large batch operation."


class ControlledBroker(Protocol):
    """The part of a broker that the controller uses."""

    broker_id: int
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    coordinators: Mapping[str, Coordinator]

    def forget_sessions(self) -> None: ...

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None: ...


class _Substitution(NamedTuple):
    """The leader of a partition that is offline, and the broker that leads it meanwhile, `NO_LEADER` if none does."""

    absent: int
    substitute: int


class _Term(NamedTuple):
    """A partition that moved to a new leader epoch, and its state before and after."""

    topic_partition: TopicPartition
    old: Leadership
    new: Leadership


@dataclass(eq=False, kw_only=True)
class Controller:
    """The management of topics, elections, and brokers that stop and start.

    `addresses` contains the running brokers; it is one mapping, updated in place, for the life of the cluster.
    """

    config: BrokerConfig
    metadata: ClusterMetadata
    metadata_log: MetadataLog
    logs: LogManager
    addresses: dict[int, Address]
    meters: Meters
    new_uuid: Callable[[], UUID]
    now_ms: Callable[[], int]

    def __post_init__(self) -> None:
        # All brokers of the cluster, running or not.
        self.broker_ids = tuple(self.addresses)
        self.brokers: Mapping[int, ControlledBroker] = {}
        self._substitutions: dict[TopicPartition, _Substitution] = {}

    def start(self, brokers: Mapping[int, ControlledBroker]) -> None:
        self.brokers = brokers
        for name in sorted(INTERNAL_TOPICS & set(self.metadata.topics)):
            self._elect_coordinators(self.metadata.topics[name])

    # Topics

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic, by default with the default number of replicas; for an internal one, elect coordinators."""
        self.config.topic_defaults().override(config or {})
        factor = None if name in INTERNAL_TOPICS else self.default_replication_factor
        if replicas is None and factor is not None:
            self.check_replication_factor(factor)
        self.metadata.check_new_topic(name)
        self.logs.clear_leftovers(name, 0, len(replicas or ()) or partition_count)
        topic = self.metadata.create_topic(name, self.new_uuid(), partition_count, config or {}, replicas, factor)
        self.metadata_log.sync()
        self._created(topic, 0)
        if topic.is_internal:
            self._elect_coordinators(topic)
        return topic

    @property
    def default_replication_factor(self) -> int:
        """The number of replicas of topics whose creation gives none; internal topics have all brokers."""
        factor = self.config.default_replication_factor
        return len(self.broker_ids) if factor == -1 else factor

    def check_replication_factor(self, factor: int) -> None:
        brokers = len(self.broker_ids)
        if factor > brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot "
                f"be reached because only {brokers} broker(s) are registered or some brokers have all their log "
                "directories cordoned.",
            )

    def ensure_topic(self, name: str) -> Topic:
        """Return the topic, creating it with the cluster's defaults if it does not exist.

        Kafka answers COORDINATOR_NOT_AVAILABLE while it creates an internal topic, and the client retries; here
        creation takes no time, so the first response succeeds.
        """
        topic = self.metadata.topics.get(name)
        if topic is not None:
            return topic
        if name in INTERNAL_TOPICS:
            count = internal_partition_count(self.config, name)
            return self.create_topic(name, count, internal_topic_config(self.config, name))
        count, factor, brokers = self.config.num_partitions, self.default_replication_factor, len(self.broker_ids)
        problem = None
        if factor > brokers:
            problem = f"default.replication.factor={factor}, and there are {brokers} brokers"
        elif count >= MOST_RECORDS:
            problem = f"num.partitions={count}: a topic is created with {MOST_RECORDS - 1} at most"
        if problem is not None:
            # As in Kafka, which sends the creation on and does not wait for its answer.
            logger.warning("topic %s is not created: %s", name, problem)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return self.create_topic(name, count)

    def add_partitions(self, name: str, count: int, replicas: Sequence[Sequence[int]] | None = None) -> None:
        """Increase the number of a topic's partitions to `count`; `replicas` are the replicas of the new ones."""
        known = len(self.metadata.topic(name).partitions)
        self.logs.clear_leftovers(name, known, count)
        topic = self.metadata.add_partitions(name, count, replicas)
        self.metadata_log.sync()
        self._created(topic, known)

    def _created(self, topic: Topic, first: int) -> None:
        for topic_partition, partition in zip(topic.topic_partitions()[first:], topic.partitions[first:], strict=True):
            if partition.leader == NO_LEADER:
                # No replica runs: the first one to start leads.
                self._substitutions[topic_partition] = _Substitution(partition.replicas[0], NO_LEADER)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its logs: first the record, durably, then the files."""
        topic = self.metadata.delete_topic(name)
        self.metadata_log.sync()
        now_ms = self.now_ms()
        self.logs.delete(topic, now_ms)
        for topic_partition in topic.topic_partitions():
            self._substitutions.pop(topic_partition, None)
        for broker in self.brokers.values():
            broker.groups.forget_partitions(topic.topic_partitions(), now_ms)
            broker.forget_topics((topic.topic_id,), now_ms)

    def coordinator_partition_of(self, topic_name: str, key: str) -> TopicPartition:
        """Return the partition of an internal topic whose leader coordinates a transactional id or group."""
        return TopicPartition(topic_name, coordinator_partition(key, len(self.ensure_topic(topic_name).partitions)))

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocate a block of producer ids, durably: otherwise a crash could lead to an id that is allocated twice."""
        found = self.metadata.allocate_producer_ids()
        self.metadata_log.sync()
        return found

    # Leaders

    def leader_of(self, topic_partition: TopicPartition) -> ControlledBroker | None:
        return self.brokers.get(self.metadata.leadership(topic_partition).leader)

    def preferred_leader(self, topic_partition: TopicPartition) -> int:
        """Return the first replica, or if no replicas are stored, the leader or the offline replica."""
        partition = self.metadata.leadership(topic_partition)
        if partition.replicas:
            return partition.replicas[0]
        substitution = self._substitutions.get(topic_partition)
        is_substituted = substitution is not None and substitution.substitute == partition.leader
        return substitution.absent if substitution is not None and is_substituted else partition.leader

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Make another broker the leader, and a replica if it is none; a coordinator moves with its state partition."""
        old = self.metadata.leadership(topic_partition)
        self._begin_terms([_Term(topic_partition, old, self.metadata.move_leader(topic_partition, broker_id))])

    def lose_leader(self, topic_partition: TopicPartition) -> None:
        """Remove the leader of a partition, and the coordinator of its ids, until the next election."""
        old = self.metadata.leadership(topic_partition)
        if old.leader != NO_LEADER:
            self._begin_terms([_Term(topic_partition, old, self.metadata.lose_leader(topic_partition))])

    def elect(self, topic_partition: TopicPartition, leader: int) -> None:
        """Elect a leader for a partition without one: a given replica, or while it is offline another."""
        if self.metadata.has_partition(topic_partition) and self.leader_of(topic_partition) is None:
            self._substitute({topic_partition: leader})

    def _substitute(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Elect a replica that runs for each partition, preferably the given one; without any, it has no leader."""
        terms = []
        for topic_partition, leader in wanted.items():
            old = self.metadata.leadership(topic_partition)
            running = [broker_id for broker_id in self.metadata.replicas(old) if broker_id in self.addresses]
            substitute = leader if leader in running else next(iter(running), NO_LEADER)
            self._substitutions.pop(topic_partition, None)
            if substitute != leader:
                self._substitutions[topic_partition] = _Substitution(leader, substitute)
            if substitute != NO_LEADER:
                terms.append(_Term(topic_partition, old, self.metadata.move_leader(topic_partition, substitute)))
            elif old.leader != NO_LEADER:
                terms.append(_Term(topic_partition, old, self.metadata.lose_leader(topic_partition)))
        self._begin_terms(terms)
        self._progress(wanted)

    def _replace(self, absent: int) -> None:
        """Elect other replicas for a leader that is offline; it leads again when it returns."""
        wanted = {}
        led = [
            topic_partition
            for topic in self.metadata.topics.values()
            for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True)
            if leadership.leader == absent
        ]
        for topic_partition in led:
            known = self._substitutions.get(topic_partition)
            # The leader may itself be a substitute: the broker it stands for still returns.
            is_substitute = known is not None and known.substitute == absent
            wanted[topic_partition] = known.absent if known is not None and is_substitute else absent
        self._substitute(wanted)

    # Reassignments

    def reassign(self, topic_partition: TopicPartition, target: Sequence[int]) -> None:
        old = self.metadata.leadership(topic_partition)
        wanted = replace(old, replicas=self.metadata.replicas(old)).reassigned(target)
        self._change_replicas({topic_partition: wanted})

    def cancel_reassignment(self, topic_partition: TopicPartition) -> None:
        old = self.metadata.leadership(topic_partition)
        self._change_replicas({topic_partition: replace(old, replicas=old.original_replicas, adding=(), removing=())})

    def _progress(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Complete the reassignment of each partition of which all new replicas run."""
        found = {each: self.metadata.leadership(each) for each in topic_partitions}
        self._change_replicas({each: partition for each, partition in found.items() if partition.is_reassigned})

    def _change_replicas(self, wanted: Mapping[TopicPartition, Leadership]) -> None:
        terms = []
        for topic_partition, partition in wanted.items():
            old = self.metadata.leadership(topic_partition)
            new = partition.progressed(self.addresses).led_by_a_replica(self.addresses)
            if new.leader_epoch == old.leader_epoch and not {*self.metadata.replicas(old)} <= {*new.replicas}:
                # As in Kafka, a replica that is removed must not take part in the leader epoch.
                new = new.led_by(new.leader)
            if new != old:
                self.metadata.change_partition(topic_partition, new)
            if new.leader_epoch != old.leader_epoch:
                terms.append(_Term(topic_partition, old, new))
        self._begin_terms(terms)

    def _begin_terms(self, terms: Iterable[_Term]) -> None:
        # Before anything is written in a new leader epoch: an epoch lost in a crash would be assigned again, and its
        # markers would be refused as a zombie's. One sync serves all partitions that move together.
        self.metadata_log.sync()
        for topic_partition, old, new in terms:
            if new.leader != NO_LEADER:
                self.logs.begin_leader_epoch(topic_partition, new.leader_epoch)
            if topic_partition.topic in INTERNAL_TOPICS:
                if old.leader != NO_LEADER:
                    self.brokers[old.leader].coordinators[topic_partition.topic].resign(topic_partition.partition)
                self._elect_coordinator(topic_partition, new)
            self.logs.moved(topic_partition)

    def _elect_coordinators(self, topic: Topic) -> None:
        for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True):
            self._elect_coordinator(topic_partition, leadership)

    def _elect_coordinator(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        """Start the leader's coordinator; if the partition cannot be read, only its own ids have no coordinator."""
        if leadership.leader == NO_LEADER:
            return
        began_ms = self.meters.stopwatch()
        try:
            self.brokers[leadership.leader].coordinators[topic_partition.topic].become_leader(
                topic_partition.partition, leadership.leader_epoch, self.now_ms()
            )
        except (DamageError, InvalidBatch) as damage:
            what, without = coordinated_in(topic_partition.topic)
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
            self.meters.loaded(topic_partition.topic, began_ms)

    def resign_coordinators(self) -> None:
        """Stop all coordinators, without an election: waiting members are answered NOT_COORDINATOR."""
        for name in sorted(INTERNAL_TOPICS & set(self.metadata.topics)):
            for topic_partition in self.metadata.topics[name].topic_partitions():
                leader = self.metadata.leadership(topic_partition).leader
                if leader != NO_LEADER:
                    self.brokers[leader].coordinators[name].resign(topic_partition.partition)

    # Brokers that come and go

    def broker_left(self, broker_id: int) -> None:
        """Move a broker's partitions to other replicas; those without any wait for one to return.

        The last broker keeps its partitions: no broker is left that could show a change.
        """
        if self.addresses.pop(broker_id, None) is None:
            return
        self.metadata.running_ids = tuple(self.addresses)
        if not self.addresses:
            return
        self._replace(broker_id)

    def broker_joined(self, broker_id: int, address: Address) -> None:
        """Return a broker's partitions to it, except partitions that `move_leader` moved meanwhile."""
        # In the brokers' order, and in place: connections share this mapping.
        ordered = sorted({**self.addresses, broker_id: address}.items())
        self.addresses.clear()
        self.addresses.update(ordered)
        self.metadata.running_ids = tuple(self.addresses)
        self.brokers[broker_id].forget_sessions()
        self._return_to(broker_id)
        for absent in self.brokers.keys() - self.addresses.keys():
            self._replace(absent)
        for topic in list(self.metadata.topics.values()):
            self._progress(topic.topic_partitions())

    def _return_to(self, broker_id: int) -> None:
        """Let a broker that is back lead the partitions that it led before, or that have no leader."""
        wanted = {}
        for topic_partition, substitution in list(self._substitutions.items()):
            partition = self.metadata.leadership(topic_partition)
            is_first = substitution.absent == broker_id
            if is_first or substitution.substitute == NO_LEADER == partition.leader:
                if partition.leader != substitution.substitute:
                    del self._substitutions[topic_partition]
                elif broker_id in self.metadata.replicas(partition):
                    wanted[topic_partition] = substitution.absent
        self._substitute(wanted)
