"""The topics of a cluster as its group coordinators see them."""

from collections.abc import Iterable
from uuid import UUID

from broker_core.broker.metadata import ClusterMetadata
from broker_core.coordinator.groups.consumer.subscriptions import TopicFacts


class SubscribableTopics:
    """The `Topics` that consumer groups subscribe to."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        """Return a number that increases with every change of a topic, including moves of its leaders."""
        return self._metadata.topics_version

    def names(self) -> Iterable[str]:
        """Return the names of all topics, internal ones included, as Kafka's coordinator sees them."""
        return self._metadata.topics

    def find(self, name: str) -> TopicFacts | None:
        topic = self._metadata.topics.get(name)
        return None if topic is None else TopicFacts(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id, None if it does not exist."""
        return self._metadata.names.get(topic_id)
