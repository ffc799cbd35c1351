"""The topics that a micro-batch is written to: how many partitions they have, and whether they are still the same."""

from collections.abc import Collection, Hashable, Mapping
from typing import Final
from uuid import UUID

from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import (
    MISSING_TOPIC_GRACE_SECONDS,
    TopicMetadata,
    metadata_request,
    problem_with,
    topics_of,
)
from spark_eos.errors import EosKafkaError, UnansweredError

# A session may run hundreds of queries in one process, each with one micro-batch at a time.
_MICRO_BATCHES_COUNTED: Final = 1_000
# Requested for every chunk of rows without keys; a partition that loses its leader in between is waited for.
_LEADERS_KNOWN_MS: Final = 5_000
_LEADERS_WAIT_MS: Final = 1_000


class PartitionCounts:
    """The partition counts of topics, as a process first counted them for a micro-batch."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        # Most recently used last.
        self._counts: dict[Hashable, dict[str, int]] = {}

    def of(self, topics: Collection[str], micro_batch: Hashable | None) -> Mapping[str, int]:
        counts = dict(self._counts.get(micro_batch, {}))
        unknown = [topic for topic in topics if topic not in counts]
        if unknown:
            found = self._client.require_topics(unknown, need_leaders=False)
            counts |= {name: topic.partition_count for name, topic in found.items()}
        if micro_batch is not None:
            self._counts.pop(micro_batch, None)
            self._counts[micro_batch] = counts
            for oldest in list(self._counts)[:-_MICRO_BATCHES_COUNTED]:
                del self._counts[oldest]
        return counts


def leaderless_partitions(client: KafkaClient, topics: Collection[str]) -> Mapping[str, Collection[int]]:
    """Return the partitions that had no leader a moment ago; none if that cannot be determined quickly."""
    try:
        found = client.require_topics(
            topics, need_leaders=False, max_age_ms=_LEADERS_KNOWN_MS, timeout_ms=_LEADERS_WAIT_MS
        )
    except EosKafkaError:
        # The producer meets the same failure, with more patience.
        return {}
    return {
        name: [number for number, each in topic.partitions.items() if each.leader < 0] for name, topic in found.items()
    }


def replaced_topics(
    client: KafkaClient, written: Mapping[str, Collection[UUID]], transactional_ids: Collection[str]
) -> Collection[str]:
    """Return the topics that were deleted and created again after tasks had written to those with the given ids.

    A broker that lags behind may show an earlier topic of the same name, so a difference must be seen again.
    """
    deadline = client.deadline(MISSING_TOPIC_GRACE_SECONDS * 1000)
    found = _topics_near(client, written, transactional_ids)
    attempt = 0
    while True:
        others = [
            name
            for name, ids in written.items()
            if problem_with(found.get(name), False) or set(ids) != {found[name].topic_id}
        ]
        if not others or (attempt and not client.back_off(attempt, deadline)):
            return others
        found = client.require_topics(list(written), need_leaders=False)
        attempt += 1


def _topics_near(
    client: KafkaClient, topics: Collection[str], transactional_ids: Collection[str]
) -> Mapping[str, TopicMetadata]:
    """Describe topics by a coordinator of the ids, which are needed anyway: no other broker can delay a commit."""
    node_id, *_ = client.find_coordinators(CoordinatorType.TRANSACTION, transactional_ids).values()
    try:
        response = client.send(node_id, metadata_request(topics))
    except UnansweredError:
        return {}
    return topics_of(response)
