"""The cluster's topics for consumer groups: ids, numbers of partitions, and matches of expressions."""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol
from uuid import UUID

from broker_core.coordinator.patterns import NamePattern
from broker_core.errors import KafkaError


class TopicFacts(NamedTuple):
    """A topic's id and number of partitions."""

    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """The topics that exist at the moment."""

    @property
    def version(self) -> int:
        """Return a number that increases whenever anything else here may have changed."""
        ...

    def names(self) -> Iterable[str]: ...

    def find(self, name: str) -> TopicFacts | None:
        """Return a topic's id and number of partitions, None if it does not exist."""
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id, None if it does not exist."""
        ...


def matching_topics(expression: str, topics: Topics, may_see: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    """Return the topics that the caller `may_see` and whose whole name matches.

    An invalid expression matches none.
    """
    try:
        pattern = NamePattern(expression)
    except KafkaError:
        return ()
    matching = (name for name in topics.names() if pattern.matches(name))
    return tuple(sorted(matching if may_see is None else filter(may_see, matching)))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a signed 64-bit hash of the topics, 0 if none of them exists.

    Kafka uses another function. The hash is only compared with the group's own previous one; where both
    are in one log, the group is assigned once more than needed.
    """
    found = [(name, facts) for name in sorted(names) if (facts := topics.find(name)) is not None]
    if not found:
        return 0
    digest = blake2b(digest_size=8)
    for name, (topic_id, partition_count) in found:
        digest.update(f"{name}:{topic_id.hex}:{partition_count};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
