"""Show the catalog's topics to the group coordinator."""

from collections.abc import Iterable
from uuid import UUID

from broker_core.broker.catalog import Catalog
from broker_core.coordinator.groups.consumer.subscriptions import TopicFacts


class CatalogTopics:
    """Be the `Topics` that consumer groups subscribe to."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def version(self) -> int:
        """Return a number that grows with every change of a topic; a move of its leader counts as one, too."""
        return self._catalog.topics_version

    def names(self) -> Iterable[str]:
        """Return the names of all topics, internal ones included, as Kafka's coordinator sees them."""
        return self._catalog.topics

    def find(self, name: str) -> TopicFacts | None:
        """Return a topic's id and size."""
        topic = self._catalog.topics.get(name)
        return None if topic is None else TopicFacts(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic that is still there."""
        return self._catalog.names.get(topic_id)
