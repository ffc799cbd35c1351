"""The leaders of the partitions that a producer writes to, looked up again when in doubt."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER_EPOCH, TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS, Doubt, TopicMetadata, problem_with, topic_error
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnreachableError

# As in the Java client (metadata.max.age.ms): a broker that is no longer the leader refuses requests, which triggers a
# look-up.
FRESH_ENOUGH_MS: Final = 300_000
_LEADERS_WAIT_MS: Final = 1_000


def leaderless_partitions(
    client: KafkaClient, topics: Collection[str], max_age_ms: int = 1_000
) -> Mapping[str, Collection[int]]:
    """Return the partitions without a leader, by a response of at most this age; none if that is not known quickly.

    A topic that is gone, or that the principal may not describe, hides nothing of the others.
    """
    # If a broker did not respond, the second look goes to another one. The silent broker may have led these partitions.
    for _ in range(2):
        with suppress(EosKafkaError):
            found = existing_topics(client, topics, max_age_ms=max_age_ms, timeout_ms=_LEADERS_WAIT_MS)
            return {
                name: [number for number, each in topic.partitions.items() if each.leader < 0]
                for name, topic in found.items()
            }
    # The next request meets the same failure, with more patience.
    return {}


def existing_topics(
    client: KafkaClient, topics: Collection[str], *, max_age_ms: float = 0, timeout_ms: float | None = None
) -> Mapping[str, TopicMetadata]:
    """Describe the topics that exist and that the principal may describe, when no broker has to learn of the others."""
    try:
        return client.require_topics(topics, need_leaders=False, max_age_ms=max_age_ms, timeout_ms=timeout_ms)
    except (AuthorizationError, TopicError):
        return client.metadata(topics, timeout_ms=timeout_ms)


def leaderless_among(client: KafkaClient, places: Collection[TopicPartition]) -> TopicPartition | None:
    """Return one of these partitions that has no leader."""
    leaderless = leaderless_partitions(client, {each.topic for each in places}) if places else {}
    return next((each for each in places if each.partition in leaderless.get(each.topic, ())), None)


class Leaders:
    """The metadata of topics as of the last request."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._topics: dict[str, TopicMetadata] = {}
        self._doubted: set[str] = set()
        # What a response said that contradicts an earlier one, until another response says the same.
        self._claims: dict[str, TopicMetadata] = {}
        # The topics that responses lack.
        self._missing: dict[str, Doubt] = {}
        self._replaced: set[str] = set()

    def keep_only(self, topics: Collection[str]) -> None:
        """Keep what is known of topics for the next transaction, as newly as this process knows it.

        A leader that was away for a moment is not noticed: it takes batches as before, at another epoch.
        """
        earliest = self._client.runtime.clock.monotonic() - FRESH_ENOUGH_MS / 1000
        recent = {name: self._client.recent.since([name], earliest) for name in self._topics.keys() & topics}
        self._topics = {
            name: found[name]
            for name, found in recent.items()
            if found is not None and found[name].topic_id == self._topics[name].topic_id
        }
        self._doubted.intersection_update(topics)
        self._claims.clear()
        self._missing.clear()

    def require(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Raise if topics or partitions do not exist; a leader may still be missing."""
        unknown = {each.topic for each in topic_partitions} - self._topics.keys()
        if unknown:
            self._ask(unknown, FRESH_ENOUGH_MS)
        missing = self._unknown(topic_partitions)
        if not missing:
            return
        for _ in self._client.attempts(self._client.deadline(MISSING_TOPIC_GRACE_SECONDS * 1000)):
            # They may have been added since the last request, and some brokers may not know them yet.
            self._ask({each.topic for each in missing}, 0)
            missing = self._unknown(missing)
            if not missing:
                return
        topic, partition = missing[0]
        raise TopicError(
            f"Topic '{topic}' has no partition {partition}",
            checked=f"The topic has {counted(self._topics[topic].partition_count, 'partition')}, numbered from 0",
            remedy="Correct the partition column or add partitions to the topic. If the topic was deleted and "
            "created again with fewer partitions, restart the query, which counts them again",
        )

    def _unknown(self, topic_partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [each for each in topic_partitions if each.partition not in self._topics[each.topic].partitions]

    def _ask(self, topics: Collection[str], max_age_ms: int) -> None:
        self._topics.update(self._client.require_topics(sorted(topics), need_leaders=False, max_age_ms=max_age_ms))

    def leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return a partition's leader, -1 if it has none, and the leader epoch."""
        partition = self._topics[topic_partition.topic].partitions.get(topic_partition.partition)
        return (-1, NO_LEADER_EPOCH) if partition is None else (partition.leader, partition.leader_epoch)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, uuid.UUID | None]:
        return {topic: self._topics[topic].topic_id for topic in topics}

    def doubt(self, topic: str) -> None:
        self._doubted.add(topic)

    def refresh(self) -> bool:
        """Request metadata of the doubted topics, if any; without a response, continue with what is known.

        Returns whether leaders may have changed. Raises `TopicError` for a topic that no broker has any more.
        """
        if not self._doubted:
            return False
        timeout_ms = self._client.options.request_timeout_ms
        try:
            found = self._client.metadata(sorted(self._doubted), timeout_ms=timeout_ms)
        except UnreachableError:
            # The delivery timeout, not this look-up, determines when to give up.
            return False
        doubted, self._doubted = self._doubted, set()
        for name in sorted(doubted):
            topic = found.get(name)
            # A topic that is unknown for a moment keeps its old leaders until the next response.
            if _is_missing(topic):
                self._check_missing(name)
            elif topic is not None and topic.error_code == ErrorCode.NONE:
                self._missing.pop(name, None)
                self._learn(name, topic)
        return True

    def _check_missing(self, name: str) -> None:
        """Raise if a topic has been missing for a while, and all brokers say so; one may lag behind the others."""
        doubt = self._missing.setdefault(name, Doubt(self._client.runtime.clock.monotonic))
        if doubt.lasts():
            return
        answers = self._client.topics_by_broker([name])
        if answers and all(each and name in each and _is_missing(each[name]) for each in answers.values()):
            addresses = ", ".join(f"{each.host}:{each.port}" for each in answers)
            raise topic_error({name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, addresses)

    def take_replaced(self) -> set[str]:
        replaced, self._replaced = self._replaced, set()
        return replaced

    def _learn(self, name: str, topic: TopicMetadata) -> None:
        """Take over a topic from a response; one that looks like another topic must be seen twice.

        A broker that lags behind may show an earlier state of the topic.
        """
        known = self._topics[name]
        topic = topic.completed(known)
        if known.topic_id not in (None, topic.topic_id) or not topic.partitions.keys() >= known.partitions.keys():
            before = self._claims.get(name)
            if before is None or (before.topic_id, before.partition_count) != (topic.topic_id, topic.partition_count):
                self._claims[name] = topic
                self._doubted.add(name)
                return
            self._replaced.add(name)
        self._claims.pop(name, None)
        self._topics[name] = topic


def _is_missing(topic: TopicMetadata | None) -> bool:
    return problem_with(topic, False) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
