"""The decisions and interventions in a decision topic, read without changing anything."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import places_of
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnansweredError
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import (
    AUDIT_VERSION,
    Decision,
    UnreadableDecisionError,
    join_parts,
    read_part,
    read_sealed_json,
)
from spark_eos.sink.naming import audit_key_prefix, decision_name, is_audit_key, is_head_key
from spark_eos.sink.protocol.action_table import Fate
from spark_eos.sink.protocol.answers import Description, KeyedRecord
from spark_eos.sink.protocol.settlement import described_fate
from spark_eos.transactions.judge import name_blocker
from spark_eos.transactions.standstills import ends

# The state of a decision whose transactions the principal may not see.
NOT_PERMITTED: Final = "not permitted"
# The state of a record that is not a decision of this version.
UNREADABLE: Final = "unreadable"
_Live: TypeAlias = dict[tuple[TopicPartition, bytes], KeyedRecord]


@dataclass(slots=True)
class Entry:
    """What the topic contains of one query; `problem` is why its decision cannot be read, or its fates not be known.

    `undescribed` has the transactional ids whose coordinators did not respond.
    """

    prefix: str
    query: str
    decision: Decision | None = None
    problem: str = ""
    fates: Mapping[str, int] = field(default_factory=dict)
    undescribed: Collection[str] = ()

    @property
    def state(self) -> str:
        if self.decision is None:
            return UNREADABLE
        if self.problem and not self.undescribed:
            return NOT_PERMITTED
        if self.decision.completed_at_ms is not None:
            return "completed"
        if self.decision.is_abandoned:
            return "abandoned: skip" if self.decision.is_skipped else "abandoned: rewrite"
        if self.fates.get("committed") == len(self.decision.transactions):
            return "committed"
        return ", ".join(f"{count} {fate}" for fate, count in self.fates.items() if count)


def read_inventory(
    cluster: KafkaCluster, topic: str, prefix: str | None = None, query: str | None = None, *, waits: bool = True
) -> list[Entry]:
    """Return the newest decision of each query, with the coordinators' descriptions, requested all at once.

    Without `waits`, what is behind an open transaction is left out.
    """
    try:
        found = _read_entries(_live(cluster.all_records(topic, waits=waits)))
    except TopicError as error:
        if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise TopicError(
            f"The decision topic {topic!r} does not exist, or the principal may not DESCRIBE it",
            remedy="Give the query's decisionTopic as --decision-topic, and --bootstrap-server of the cluster that the "
            "query writes to. If the topic was deleted, a restart of the query or job finds out what can be known",
            error_code=error.error_code,
        ) from error
    except UnansweredError as error:
        said = blocked_read(cluster.client, topic, error) if waits else error
        if said is error:
            raise
        raise said from error
    entries = [each for each in found if prefix in (None, each.prefix) and query in (None, each.query)]
    try:
        _add_fates(cluster, entries)
    except AuthorizationError:
        # One id that the principal may not see does not hide the others.
        for each in entries:
            try:
                _add_fates(cluster, [each])
            except AuthorizationError as error:
                each.problem = str(error)
    return entries


def blocked_read(client: KafkaClient, topic: str, error: UnansweredError) -> UnansweredError:
    """Return an error that names the transaction for which a read has waited, or the given one if it was no such."""
    with suppress(EosKafkaError):
        for place, reached, end in rests(client, topic):
            if error.happened.startswith(f"Reading {place} made no progress"):
                return UnansweredError(
                    f"The decisions in {place} can be read only up to offset {reached}, but end at {end}: an open "
                    "transaction blocks the last stable offset",
                    checked=name_blocker(client, place).removesuffix("."),
                    remedy="The newest decision may be behind that. Repeat the command when the transaction has ended",
                )
    return error


def rests(client: KafkaClient, topic: str) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield each partition that readers do not read to its end now, with its last stable offset and its end."""
    places = places_of(client.metadata([topic]).values())
    stable, high = ends(client, places, sorted(places))
    for place, end in high.items():
        reached = stable.get(place)
        if reached is not None and end is not None and reached < end:
            yield place, reached, end


