"""Whether the partitions of a topic take records now, for `eos-kafka doctor`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import counted
from spark_eos.admin.doctor_findings import CheckResult, Finding
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.topics import describe_topic_config
from spark_eos.errors import EosKafkaError, TopicError, UnansweredError
from spark_eos.sink.driver.broker_capabilities import MIN_INSYNC
from spark_eos.sink.driver.decision_topic import replica_count

# How long leaders that are away are looked for: an answer may be older than an election.
_ELECTION_MS: Final = 2_000
# Of the partitions with one trouble.
_MOST_SHOWN: Final = 10


def described(client: KafkaClient, name: str) -> TopicMetadata | None:
    """Describe a topic, if there is one; that a leader or all replicas are away is believed from a later answer."""
    topic = client.metadata([name]).get(name)
    if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error_code != ErrorCode.NONE:
        topic = client.require_topics([name], need_leaders=False)[name]
    if any(each.leader < 0 or not each.in_sync_replicas for each in topic.partitions.values()):
        with suppress(TopicError, UnansweredError):
            return client.require_topics([name], timeout_ms=_ELECTION_MS)[name]
    return topic


def size_of(topic: TopicMetadata) -> str:
    return f"{counted(topic.partition_count, 'partition')}, {counted(replica_count(topic), 'replica')}"


def state(client: KafkaClient, check: str, topic: TopicMetadata) -> Finding:
    """Report whether partitions take records; without the right to read settings, whether they have leaders."""
    config: Mapping[str, str | None] = {}
    with suppress(EosKafkaError):
        config = describe_topic_config(client, topic.name)
    return replicas(check, topic, config) or Finding(check, CheckResult.OK, size_of(topic))


def replicas(check: str, topic: TopicMetadata, config: Mapping[str, str | None]) -> Finding | None:
    """Report partitions that take no records now, or else partitions with a replica behind or away."""
    needed = config.get(MIN_INSYNC)
    in_order = [each for _, each in sorted(topic.partitions.items())]
    stuck = [
        each.partition
        for each in in_order
        if each.leader < 0 or len(each.in_sync_replicas) < min(int(needed or 1), len(each.replicas))
    ]
    if stuck:
        why = "no leader" + (f", or fewer replicas in sync than min.insync.replicas={needed}" if needed else "")
        found = f"{size_of(topic)}; partitions {_numbers(stuck)} take no records and no markers: {why}"
        return Finding(check, CheckResult.PROBLEM, found, "Start the brokers that are away")
    lagging = [each.partition for each in in_order if set(each.in_sync_replicas) < set(each.replicas)]
    found = f"{size_of(topic)}; replicas of partitions {_numbers(lagging)} are not in sync"
    return Finding(check, CheckResult.WARNING, found) if lagging else None


def _numbers(partitions: Sequence[int]) -> str:
    others = len(partitions) - _MOST_SHOWN
    return ", ".join(map(str, partitions[:_MOST_SHOWN])) + (f" and {counted(others, 'other')}" if others > 0 else "")
