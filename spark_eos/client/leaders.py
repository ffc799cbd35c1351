"""Know who leads the partitions a producer writes to, and ask again when in doubt."""

import uuid
from collections.abc import Collection, Iterable
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.errors import TopicError, UnreachableError

# What a writer asks of its topics again and again in one micro-batch; a leader that is not one any more says so.
FRESH_ENOUGH_MS: Final = 1_000


class Leaders:
    """Keep the metadata of topics as it was when last asked for."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._topics: dict[str, TopicMetadata] = {}
        self._doubted: set[str] = set()

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget all other topics."""
        self._topics = {name: topic for name, topic in self._topics.items() if name in topics}
        self._doubted.intersection_update(topics)

    def require(self, topic_partition: TopicPartition) -> None:
        """Refuse a topic or partition that does not exist; a leader may still be missing."""
        topic, partition = topic_partition
        if topic not in self._topics:
            self._ask(topic, FRESH_ENOUGH_MS)
        if partition not in self._topics[topic].partitions:
            # It may have been added since somebody last asked.
            self._ask(topic, 0)
        if partition not in self._topics[topic].partitions:
            raise TopicError(
                f"Topic '{topic}' has no partition {partition}",
                checked=f"It has {self._topics[topic].partition_count}, numbered from 0",
                remedy="Correct the partition column or add partitions to the topic",
            )

    def _ask(self, topic: str, max_age_ms: int) -> None:
        self._topics.update(self._client.require_topics([topic], need_leaders=False, max_age_ms=max_age_ms))

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Give the leader's node id; None while there is none."""
        partition = self._topics[topic_partition.topic].partitions.get(topic_partition.partition)
        return None if partition is None or partition.leader < 0 else partition.leader

    def topic_ids(self, topics: Iterable[str]) -> dict[str, uuid.UUID | None]:
        """Give the ids that requests by topic id name."""
        return {topic: self._topics[topic].topic_id for topic in topics}

    def doubt(self, topic: str) -> None:
        """Have a topic asked for again before anything more is sent to it."""
        self._doubted.add(topic)

    def refresh(self) -> None:
        """Ask for the doubted topics; when nobody answers, go on with what is known."""
        if not self._doubted:
            return
        timeout_ms = self._client.options.request_timeout_ms
        try:
            found = self._client.metadata(sorted(self._doubted), timeout_ms=timeout_ms)
        except UnreachableError:
            # The delivery timeout, not this look-up, says when to give up.
            return
        self._doubted.clear()
        for name, topic in found.items():
            # A topic that is unknown for a moment keeps its old leaders: the next answer will say more.
            if topic.error_code == ErrorCode.NONE:
                self._topics[name] = topic
