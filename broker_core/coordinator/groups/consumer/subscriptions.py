"""The cluster's topics for consumer groups: ids, numbers of partitions, and matches of expressions."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

from broker_core.coordinator.patterns import NamePattern
from broker_core.errors import KafkaError


class TopicFacts(Protocol):
    """A topic, as groups see it."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_count(self) -> int: ...


class Topics(Protocol):
    """The topics that exist at the moment by name, internal ones included, and their names by id.

    `topics_version` increases whenever anything here may have changed, moves of leaders included.
    """

    topics_version: int

    @property
    def topics(self) -> Mapping[str, TopicFacts]: ...

    @property
    def names(self) -> Mapping[UUID, str]: ...


def matching_topics(expression: str, topics: Topics, may_see: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    """Return the topics that the caller `may_see` and whose whole name matches.

    An invalid expression matches none.
    """
    try:
        pattern = NamePattern(expression)
    except KafkaError:
        return ()
    matching = (name for name in topics.topics if pattern.matches(name))
    return tuple(sorted(matching if may_see is None else filter(may_see, matching)))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a signed 64-bit hash of the topics, 0 if none of them exists.

    Kafka uses another function. The hash is only compared with the group's own previous one; where both
    are in one log, the group is assigned once more than needed.
    """
    found = [(name, facts) for name in sorted(names) if (facts := topics.topics.get(name)) is not None]
    if not found:
        return 0
    digest = blake2b(digest_size=8)
    for name, facts in found:
        digest.update(f"{name}:{facts.topic_id.hex}:{facts.partition_count};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