def _add_fates(cluster: KafkaCluster, entries: Iterable[Entry]) -> None:
    decided = [(each, each.decision) for each in entries if each.decision is not None]
    undone = [decision for _, decision in decided if decision.completed_at_ms is None]
    names = [t.transactional_id for decision in undone for t in decision.transactions]
    described, unanswered = cluster.describe_in_part(names) if names else ({}, {})
    for each, decision in decided:
        each.fates = fate_counts(decision, described)
        each.undescribed = {t.transactional_id for t in decision.transactions} & unanswered.keys()
        if each.undescribed:
            name = min(each.undescribed)
            each.problem = f"The coordinator of {name} has not described its transaction in time: {unanswered[name]}"


def fate_counts(decision: Decision, described: Mapping[str, Description]) -> dict[str, int]:
    """Count the fates of a decision's transactions according to coordinators; `unclear` needs the log."""
    if decision.completed_at_ms is not None:
        return {"committed": len(decision.transactions)}
    fates = Counter(described_fate(t, described.get(t.transactional_id)) for t in decision.transactions)
    return {
        "committed": fates[Fate.COMMITTED],
        "open": fates[Fate.OPEN],
        "lost": fates[Fate.LOST],
        "unclear": fates[None],
    }


def read_audit(cluster: KafkaCluster, topic: str, prefix: str, query: str) -> list[dict[str, Any]]:
    """Return all interventions in one query, the oldest first; a corrupt record is shown as such."""
    beginning = audit_key_prefix(prefix, query)
    found: list[dict[str, Any]] = []
    for place, record in cluster.all_records(topic):
        if record.key is not None and record.value is not None and record.key.startswith(beginning):
            found.append(_audit(record.value, f"{place}@{record.offset}"))
    return sorted(found, key=lambda entry: int(entry.get("at_ms", 0)))


def _audit(value: bytes, where: str) -> dict[str, Any]:
    try:
        document = read_sealed_json(value)
    except ValueError:
        return {"problem": f"The audit record at {where} is corrupt"}
    if document.get("version") != AUDIT_VERSION:
        return {
            "problem": f"The audit record at {where} has version {document.get('version')}, which this "
            "version of the package cannot read; upgrade the package"
        }
    return document


def _live(records: Iterable[tuple[TopicPartition, KeyedRecord]]) -> _Live:
    """Keep the last record of each key, as compaction will."""
    live: _Live = {}
    for place, record in records:
        if record.key is None or is_audit_key(record.key):
            continue
        if record.value is None:
            live.pop((place, record.key), None)
        else:
            live[place, record.key] = record
    return live


def _read_entries(live: _Live) -> list[Entry]:
    entries: dict[bytes, Entry] = {}
    for (place, key), record in live.items():
        if is_head_key(key):
            entry = _read_entry(live, place, key, record)
            known = entries.get(key)
            # After partitions were added to the topic, a key may be in two of them.
            if known is None or (entry.decision and (not known.decision or entry.decision.rank > known.decision.rank)):
                entries[key] = entry
    return sorted(entries.values(), key=lambda entry: (entry.prefix, entry.query))


def _read_entry(live: _Live, place: TopicPartition, key: bytes, record: KeyedRecord) -> Entry:
    where = f"{place}@{record.offset}"
    entry = Entry(*decision_name(key))
    try:
        head = read_part(record.value or b"", where)
        records = [live.get((place, key + b"#%d" % number)) for number in range(1, head.count)]
        others = [read_part(each.value or b"", where) for each in records if each is not None]
        name = head.decision.run, head.decision.rank
        same = [part for part in others if (part.decision.run, part.decision.rank) == name]
        entry.decision = join_parts([head, *same], where, place.topic)
    except UnreadableDecisionError as error:
        entry.problem = str(error)
    return entry
