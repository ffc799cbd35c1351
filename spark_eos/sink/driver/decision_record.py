"""Reading the decision that a pointer points to."""

from broker_core.types import TopicPartition
from spark_eos.errors import OptionError
from spark_eos.sink.decision import Decision, Pointer, UnreadableDecisionError, join_parts, read_part
from spark_eos.sink.naming import decision_key, group_id
from spark_eos.sink.ports import SinkCluster


def read_decision(cluster: SinkCluster, pointer: Pointer, prefix: str, query: str) -> Decision:
    """Read all parts of a decision; raises where it is not there, which never means that there is none."""
    place = TopicPartition(*pointer.topic_partition)
    where = f"{place}@{pointer.offset}"
    keys = {decision_key(prefix, query, number) for number in range(pointer.parts)}
    # The parts follow one another, other queries' records may lie between them.
    records = cluster.read_records(place, pointer.offset, 1 if pointer.parts == 1 else 100 * pointer.parts)
    parts = [read_part(r.value, f"{place}@{r.offset}") for r in records if r.key in keys and r.value is not None]
    wanted = [part for part in parts if part.decision.rank == pointer.rank]
    if not wanted:
        raise UnreadableDecisionError(
            f"Group {group_id(prefix, query)} points to the decision at {where}, which is not there",
            checked=f"{len(records)} records were read from that offset on",
            remedy=f"Do not delete records of {place.topic}; its cleanup.policy must be compact",
        )
    return join_parts(wanted, where)


def other_topic_error(query: str, group: str, topic: str, found: str) -> OptionError:
    """Refuse another decision topic than the one that a query has begun with."""
    return OptionError(
        f"Option 'decisionTopic' is '{topic}', and query {query} keeps its decisions in '{found}'",
        checked=f"The offsets of group {group}",
        remedy=f"Set decisionTopic={found}. A query keeps the decision topic that it began with; another one needs a "
        "new checkpoint",
    )
