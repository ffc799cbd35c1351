"""The ends of partitions at leaders that have been replaced.

A broker that is cut off from the others goes on as the leader that it was. Its log may end before what was read, or
have other records from there on, which a newer leader has truncated. To take either for a loss would stop a query
without need, or read records twice where the query goes on after a loss. The epoch of a leader proves it: within a
topic, by its id, epochs only rise. Where brokers have no topic ids, a lower epoch may belong to a topic that was
deleted and created again.
"""

from collections.abc import Iterable, Mapping

from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos.client.metadata import is_earlier
from spark_eos.client.offset_lookup import LogPoint, PartitionPlace
from spark_eos.errors import UnansweredError
from spark_eos.source.offsets import SourceOffset

Ends = Mapping[TopicPartition, LogPoint]


def earlier_leaders(
    partitions: Iterable[TopicPartition],
    ends: Ends,
    before: Ends,
    known: SourceOffset,
    places: Mapping[TopicPartition, PartitionPlace],
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the partitions whose end comes from a leader before one that is known, with the epochs of both.

    `before` are the ends that were returned earlier.
    """
    found = {}
    for tp in partitions:
        answered = ends[tp].leader_epoch
        newest = max(known.leader_epochs.get(tp, NO_LEADER_EPOCH), before.get(tp, LogPoint()).leader_epoch)
        is_same_topic = tp.topic in known.topic_ids and known.topic_ids[tp.topic] == places[tp].topic_id
        if is_same_topic and is_earlier(answered, newest):
            found[tp] = answered, newest
    return found


def earlier_leader_error(found: Mapping[TopicPartition, tuple[int, int]]) -> UnansweredError:
    tp = min(found)
    answered, newest = found[tp]
    return UnansweredError(
        f"The end of {tp} comes from its leader of epoch {answered}, and epoch {newest} is known",
        checked="Asked all brokers for newer leaders, and these for the end, again and again; nothing is lost",
        remedy="Look for a broker that is cut off from the others. If the cluster was restored from a backup, so that "
        "epochs begin again, see docs/spark/source.md#move-to-another-cluster",
    )
