"""The cluster's metadata: topics, leaders and replicas, feature levels, ACLs, SCRAM credentials, settings.

The metadata is a journal like the coordinators': a change is decided and recorded, and only `replay` changes
state, live and at load. Its records are JSON because no other program reads them: Kafka keeps the
same data in KRaft's metadata log. Each start of the cluster is a record too and raises all leader epochs, so
that requests from before the restart are refused as stale.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, TypeVar
from uuid import UUID

from broker_core.broker.feature_levels import (
    ELIGIBLE_LEADERS_VERSION,
    FIRST_LEVELS,
    GROUP_VERSION,
    MIN_INSYNC_REPLICAS,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    check_supported,
    levels_of_new_cluster,
)
from broker_core.broker.metadata_records import (
    ALL_BROKERS,
    ConfigResource,
    Fields,
    MetadataRecord,
    StoredSettings,
    damaged,
    read_metadata_record,
)
from broker_core.broker.partitions import (
    Leadership,
    Topic,
    check_topic_name,
    leader_first,
    partition_record,
    placed,
    recorded_partition,
    recorded_topic,
    topic_record,
)
from broker_core.errors import ErrorCode, KafkaError
from broker_core.installed import States, parts
from broker_core.security.acls import Acl, stored_acl
from broker_core.security.authorizer import Acls
from broker_core.security.sasl_passwords import ScramCredential
from broker_core.types import CLUSTER_METADATA_TOPIC, NO_LEADER, TopicPartition
from broker_core.wire.kafka_versions import unsupported

PRODUCER_ID_BLOCK = 1000

StateT = TypeVar("StateT")


class ClusterMetadata:
    """The cluster's metadata; `append` records a change before it is replayed.

    `kafka_version` is the version of Kafka whose features the cluster has; empty for the newest.
    """

    def __init__(
        self, append: Callable[[bytes, bytes], int], broker_ids: Iterable[int], kafka_version: str = ""
    ) -> None:
        self._append = append
        self.kafka_version = kafka_version
        # All brokers of the cluster, and all that run.
        self.broker_ids = self.running_ids = tuple(broker_ids)
        self.topics: dict[str, Topic] = {}
        self.names: dict[UUID, str] = {}
        # The topic with each metric name, in which '.' and '_' are the same.
        self._metric_names: dict[str, str] = {}
        self.cluster_id = ""
        self.features = dict(FIRST_LEVELS)
        self.features_epoch = 0
        self._settings: Mapping[str, int] = {}
        self.acls = Acls()
        # By mechanism and user.
        self.scram: dict[tuple[str, str], ScramCredential] = {}
        self.stored = StoredSettings()
        # What features keep, by class.
        self.states = States()
        # Increases with each change of a topic, so that values derived from the topics can be cached.
        self.topics_version = 0
        self._next_producer_id = 0
        self._next_leader = 0

    # Reading

    @property
    def transaction_version(self) -> int:
        """Return the finalized level of `transaction.version` (KIP-890)."""
        return self.features[TRANSACTION_VERSION]

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """Return the topic with that id, or raise UNKNOWN_TOPIC_ID."""
        name = self.names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
        return self.topics[name]

    def leadership(self, topic_partition: TopicPartition) -> Leadership:
        """Return the partition's leader and leader epoch, or raise UNKNOWN_TOPIC_OR_PARTITION."""
        name, partition = topic_partition
        topic = self.topics.get(name) or self.topic(name)
        if not 0 <= partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}")
        return topic.partitions[partition]

    def replicas(self, partition: Leadership) -> tuple[int, ...]:
        """Return a partition's replicas; if none are stored, all brokers with the leader first."""
        return partition.replicas or leader_first(partition.leader, self.broker_ids)

    def in_sync(self, partition: Leadership) -> list[int]:
        """Return the replicas in sync: all that run, while the partition has a leader."""
        if partition.leader == NO_LEADER:
            return []
        return [broker_id for broker_id in self.replicas(partition) if broker_id in self.running_ids]

    def offline(self, partition: Leadership) -> list[int]:
        return [broker_id for broker_id in self.replicas(partition) if broker_id not in self.running_ids]

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and 0 <= topic_partition.partition < len(topic.partitions)

    def state(self, kind: type[StateT]) -> StateT:
        """Return what a feature keeps here: an object of its class, which only the replay of its records changes."""
        return self.states.of(kind)

    # Deciding and recording

    def open_cluster(
        self,
        cluster_id: str,
        transaction_version: int,
        group_version: int = 0,
        share_version: int = FIRST_LEVELS[SHARE_VERSION],
        min_insync_replicas: int = 1,
    ) -> None:
        """Record that the cluster starts: a new leader epoch for every partition, and the feature levels.

        A new cluster has the levels of its version of Kafka, and those in the settings where they are lower, as with
        Kafka's `format`. The levels in the settings apply again whenever the setting has changed. All other levels stay
        as they are, with a newer version too; `ConfigError` if the version does not support one.
        """
        is_new = not self.cluster_id
        before = self._settings
        settings = {
            TRANSACTION_VERSION: transaction_version,
            GROUP_VERSION: group_version,
            SHARE_VERSION: share_version,
        }
        if not is_new:
            check_supported(self.kafka_version, self.features)
        levels = levels_of_new_cluster(self.kafka_version, settings)
        for name, level in levels.items():
            # A cluster created before the settings were recorded keeps its levels.
            has_changed = name in settings and settings[name] != before.get(name, settings[name])
            if (is_new or has_changed) and level != self.features[name]:
                self.set_feature(name, level)
        if is_new and self.features[ELIGIBLE_LEADERS_VERSION]:
            self.enable_eligible_leaders(min_insync_replicas)
        # Last: after a crash in between, the cluster must not count as opened without its levels.
        self.record(
            {
                "type": "opened",
                "cluster_id": self.cluster_id or cluster_id,
                "brokers": self.broker_ids,
                "settings": settings,
            }
        )

    def set_feature(self, name: str, level: int) -> None:
        """Record the finalized level of a feature (KIP-584)."""
        if unsupported(self.kafka_version, {name: level}):
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} {level} is not supported")
        self.record({"type": "feature", "name": name, "level": level})

    def enable_eligible_leaders(self, min_insync_replicas: int) -> None:
        """Record that the cluster has the setting `min.insync.replicas`, and no broker its own (KIP-966)."""
        of_all = self.stored.of(ConfigResource.BROKER, ALL_BROKERS)
        self.configure(ConfigResource.BROKER, ALL_BROKERS, {MIN_INSYNC_REPLICAS: str(min_insync_replicas), **of_all})
        for (kind, name), settings in list(self.stored.configs.items()):
            if kind == ConfigResource.BROKER and name != ALL_BROKERS and MIN_INSYNC_REPLICAS in settings:
                left = {key: value for key, value in settings.items() if key != MIN_INSYNC_REPLICAS}
                self.configure(kind, name, left)

    def check_new_topic(self, name: str) -> None:
        """Raise Kafka's error for a topic name that cannot be created."""
        check_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{name} is internal and cannot be created")
        if name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        twin = self._metric_names.get(_metric_name(name))
        if twin is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {twin}")

    def create_topic(
        self,
        name: str,
        topic_id: UUID,
        partition_count: int,
        config: Mapping[str, str],
        replicas: Sequence[Sequence[int]] | None = None,
        factor: int | None = None,
    ) -> Topic:
        """Record a new topic; without `replicas`, `factor` brokers, by default all, are replicas of each partition."""
        self.check_new_topic(name)
        assigned = replicas or self.place(partition_count, factor)
        return self._change_topic(Topic(name, topic_id, self._new_partitions(assigned), dict(config)))

    def add_partitions(self, name: str, count: int, replicas: Sequence[Sequence[int]] | None = None) -> Topic:
        """Record that the topic has `count` partitions; without `replicas`, the new ones have as many as the first."""
        topic = self.topic(name)
        if count <= len(topic.partitions):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic currently has {len(topic.partitions)} partitions, which is higher than or equal to the "
                f"requested {count}.",
            )
        factor = len(self.replicas(topic.partitions[0]))
        assigned = replicas or self.place(count - len(topic.partitions), factor)
        return self._change_topic(replace(topic, partitions=topic.partitions + self._new_partitions(assigned)))

    def place(self, partition_count: int, factor: int | None = None) -> list[list[int]]:
        """Return the replicas of new partitions, by default all brokers; the brokers that run lead in turn."""
        absent = [broker_id for broker_id in self.broker_ids if broker_id not in self.running_ids]
        first, self._next_leader = self._next_leader, self._next_leader + partition_count
        return placed(partition_count, factor or len(self.broker_ids), first, self.running_ids, absent)

    def _new_partitions(self, replicas: Sequence[Sequence[int]]) -> list[Leadership]:
        return [
            Leadership(next((each for each in assigned if each in self.running_ids), NO_LEADER), 0, tuple(assigned))
            for assigned in replicas
        ]

    def configure_topic(self, name: str, config: Mapping[str, str]) -> Topic:
        return self._change_topic(replace(self.topic(name), config=dict(config)))

    def move_leader(self, topic_partition: TopicPartition, leader: int) -> Leadership:
        """Record a new leader of the partition, in a new leader epoch.

        A broker that is no replica becomes one, in place of the old leader.
        """
        old = self.leadership(topic_partition)
        if leader not in self.running_ids:
            why = f"there is no broker {leader}"
            if leader in self.broker_ids:
                why = f"broker {leader} does not run: start it, `kafka.broker({leader}).start()`, or use another broker"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why)
        return self.change_partition(topic_partition, old.led_by(leader))

    def lose_leader(self, topic_partition: TopicPartition) -> Leadership:
        """Record that the partition has no leader, in a new leader epoch, as Kafka's controller does."""
        return self.change_partition(topic_partition, self.leadership(topic_partition).led_by(NO_LEADER))

    def change_partition(self, topic_partition: TopicPartition, partition: Leadership) -> Leadership:
        # Not the whole topic: a broker that leads n of its partitions makes n such records when it stops.
        self.record(partition_record(topic_partition, partition))
        return partition

    def raise_leader_epochs(self, by: int) -> None:
        # One small record: a record for each topic takes 0.2 ms, and a restore of hundreds should take a few in all.
        self.record({"type": "leader_epochs_raised", "by": by})

    def delete_topic(self, name: str) -> Topic:
        topic = self.topic(name)
        self.record({"type": "topic_deleted", "name": name})
        return topic

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Record that a block of producer ids is allocated; return its first id and size (rules A.14)."""
        first = self._next_producer_id
        self.record({"type": "producer_ids", "next": first + PRODUCER_ID_BLOCK})
        return first, PRODUCER_ID_BLOCK

    def create_acl(self, acl: Acl) -> None:
        if acl not in self.acls:
            self._record_acl(acl, exists=True)

    def delete_acl(self, acl: Acl) -> None:
        self._record_acl(acl, exists=False)

    def _record_acl(self, acl: Acl, *, exists: bool) -> None:
        # The key is the whole ACL, so the last record with a key says whether the ACL exists.
        self.record({"type": "acl", "name": json.dumps([*acl.pattern, *acl[1:]]), "exists": exists})

    def set_scram(self, mechanism: str, user_name: str, credential: ScramCredential | None) -> None:
        """Record a user's SCRAM credential; None deletes it."""
        # The log contains no password, only salted keys derived from it (RFC 5802).
        kept = credential and [
            credential.iterations,
            *(part.hex() for part in (credential.salt, credential.stored_key, credential.server_key)),
        ]
        self.record({"type": "scram", "name": json.dumps([mechanism, user_name]), "credential": kept})

    def configure(self, resource: int, name: str, settings: Mapping[str, str]) -> None:
        name = json.dumps([int(resource), name])
        self.record({"type": "config", "name": name, "settings": dict(settings)})

    def _change_topic(self, topic: Topic) -> Topic:
        self.record(topic_record(topic))
        return self.topics[topic.name]

    def record(self, record: Fields) -> None:
        """Append a record, and replay it; the last record with a type and name replaces those before it."""
        key = f"{record['type']}/{record.get('name', '')}"
        offset = self._append(key.encode(), json.dumps(record, sort_keys=True).encode())
        self.replay(offset, record)

    # Replaying

    def load(self, records: Iterable[tuple[int, bytes]]) -> list[MetadataRecord]:
        """Replay pairs of offset and value, and return what `replay` takes; `DamageError` names an invalid record."""
        found = []
        for offset, value in records:
            record = read_metadata_record(offset, value)
            try:
                self.replay(offset, record)
            except (LookupError, ValueError) as error:
                raise damaged(offset, value, f"{type(error).__name__}: {error}") from None
            found.append((offset, record))
        return found

    def replay(self, offset: int, record: Fields) -> None:
        """Apply one record; nothing else changes the metadata."""
        replay_table()[record["type"]](self, record)
        if record["type"] == "feature":
            self.features_epoch = offset

    def _replay_opened(self, record: Fields) -> None:
        self.cluster_id = record["cluster_id"]
        self._settings = record.get("settings", {})
        brokers = record["brokers"]
        for topic in list(self.topics.values()):
            partitions = [each.opened(brokers, index) for index, each in enumerate(topic.partitions)]
            self.topics[topic.name] = replace(topic, partitions=partitions)

    def _replay_topic(self, record: Fields) -> None:
        topic = recorded_topic(record)
        known = self.topics.get(topic.name, topic).topic_id
        if (known, self.names.get(known, topic.name)) != (topic.topic_id, topic.name):
            raise ValueError(f"the topic {topic.name} or the id {topic.topic_id} is already used with another one")
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self._metric_names[_metric_name(topic.name)] = topic.name
        self.topics_version += 1

    def _replay_partition(self, record: Fields) -> None:
        (name, index), partition = recorded_partition(record)
        self.topics[name].partitions[index] = partition
        self.topics_version += 1

    def _replay_leader_epochs_raised(self, record: Fields) -> None:
        for topic in self.topics.values():
            higher = [replace(each, leader_epoch=each.leader_epoch + record["by"]) for each in topic.partitions]
            topic.partitions[:] = higher
        self.topics_version += 1

    def _replay_topic_deleted(self, record: Fields) -> None:
        topic = self.topics.pop(record["name"])
        # A new mapping: the log of requests keeps the one of a request's time, and looks names up later.
        self.names = {topic_id: name for topic_id, name in self.names.items() if topic_id != topic.topic_id}
        self._metric_names.pop(_metric_name(topic.name), None)
        self.topics_version += 1

    def _replay_producer_ids(self, record: Fields) -> None:
        self._next_producer_id = record["next"]

    def _replay_feature(self, record: Fields) -> None:
        name, level = record["name"], record["level"]
        if name not in FIRST_LEVELS or unsupported("", {name: level}):
            raise ValueError(f"there is no {name} {level}")
        self.features[name] = level

    def _replay_acl(self, record: Fields) -> None:
        acl = stored_acl(*json.loads(record["name"]))
        if record["exists"]:
            self.acls.add(acl)
        else:
            self.acls.remove(acl)

    def _replay_scram(self, record: Fields) -> None:
        mechanism, user_name = json.loads(record["name"])
        if record["credential"] is None:
            self.scram.pop((mechanism, user_name), None)
        else:
            iterations, *keys = record["credential"]
            self.scram[mechanism, user_name] = ScramCredential(iterations, *map(bytes.fromhex, keys))


_OF_THE_CORE: Final[Mapping[str, Callable[[ClusterMetadata, Fields], None]]] = {
    "opened": ClusterMetadata._replay_opened,
    "topic": ClusterMetadata._replay_topic,
    "partition": ClusterMetadata._replay_partition,
    "leader_epochs_raised": ClusterMetadata._replay_leader_epochs_raised,
    "topic_deleted": ClusterMetadata._replay_topic_deleted,
    "producer_ids": ClusterMetadata._replay_producer_ids,
    "feature": ClusterMetadata._replay_feature,
    "acl": ClusterMetadata._replay_acl,
    "scram": ClusterMetadata._replay_scram,
    "config": lambda metadata, record: metadata.stored.replay_config(record),
}


@cache
def replay_table() -> Mapping[str, Callable[[ClusterMetadata, Fields], None]]:
    """Return what applies each type of record of the core and of features."""
    tables = (_OF_THE_CORE, *(each.REPLAY for each in parts("records")))
    return {kind: replay for table in tables for kind, replay in table.items()}


def _metric_name(topic: str) -> str:
    """Return the topic's name in metrics, which no other topic may have."""
    return topic.replace(".", "_")
