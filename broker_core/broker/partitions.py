"""Topics, internal ones too, and their partitions: leaders, replicas, and how reassignments change them.

All brokers share the logs, so a replica is in sync as soon as its broker runs.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.broker.metadata_records import Fields
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError, invalid_request
from broker_core.installed import parts
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of a partition, `NO_LEADER` if it has none, the leader epoch, and the replicas.

    `replicas` begins with the preferred leader; it is empty for a partition of an older version of the program, which
    stored none. During a reassignment it has the new replicas and after them those to be removed; `adding` and
    `removing` say which these are.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """Return the replicas without the ones a reassignment adds."""
        return tuple(each for each in self.replicas if each not in self.adding)

    def reassigned(self, target: Sequence[int]) -> "Leadership":
        """Return the partition with a reassignment to the target, which is complete if no other replica comes or goes.

        Rule J.5/11. A further reassignment begins from all replicas of the one in progress, as in Kafka.
        """
        adding, removing = sorted({*target} - {*self.replicas}), sorted({*self.replicas} - {*target})
        return replace(self, replicas=(*target, *removing), adding=tuple(adding), removing=tuple(removing))

    def progressed(self, running: Collection[int]) -> "Leadership":
        """Return the partition with its reassignment complete if all new replicas run and follow a leader."""
        target = tuple(each for each in self.replicas if each not in self.removing)
        if not self.is_reassigned or self.leader == NO_LEADER or not {*target} <= {*running}:
            return self
        return replace(self, replicas=target, adding=(), removing=())

    def led_by(self, leader: int) -> "Leadership":
        """Return the partition in a new leader epoch; a leader from outside takes the old one's place as replica."""
        kept = self.original_replicas
        if kept and leader not in (NO_LEADER, *self.replicas):
            place = kept.index(self.leader) if self.leader in kept else 0
            return Leadership(leader, self.leader_epoch + 1, (*kept[:place], leader, *kept[place + 1 :]))
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + 1)

    def opened(self, brokers: Sequence[int], index: int) -> "Leadership":
        """Return the partition when the cluster starts with these brokers, in a new leader epoch.

        A partition that has none of its replicas is led by another broker, as one without stored replicas.
        """
        present = [each for each in self.replicas if each in brokers]
        replicas = self.replicas if present else ()
        if self.leader in brokers and (not self.replicas or self.leader in present):
            leader = self.leader
        else:
            leader = present[0] if present else brokers[index % len(brokers)]
        opened = replace(self, leader=leader, leader_epoch=self.leader_epoch + 1, replicas=replicas)
        return opened.progressed(brokers).led_by_a_replica(brokers)

    def led_by_a_replica(self, running: Collection[int]) -> "Leadership":
        """Return the partition led by its first replica that runs, if its leader is no replica any more."""
        if not self.replicas or self.leader in (NO_LEADER, *self.replicas):
            return self
        leader = next((each for each in self.replicas if each in running), NO_LEADER)
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + 1)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its name and id, its partitions, and the settings it overrides."""

    name: str
    topic_id: UUID
    # The replay of a partition's record changes this list: with a copy for each change, the time in which a broker that
    # leads all partitions stops would grow with the square of their number.
    partitions: list[Leadership]
    config: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        """Return whether only coordinators may write to it."""
        return self.name in INTERNAL_TOPICS

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(len(self.partitions))]


def leader_first(leader: int, brokers: Collection[int]) -> tuple[int, ...]:
    return (*({leader} - {NO_LEADER}), *(broker for broker in brokers if broker != leader))


def replica_problem(replicas: Sequence[int], brokers: Collection[int]) -> str | None:
    """Return what Kafka's controller finds wrong with the replicas that a client assigns, None if nothing is."""
    if not replicas:
        return "an empty replica list"
    for position, broker in enumerate(ordered := sorted(replicas)):
        if broker not in brokers:
            return f"broker {broker}, but no such broker is registered"
        if broker in ordered[:position]:
            return f"the broker {broker} more than once"
    return None


def placed(count: int, factor: int, first: int, running: Sequence[int], absent: Sequence[int]) -> list[list[int]]:
    """Return replicas for new partitions: the running brokers lead in turn, the next ones follow (rule J.5/8).

    While none runs, the absent ones are the preferred leaders in turn.
    """
    leading, others = (running, absent) if running else (absent, ())
    found = []
    for number in range(first, first + count):
        start = number % len(leading)
        found.append([*leading[start:], *leading[:start], *others][:factor])
    return found


