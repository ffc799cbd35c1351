"""The reader of a query's decisions: by its pointer, or else by scanning the partitions that can contain them.

There is no pointer if a query is new, if it was stopped for a week, so that its pointer expired, or if its prefix was
changed. In a topic that the sink created, the decisions of a query are in one partition. Any other topic may have had
fewer partitions, so they can be anywhere.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from broker_core.types import ProducerIdentity, TopicPartition, counted
from spark_eos.errors import AuthorizationError, EosKafkaError, OptionError, UnansweredError, UnsupportedError
from spark_eos.options.operator_commands import FOR_ANY_CLUSTER
from spark_eos.sink import naming
from spark_eos.sink.decision import (
    NO_DECISION,
    Decision,
    Part,
    Pointer,
    Rank,
    UnreadableDecisionError,
    join_parts,
    read_part,
    read_pointer,
)
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.answers import FoundRecords, KeyedRecord, ShortLogError
from spark_eos.sink.protocol.decision_errors import gone_remedy

# How long a completed job is known by its jobId.
KEPT_MS: Final = 30 * 24 * 60 * 60 * 1000
_OPEN_LIMIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.2
# Writes of a function, of which the topic may have lost the newest decision.
_MOST_FOLLOWED: Final = 16


async def read_decision(
    pointer: Pointer, prefix: str, query: str, run: str
) -> tuple[Decision, ProducerIdentity | None]:
    """Read all parts of a decision for a run, and who wrote it.

    Raises if it does not exist, which never means that there is none.
    """
    place = pointer.topic_partition
    where = f"{place}@{pointer.offset}"
    keys = {naming.decision_key(prefix, query, number) for number in range(pointer.parts)}
    gone = gone_remedy(query, run, pointer.rank.micro_batch, may_be_passed=True)
    try:
        # The parts are in order; records of other queries may lie between them.
        records = await asks.ReadRecords(place, pointer.offset, 1 if pointer.parts == 1 else 100 * pointer.parts)
    except ShortLogError as error:
        remedy = f"{error.remedy}. If no broker is, Kafka has lost the newest records of {place.topic}. {gone}"
        raise ShortLogError(error.happened, checked=error.checked, remedy=remedy) from error
    parts = [
        (read_part(r.value, f"{place}@{r.offset}"), r.producer)
        for r in records
        if r.key in keys and r.value is not None
    ]
    wanted = [(part, producer) for part, producer in parts if pointer.is_to(part.decision)]
    if not wanted:
        raise UnreadableDecisionError(
            f"Group {naming.group_id(prefix, query)} points to the decision at {where}, which does not exist",
            checked=f"Read {counted(len(records), 'record')} from that offset",
            remedy=f"Do not delete records of {place.topic}; its cleanup.policy must be compact. {gone}",
        )
    return join_parts([part for part, _ in wanted], where, place.topic), wanted[0][1]


def other_topic_error(query: str, run: str, group: str, topic: str, found: str) -> OptionError:
    return OptionError(
        f"Option 'decisionTopic' is '{topic}', but query {query} keeps its decisions in '{found}'",
        checked=f"The offsets of group {group}",
        remedy=f"Set decisionTopic={found}: a query or job keeps the decision topic that it began with. Another one "
        f"needs {'a new checkpoint' if naming.is_query_id(query, run) else 'another jobId'}, which writes all rows "
        "again",
    )


class DecisionScan:
    """What the topic contains of one query; each refresh continues where the last one ended."""

    def __init__(self, topic: str, query: str, run: str) -> None:
        self.topic = topic
        self._query = query
        # All writes of a Spark query have it in their keys; few records of other queries do.
        self._word = naming.escape(query.partition("/")[0]).encode()
        # The run, and the topics of its rows, by which a job knows its decision under another prefix.
        self.run = run
        self.topics: Collection[str] = ()
        # For jobs, also what other jobs under the same prefix wrote before this time, which may be due for deletion.
        self._jobs_before_ms: int | None = None
        self._prefix = ""
        self._has_layout: bool | None = None
        # The most partitions that any broker has named: a topic keeps its partitions.
        self._most = 0
        self._starts: dict[TopicPartition, int] = {}
        # Where partitions ended when they were read last.
        self._ends: dict[TopicPartition, int] = {}
        self._kept: dict[tuple[TopicPartition, bytes], KeyedRecord] = {}
        # What the pointers under the query's other names show besides, and its names that have one.
        self._elsewhere: list[Decision] = []
        self._pointed: set[str] = set()

    async def refresh(self, prefix: str) -> None:
        """Read new records; wait for an open decision of the query under another prefix, which no take-over ends."""
        deadline = await asks.Monotonic() + _OPEN_LIMIT_SECONDS
        while waited := [each for each in await self._read(prefix) if self._is_foreign(*each, prefix)]:
            if await asks.Monotonic() >= deadline:
                raise _open_error(self._query, self.run, *waited[0])
            await asks.Sleep(_PAUSE_SECONDS)

    async def elsewhere(self, prefix: str) -> Rank | None:
        """Read new records; return the rank of the query's decision under another prefix, even of one not ended."""
        unended = [record for place, record in await self._read(prefix) if self._is_foreign(place, record, prefix)]
        ranks = [read_part(record.value or b"", self.topic).decision.rank for record in unended]
        newest = self.newest(prefix)
        return max([*ranks, *([] if newest is None or newest.prefix == prefix else [newest.rank])], default=None)

    async def read_on(self, place: TopicPartition, offset: int) -> bool:
        """Read what follows an offset in the partition of the query's decisions; return False for another partition."""
        if place.partition != naming.decision_partition(self._query, await asks.PartitionCount(self.topic)):
            return False
        self._keep(await asks.FindRecords({place: offset}, self._is_wanted))
        return True

    def newest(self, prefix: str) -> Decision | None:
        """Return the newest decision of the query among those read, under any prefix.

        Another user's job may have the same name under another prefix: it is the same job if it has written to one of
        `topics`, to which the job writes now, or if `run` has decided it. A sweep knows only the run.
        """
        found = [each for each in self._decisions(self._is_of_query) if self._is_same(each, prefix)]
        return max(found, key=lambda each: (not self._is_unique and each.prefix == prefix, each.rank), default=None)

    def newer(self, prefix: str, rank: Rank) -> Decision | None:
        """Return the newest decision of the query among those read, if it has this prefix and is newer than `rank`."""
        found = self.newest(prefix)
        return found if found is not None and found.prefix == prefix and found.rank > rank else None

    def namesakes(self) -> list[Decision]:
        """Return what the query has decided under other names, the newest first."""
        found = self._decisions(lambda key: self._is_write(key) and not self._is_of_query(key))
        return sorted((*found, *self._elsewhere), key=lambda each: each.rank, reverse=True)

    @property
    def knows_query(self) -> bool:
        """Return whether any decision of the Spark query was read or pointed to, whatever its write is called."""
        return bool(self._names or self._elsewhere)

    @property
    def _names(self) -> set[str]:
        keys = [key for _, key in self._kept if self._is_write(key) and naming.is_head_key(key)]
        return {naming.decision_name(key)[1] for key in keys}

    async def used_ids(self, wait_ms: int | None = None) -> Mapping[naming.TaskId, bool]:
        """Return the ids that the query's tasks have used, and which of them have committed.

        Kafka deletes the pointer with its topic, so neither shows a decision then; coordinators know ids for a week.
        Those of other writes are included if they may be an earlier name of this one: in the same run they are not.
        """
        try:
            used = await asks.UsedIds(self._query, wait_ms)
            return {task: end for task, end in used.items() if task.query == self._query or self._may_be_renamed(task)}
        except (UnsupportedError, AuthorizationError) as error:
            await asks.info(f"cannot check whether decisions of query {self._query} are gone: {error}")
            return {}

    def unexplained_ids(self, used: Mapping[naming.TaskId, bool], prefix: str) -> Sequence[naming.TaskId]:
        """Return the ids that have committed, which takes a decision, and of whose write no decision is known.

        That is for a write without decisions. Another user's job may have the same name.
        """
        known = (self._names | self._pointed) - {self._query}
        committed = [task for task, end in used.items() if end and task.query not in known]
        return [task for task in committed if self._is_unique or task.prefix == prefix]

    async def follow_pointers(self, used: Mapping[naming.TaskId, bool], prefix: str, since: int) -> None:
        """Follow the pointers under the other names that ids have, to decisions that were not read.

        Raise if the query keeps its own in another topic, or if one is lost. Those of its other writes, for micro-batch
        `since` or later, are among `namesakes` then.
        """
        self._elsewhere = []
        read = {(each.prefix, each.query): each.rank for each in self._decisions(self._is_write)}
        others = {(task.prefix, task.query) for task in used} - {(prefix, self._query)}
        # A function may name a write after its micro-batch. Of what was read, only the newest may be in part.
        newest_first = sorted(others & read.keys(), key=lambda each: (read[each], each), reverse=True)
        for name in (*sorted(others - read.keys()), *newest_first[:_MOST_FOLLOWED]):
            group, is_own = naming.group_id(*name), name[1] == self._query
            try:
                pointers = [read_pointer(*each, f"group {group}") for each in await asks.LastOffsets(group)]
                newest = max((each for each in pointers if each is not None), key=lambda each: each.rank, default=None)
                if newest is None:
                    continue
                self._pointed.add(name[1])
                is_unread = newest.rank > read.get(name, NO_DECISION) and newest.rank.micro_batch >= since
                if not (newest.topic_partition.topic != self.topic if is_own else is_unread):
                    continue
                decision, _ = await read_decision(newest, *name, self.run)
            except EosKafkaError as error:
                if self._is_unique:
                    raise
                # Most likely it is another user's job, which may be damaged, or not for this principal to see.
                await asks.info(f"cannot read whether job {self._query} was written under prefix {name[0]}: {error}")
                continue
            if not is_own:
                self._elsewhere.append(decision)
            elif self._is_same(decision, prefix):
                raise other_topic_error(self._query, self.run, group, self.topic, newest.topic_partition.topic)

    def expired(self, now_ms: int) -> list[tuple[TopicPartition, Decision]]:
        """Return decisions of other jobs, or their first parts, that were completed too long ago to be needed."""
        found = []
        for (place, key), record in self._kept.items():
            if self._word not in key and naming.is_head_under(key, self._prefix) and record.value is not None:
                with contextlib.suppress(UnreadableDecisionError):
                    decision = read_part(record.value, f"{place}@{record.offset}").decision
                    at_ms, is_job = decision.completed_at_ms, not naming.is_query_id(decision.query, decision.run)
                    if is_job and at_ms is not None and at_ms < now_ms - KEPT_MS:
                        found.append((place, decision))
        return found

    def _may_be_renamed(self, task: naming.TaskId) -> bool:
        return self._is_unique and naming.is_query_id(task.query, task.run) and task.run != self.run

    async def _read(self, prefix: str) -> Sequence[tuple[TopicPartition, KeyedRecord]]:
        """Read new records; return the records of open transactions, where the next scan begins."""
        self._prefix = prefix
        if self._jobs_before_ms is None:
            self._jobs_before_ms = 0 if self._is_unique else await asks.Now() - KEPT_MS
        starts = {place: self._starts.get(place) for place in await self._places()}
        found = await asks.FindRecords(starts, self._is_wanted)
        self._keep(found)
        self._starts |= found.ends
        for place, record in found.unended:
            self._starts[place] = min(self._starts[place], record.offset)
        return found.unended

    def has_read(self, place: TopicPartition, offset: int) -> bool:
        """Return whether a record at this offset was in its partition when that was read last."""
        return offset < self._ends.get(place, 0)

    def _keep(self, found: FoundRecords) -> None:
        self._ends |= found.ends
        for place, record in found.records:
            assert record.key is not None
            if record.value is None:
                self._kept.pop((place, record.key), None)
            else:
                self._kept[place, record.key] = record

    async def _places(self) -> list[TopicPartition]:
        count = await asks.PartitionCount(self.topic)
        if self._has_layout is None:
            self._has_layout = count >= naming.DECISION_TOPIC_PARTITIONS and await asks.BeginsWith(
                TopicPartition(self.topic, 0), naming.LAYOUT_KEY
            )
        if self._has_layout:
            return [TopicPartition(self.topic, naming.decision_partition(self._query, count))]
        if not self._most:
            self._most = (await asks.PartitionCounts([self.topic]))[self.topic]
        self._most = max(self._most, count)
        return [TopicPartition(self.topic, number) for number in range(self._most)]

    def _is_wanted(self, key: bytes, timestamp_ms: int) -> bool:
        if self._word not in key:
            return timestamp_ms < (self._jobs_before_ms or 0) and naming.is_head_under(key, self._prefix)
        return self._is_of_query(key) or self._is_write(key)

    @property
    def _is_unique(self) -> bool:
        return naming.is_query_id(self._query, self.run)

    def _is_of_query(self, key: bytes) -> bool:
        return naming.is_decision_of(key, self._query)

    def _is_write(self, key: bytes) -> bool:
        return naming.is_write_of(key, self._query)

    def _is_same(self, decision: Decision, prefix: str) -> bool:
        if self._is_unique or decision.prefix == prefix or decision.run == self.run:
            return True
        return not decision.topics.isdisjoint(self.topics)

    def _is_foreign(self, place: TopicPartition, record: KeyedRecord, prefix: str) -> bool:
        if record.key is None or record.value is None or not self._is_of_query(record.key):
            return False
        decision = read_part(record.value, f"{place}@{record.offset}").decision
        return decision.prefix != prefix and self._is_same(decision, prefix)

    def _decisions(self, is_wanted: Callable[[bytes], bool]) -> list[Decision]:
        """Return the newest decision under each prefix and name, of the records read."""
        found: dict[tuple[str, str], list[Part]] = {}
        for (place, key), record in self._kept.items():
            if is_wanted(key):
                part = read_part(record.value or b"", f"{place}@{record.offset}")
                found.setdefault((part.decision.prefix, part.decision.query), []).append(part)
        return [
            # Parts of an earlier and larger decision may be left.
            join_parts([part for part in parts if _version(part) == newest], f"{name} in {self.topic}", self.topic)
            for name, parts in found.items()
            if (newest := max((_version(part) for part in parts if part.number == 0), default=None)) is not None
        ]


def _version(part: Part) -> tuple[Rank, str]:
    return part.decision.rank, part.decision.run


def _open_error(query: str, run: str, place: TopicPartition, record: KeyedRecord) -> UnansweredError:
    name = naming.driver_id((record.key or b"").rpartition(b"/")[0].decode(errors="replace"), query)
    return UnansweredError(
        f"The transaction of {name} left a decision of query {query} open at {place}@{record.offset}",
        checked=f"The markers in {place}, for {_OPEN_LIMIT_SECONDS:.0f} s; until the transaction ends, the "
        "query's newest decision is unknown",
        remedy="If the query is running under that prefix, stop it. The transaction ends when it times out, or with "
        f"`{FOR_ANY_CLUSTER.force_terminate(name)}`. If it remains open, it hangs: "
        f"`{FOR_ANY_CLUSTER.find_hanging(place.topic)}` prints the command that ends it. Then "
        f"{naming.run_again(query, run)}",
    )
