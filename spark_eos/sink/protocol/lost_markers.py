"""No transaction is ended while a partition that it wrote to has no leader.

Apache Kafka 4.3 and 4.4 complete such a transaction without its marker there (KAFKA-20734): readers of the partition
wait until an operator ends it, and the producer's next marker ends both transactions the same way. What is left open
is ended by the next sweep, or by its coordinator at its timeout.
"""

from collections.abc import Collection, Mapping

from broker_core.types import TopicPartition
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink.protocol.asks import LeaderlessPartitions


async def without_leaders(
    written: Mapping[str, Collection[TopicPartition | WrittenRange]],
) -> Mapping[str, TopicPartition]:
    """Return the transactional ids that wrote to a partition without a leader, each with one such partition."""
    topics = sorted({place.topic for places in written.values() for place in places})
    leaderless = await LeaderlessPartitions(topics) if topics else {}
    # A micro-batch may have a million places, and almost never one without a leader.
    if not any(leaderless.values()):
        return {}
    return {
        name: TopicPartition(place.topic, place.partition)
        for name, places in written.items()
        for place in places
        if place.partition in leaderless.get(place.topic, ())
    }
