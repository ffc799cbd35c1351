"""The reader of a query's decisions: by its pointer, or else by scanning the partitions that can contain them.

There is no pointer if a query is new, if it was stopped for a week, so that its pointer expired, or if its prefix was
changed. In a topic that this version of the package created, the decisions of a query are in one partition, or in a
second one if an earlier version wrote to the topic too. In any other topic they can be anywhere.
"""

import contextlib
from collections.abc import Iterable
from typing import Final

from broker_core.types import TopicPartition, counted
from spark_eos.errors import OptionError, UnansweredError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.runtime import now_ms
from spark_eos.sink.decision import Decision, Part, Pointer, UnreadableDecisionError, join_parts, read_part
from spark_eos.sink.naming import (
    DECISION_TOPIC_PARTITIONS,
    LAYOUT_KEY,
    decision_key,
    decision_partition,
    driver_id,
    escape,
    former_partition,
    group_id,
    is_decision_of,
    is_job_of,
    is_query_id,
    is_write_of,
)
from spark_eos.sink.ports import KeyedRecord, SinkCluster, UnendedRecord

# How long a completed job is known by its jobId.
KEPT_MS: Final = 30 * 24 * 60 * 60 * 1000
_OPEN_LIMIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1


def read_decision(cluster: SinkCluster, pointer: Pointer, prefix: str, query: str) -> Decision:
    """Read all parts of a decision; raise if it does not exist, which never means that there is no decision."""
    place = TopicPartition(*pointer.topic_partition)
    where = f"{place}@{pointer.offset}"
    keys = {decision_key(prefix, query, number) for number in range(pointer.parts)}
    # The parts are in order; records of other queries may lie between them.
    records = cluster.read_records(place, pointer.offset, 1 if pointer.parts == 1 else 100 * pointer.parts)
    parts = [read_part(r.value, f"{place}@{r.offset}") for r in records if r.key in keys and r.value is not None]
    wanted = [part for part in parts if part.decision.rank == pointer.rank]
    if not wanted:
        raise UnreadableDecisionError(
            f"Group {group_id(prefix, query)} points to the decision at {where}, which does not exist",
            checked=f"Read {counted(len(records), 'record')} from that offset",
            remedy=f"Do not delete records of {place.topic}; its cleanup.policy must be compact",
        )
    return join_parts(wanted, where)


def other_topic_error(query: str, group: str, topic: str, found: str) -> OptionError:
    """Return the error for a decision topic other than the one that the query began with."""
    return OptionError(
        f"Option 'decisionTopic' is '{topic}', but query {query} keeps its decisions in '{found}'",
        checked=f"The offsets of group {group}",
        remedy=f"Set decisionTopic={found}. The decision topic of a query cannot change; another one needs a new "
        "checkpoint",
    )