def topic_record(topic: Topic) -> Fields:
    """Return the record of a topic; older versions of the program read it, and see all brokers as replicas."""
    record: dict[str, Any] = {
        "type": "topic",
        "name": topic.name,
        "id": str(topic.topic_id),
        "config": dict(topic.config),
        "partitions": [[each.leader, each.leader_epoch] for each in topic.partitions],
    }
    if any(each.replicas for each in topic.partitions):
        record["replicas"] = [each.replicas for each in topic.partitions]
    if any(each.is_reassigned for each in topic.partitions):
        record["reassignments"] = [[each.adding, each.removing] for each in topic.partitions]
    return record


def recorded_topic(record: Fields) -> Topic:
    """Return the topic of a record; ValueError for lists of different lengths."""
    leaders = record["partitions"]
    replicas = record.get("replicas", [()] * len(leaders))
    reassignments = record.get("reassignments", [((), ())] * len(leaders))
    partitions = [_recorded_leadership(*each) for each in zip(leaders, replicas, reassignments, strict=True)]
    return Topic(record["name"], UUID(record["id"]), partitions, record["config"])


def partition_record(topic_partition: TopicPartition, partition: Leadership) -> Fields:
    return {
        "type": "partition",
        "name": json.dumps(topic_partition),
        "leadership": [partition.leader, partition.leader_epoch],
        "replicas": partition.replicas,
        "reassignment": [partition.adding, partition.removing],
    }


def recorded_partition(record: Fields) -> tuple[TopicPartition, Leadership]:
    leadership = _recorded_leadership(record["leadership"], record["replicas"], record["reassignment"])
    return TopicPartition(*json.loads(record["name"])), leadership


def _recorded_leadership(
    leadership: Sequence[int], replicas: Sequence[int], reassignment: Sequence[Sequence[int]]
) -> Leadership:
    (leader, leader_epoch), (adding, removing) = leadership, reassignment
    return Leadership(leader, leader_epoch, tuple(replicas), tuple(adding), tuple(removing))


_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


def check_topic_name(name: str) -> None:
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > _LONGEST_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


class InternalTopic(NamedTuple):
    """One of the topics.

    `partition_count` is the setting with the number of its partitions; `config` returns the settings Kafka creates it
    with (rules B.1). `coordinated` says which ids its partitions serve, and what becomes of the ids when a partition
    cannot be read.
    """

    name: str
    partition_count: str
    config: Callable[[BrokerConfig], dict[str, str]]
    coordinated: tuple[str, str]


_OF_THE_CORE: Final = (
    InternalTopic(
        TRANSACTION_STATE_TOPIC,
        "transaction.state.log.num.partitions",
        lambda config: {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        (
            "transactional ids",
            "the ids are then unknown, and open transactions have to be found and aborted by hand"
            " (kafka-transactions.sh or eos-kafka transactions, find-hanging)",
        ),
    ),
    InternalTopic(
        CONSUMER_OFFSETS_TOPIC,
        "offsets.topic.num.partitions",
        lambda config: {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
        ("groups", "the groups then begin without committed offsets"),
    ),
)


@cache
def internal_topics() -> Mapping[str, InternalTopic]:
    """Return the internal topics of the core and of the features that are there, by name."""
    of_features: tuple[InternalTopic, ...] = tuple(each.INTERNAL_TOPIC for each in parts("internal_topics"))
    return {each.name: each for each in (*_OF_THE_CORE, *of_features)}


def coordinated_in(name: str) -> tuple[str, str]:
    """Return which ids a topic serves, and what becomes of them when a partition cannot be read."""
    return internal_topics()[name].coordinated


def internal_partition_count(config: BrokerConfig, name: str) -> int:
    """Return the number of partitions of a new internal topic; raise INVALID_REQUEST without its feature."""
    found = internal_topics().get(name)
    if found is None:
        raise invalid_request(f"{name} is internal to a feature that this broker does not have")
    return int(config.as_text()[found.partition_count])


def internal_topic_config(config: BrokerConfig, name: str) -> dict[str, str]:
    return internal_topics()[name].config(config)


def with_actual_counts(config: BrokerConfig, topics: Mapping[str, Topic]) -> BrokerConfig:
    """Return the settings with the partition counts of the existing internal topics, which ids are hashed by."""
    found = [each for each in internal_topics().values() if each.name in topics]
    return config.override({each.partition_count: str(len(topics[each.name].partitions)) for each in found})
