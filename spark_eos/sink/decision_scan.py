"""Finding decisions without a pointer, by reading the whole decision topic."""

from collections.abc import Sequence

from broker_core.types import TopicPartition
from spark_eos.sink.decision import Decision, Part, join_parts, read_part
from spark_eos.sink.naming import decision_key, is_decision_of, is_write_of
from spark_eos.sink.ports import Cluster, KeyedRecord


def find_newest(cluster: Cluster, topic: str, prefix: str, query: str) -> Decision | None:
    """Find the newest decision of a query.

    There is no pointer where the query has slept for a week, so that it has expired, and where its prefix was changed.
    """
    heads = _parts(cluster.find_records(topic, lambda key: is_decision_of(key, prefix, query)))
    if not heads:
        return None
    newest = max(heads, key=lambda part: part.decision.rank)
    prefix = newest.decision.prefix
    keys = {decision_key(prefix, query, number) for number in range(newest.count)}
    parts = heads if newest.count == 1 else _parts(cluster.find_records(topic, keys.__contains__))
    name = (prefix, newest.decision.run, newest.decision.rank)
    same = {p.number: p for p in parts if (p.decision.prefix, p.decision.run, p.decision.rank) == name}
    return join_parts(list(same.values()), f"key {decision_key(prefix, query).decode()} of {topic}")


def find_namesakes(cluster: Cluster, topic: str, query: str, micro_batch: int) -> list[Decision]:
    """Find what the same Spark query has decided for a micro-batch under other names."""
    found: dict[tuple[str, str], dict[tuple[int, int, int], list[Part]]] = {}
    for part in _parts(cluster.find_records(topic, lambda key: is_write_of(key, query))):
        each = part.decision
        if each.micro_batch == micro_batch and each.query != query:
            found.setdefault((each.prefix, each.query), {}).setdefault(each.rank, []).append(part)
    return [join_parts(ranks[max(ranks)], f"{name} in {topic}") for name, ranks in found.items()]


def _parts(records: Sequence[tuple[TopicPartition, KeyedRecord]]) -> list[Part]:
    """Read the records that no later one of the same key has deleted."""
    deleted_at = {(place, r.key): r.offset for place, r in records if r.value is None}
    return [
        read_part(r.value, f"{place}@{r.offset}")
        for place, r in records
        if r.value is not None and r.offset > deleted_at.get((place, r.key), -1)
    ]