class DecisionScan:
    """What the topic contains of one query; each refresh continues where the last one ended."""

    def __init__(self, cluster: SinkCluster, topic: str, query: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self._query = query
        # All writes of a Spark query have it in their keys; few records of other queries do.
        self._word = escape(query.partition("/")[0]).encode()
        # For jobs, also what other jobs under the same prefix wrote before this time, which may be due for deletion.
        self._jobs_before_ms = 0 if is_query_id(query) else now_ms(cluster.runtime.clock) - KEPT_MS
        self._prefix = ""
        self._has_layout: bool | None = None
        self._starts: dict[TopicPartition, int] = {}
        self._kept: dict[tuple[TopicPartition, bytes], KeyedRecord] = {}

    def refresh(self, prefix: str) -> None:
        """Read new records; wait for an open decision of the query under a prefix other than this one.

        An open decision under this prefix is not waited for: a take-over ends it, and if it was committed before that,
        the pointer shows it.
        """
        clock = self.cluster.runtime.clock
        deadline = clock.monotonic() + _OPEN_LIMIT_SECONDS
        while waited := [each for each in self._read(prefix) if self._is_foreign(each, prefix)]:
            if clock.monotonic() >= deadline:
                raise _open_error(self._query, waited[0])
            clock.sleep(_PAUSE_SECONDS)

    def newest(self, prefix: str) -> Decision | None:
        """Return the newest decision of the query among those read; a job is known only under its own prefix."""
        heads = self._parts(key for _, key in self._kept if is_decision_of(key, prefix, self._query))
        if not heads:
            return None
        newest = max(heads, key=lambda part: part.decision.rank)
        prefix = newest.decision.prefix
        parts = self._parts(decision_key(prefix, self._query, number) for number in range(newest.count))
        name = (prefix, newest.decision.run, newest.decision.rank)
        same = {p.number: p for p in parts if (p.decision.prefix, p.decision.run, p.decision.rank) == name}
        return join_parts(list(same.values()), f"key {decision_key(prefix, self._query).decode()} of {self.topic}")

    def namesakes(self, micro_batch: int) -> list[Decision]:
        """Return what the same Spark query has decided for a micro-batch under other names, of the records read."""
        found: dict[tuple[str, str], dict[tuple[int, int, int], list[Part]]] = {}
        for part in self._parts(key for _, key in self._kept if is_write_of(key, self._query)):
            each = part.decision
            if each.micro_batch == micro_batch and each.query != self._query:
                found.setdefault((each.prefix, each.query), {}).setdefault(each.rank, []).append(part)
        return [join_parts(ranks[max(ranks)], f"{name} in {self.topic}") for name, ranks in found.items()]

    def expired(self, now_ms: int) -> list[tuple[TopicPartition, Decision]]:
        """Return decisions of other jobs, or their first parts, that were completed too long ago to be needed."""
        found = []
        for (place, key), record in self._kept.items():
            if self._word not in key and is_job_of(key, self._prefix) and record.value is not None:
                with contextlib.suppress(UnreadableDecisionError):
                    part = read_part(record.value, f"{place}@{record.offset}")
                    at_ms = part.decision.completed_at_ms
                    if at_ms is not None and at_ms < now_ms - KEPT_MS:
                        found.append((place, part.decision))
        return found

    def _read(self, prefix: str) -> list[UnendedRecord]:
        """Read new records; return those whose transaction has not ended, where the next scan begins."""
        self._prefix = prefix
        starts = {place: self._starts.get(place) for place in self._places(prefix)}
        found = self.cluster.find_records(starts, self._is_wanted)
        for place, record in found.records:
            assert record.key is not None
            if record.value is None:
                self._kept.pop((place, record.key), None)
            else:
                self._kept[place, record.key] = record
        self._starts |= found.ends
        for each in found.unended:
            place = each.topic_partition
            self._starts[place] = min(self._starts[place], each.record.offset)
        return list(found.unended)

    def _places(self, prefix: str) -> list[TopicPartition]:
        count = self.cluster.partition_count(self.topic)
        if self._has_layout is None:
            self._has_layout = count >= DECISION_TOPIC_PARTITIONS and self.cluster.begins_with(
                TopicPartition(self.topic, 0), LAYOUT_KEY
            )
        numbers = set(range(count))
        if self._has_layout:
            numbers = {decision_partition(self._query, count), former_partition(prefix, self._query, count)}
        return [TopicPartition(self.topic, number) for number in sorted(numbers)]

    def _is_wanted(self, key: bytes, timestamp_ms: int) -> bool:
        if self._word not in key:
            return timestamp_ms < self._jobs_before_ms and is_job_of(key, self._prefix)
        name = key.rpartition(b"/")[2].partition(b"#")[0]
        return name == escape(self._query).encode() or is_write_of(key, self._query)

    def _is_foreign(self, unended: UnendedRecord, prefix: str) -> bool:
        head = (unended.record.key or b"").partition(b"#")[0]
        return is_decision_of(head, prefix, self._query) and head != decision_key(prefix, self._query)

    def _parts(self, keys: Iterable[bytes]) -> list[Part]:
        wanted = set(keys)
        return [
            read_part(record.value or b"", f"{place}@{record.offset}")
            for (place, key), record in self._kept.items()
            if key in wanted
        ]


def _open_error(query: str, unended: UnendedRecord) -> UnansweredError:
    prefix = (unended.record.key or b"").rpartition(b"/")[0].decode(errors="replace")
    name, place = driver_id(prefix, query), unended.topic_partition
    # The address of the cluster is not known here.
    commands = OperatorCommands(("HOST:PORT",))
    return UnansweredError(
        f"The transaction of {name} left a decision of query {query} open at {place}@{unended.record.offset}, "
        f"producer {unended.identity}",
        checked=f"The markers in {place}, for {_OPEN_LIMIT_SECONDS:.0f} s; until the transaction ends, the "
        "query's newest decision is unknown",
        remedy=(
            "If the query is running under that prefix, stop it. The transaction ends when it times out, or with "
            f"`{commands.force_terminate(name)}`. If it remains open, it hangs: "
            f"`{commands.find_hanging(place.topic)}` prints the command that ends it. Then restart the query"
        ),
    )
