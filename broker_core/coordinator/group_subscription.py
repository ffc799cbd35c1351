"""Read the topics out of a consumer's subscription, the only client metadata the coordinator looks into."""

from collections.abc import Iterable

from broker_core.coordinator.record_fields import FieldReader
from broker_core.errors import DamageError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions together, or None if one of them cannot be read.

    None counts as subscribed to everything: a client with a format of its own must not lose offsets.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            fields = FieldReader(subscription)
            fields.int16()
            topics.update(fields.string() for _ in range(fields.length()))
    except DamageError:
        return None
    return frozenset(topics)
