"""A cluster in memory with Kafka's rules for transactional ids, for tests of the sink's rules."""

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import UnansweredError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.runtime import Runtime
from spark_eos.sink.naming import TaskId, is_same_query, parse_task_id
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange
from spark_eos.sink.protocol.answers import (
    Appended,
    BatchTrace,
    CommittedOffset,
    CommittedView,
    DecisionWrite,
    Description,
    FoundRecords,
    KeyedRecord,
    LostRange,
)
from tests.support.clocks import runtime_by

S = TransactionState
DECISIONS = "eos-kafka-decisions"


@dataclass
class Id:
    """The coordinator's state of one transactional id."""

    identity: ProducerIdentity
    timeout_ms: int = 60_000
    state: TransactionState = S.EMPTY
    started_at_ms: int = -1
    partitions: list[TopicPartition] = field(default_factory=list)


class ClusterClock:
    """A clock that advances where something waits."""

    def __init__(self, cluster: "MemoryCluster") -> None:
        self._cluster = cluster

    def monotonic(self) -> float:
        return self._cluster.now_ms / 1000

    def time_ns(self) -> int:
        return self._cluster.now_ms * 1_000_000

    def sleep(self, seconds: float) -> None:
        self._cluster.pass_time(math.ceil(seconds * 1000))


@dataclass
class MemoryCluster:
    """Ids, logs and group offsets; `calls` lists the requests, `refuse_end` sets error codes of EndTxn."""

    version: int = 2
    now_ms: int = 1_000_000
    ids: dict[str, Id] = field(default_factory=dict)
    logs: dict[TopicPartition, list[tuple[ProducerIdentity, bytes | None, bytes | None]]] = field(default_factory=dict)
    outcomes: dict[tuple[TopicPartition, int], bool] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    lose_answer_of: set[str] = field(default_factory=set)
    # The responses of a coordinator that is cut off from its peers, as long as the client takes it for the coordinator.
    past_offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    past_ids: dict[str, Id | None] = field(default_factory=dict)
    # How many more lookups find the same broker.
    past_found_again: int = 0
    # Records of the decision topic whose transactions have not ended yet.
    unended: set[tuple[TopicPartition, int]] = field(default_factory=set)
    partitions: int = 4
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    leaderless: set[int] = field(default_factory=set)
    emptied: set[TopicPartition] = field(default_factory=set)
    next_producer_id: int = 1

    @cached_property
    def runtime(self) -> Runtime:
        return runtime_by(ClusterClock(self))

    def transaction_version(self) -> int:
        return self.version

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        self.calls.append(f"init {transactional_id}")
        known = self.ids.get(transactional_id)
        if known is None:
            identity = ProducerIdentity(self._new_producer_id(), 0)
        else:
            if known.state is S.ONGOING:
                self.time_out(transactional_id)
            identity = ProducerIdentity(known.identity.producer_id, known.identity.producer_epoch + 1)
            if known.identity.producer_epoch >= 32766:
                identity = ProducerIdentity(self._new_producer_id(), 0)
        self.ids[transactional_id] = Id(identity, timeout_ms)
        return OpenTransaction(transactional_id, identity, self.version)

    def own_some_of(self, transactional_ids: Iterator[str], count: int, timeout_ms: int) -> Sequence[OpenTransaction]:
        while True:
            made = [self.init_producer_id(name, timeout_ms) for name in itertools.islice(transactional_ids, count)]
            if answered := [each for each in made if each.transactional_id not in self.lose_answer_of]:
                return answered

    def describe_transactions(
        self, transactional_ids: Collection[str], wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        self.calls.append(f"describe {len(transactional_ids)}")
        known = {**self.ids, **self.past_ids}
        return {
            name: Description(
                name, found.state, found.identity, found.timeout_ms, found.started_at_ms, frozenset(found.partitions)
            )
            for name in transactional_ids
            if name not in self.forgotten and (found := known.get(name)) is not None
        }

    def describe_in_part(
        self, transactional_ids: Collection[str]
    ) -> tuple[Mapping[str, Description], Mapping[str, str]]:
        return self.describe_transactions(transactional_ids), {}

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        self.calls.append("forget")
        if self.past_found_again:
            self.past_found_again -= 1
            return
        for name in transactional_ids:
            self.past_ids.pop(name, None)
        if group_id is not None:
            self.past_offsets.pop(group_id, None)

    def agree_on_coordinator(self, group_id: str) -> None:
        if group_id in self.past_offsets and self.past_found_again:
            raise UnansweredError(f"The brokers disagree on the coordinator of group {group_id}")
        self.past_offsets.pop(group_id, None)

    def open_transactions(self, id_prefix: str, wait_ms: int | None = None) -> Sequence[str]:
        return [name for name, each in self.ids.items() if each.state is S.ONGOING and name.startswith(id_prefix)]

    def used_ids(self, query: str, wait_ms: int | None = None) -> Mapping[TaskId, bool]:
        self.calls.append("list ids" if wait_ms is None else "list ids without slow brokers")
        used = {S.ONGOING: False, S.COMPLETE_COMMIT: True}
        found = [(parse_task_id(name), used[each.state]) for name, each in self.ids.items() if each.state in used]
        return {task: end for task, end in found if task is not None and is_same_query(task.query, query)}

    def end_transactions(
        self, opened: Collection[OpenTransaction], commit: bool, wait_ms: int | None = None
    ) -> Mapping[str, EndAnswer]:
        return {each.transactional_id: self._end(each, commit) for each in opened}

    def views(
        self, offsets: Mapping[TopicPartition, int], wait_ms: int
    ) -> Mapping[TopicPartition, CommittedView | None]:
        found = {}
        for place, offset in offsets.items():
            with contextlib.suppress(UnansweredError):
                found[place] = self.view(place, offset, wait_ms=wait_ms)
        return found

    def unstable_ends(
        self, topic_partition: TopicPartition, offsets: Mapping[int, int], wait_ms: int
    ) -> Mapping[int, bool]:
        ends = {each: self.unstable_end(topic_partition, each, at, wait_ms=wait_ms) for each, at in offsets.items()}
        return {each: end for each, end in ends.items() if end is not None}

    def view(self, topic_partition: TopicPartition, offset: int, wait_ms: int) -> CommittedView | None:
        log = self.logs.get(topic_partition, [])
        if offset >= len(log):
            return None
        traces = tuple(BatchTrace(at, at, entry[0]) for at, entry in enumerate(log) if at >= offset)
        aborted = tuple(
            AbortedTransaction(log[at][0].producer_id, at)
            for (tp, at), committed in self.outcomes.items()
            if tp == topic_partition and not committed
        )
        firsts = [at for at in range(len(log)) if not self._is_decided(topic_partition, at)]
        return CommittedView(min(firsts, default=len(log)), traces, aborted)

    def unstable_end(self, topic_partition: TopicPartition, producer_id: int, offset: int, wait_ms: int) -> bool | None:
        log = self.logs.get(topic_partition, [])
        is_stable = all(self._is_decided(topic_partition, at) for at in range(min(offset + 1, len(log))))
        return None if is_stable else self.outcomes.get((topic_partition, offset))

    def committed_offsets(self, group_id: str, wait_ms: int) -> Sequence[CommittedOffset]:
        self.calls.append("pointer")
        return list({**self.groups, **self.past_offsets}.get(group_id, {}).values())

    def read_records(self, topic_partition: TopicPartition, offset: int, count: int) -> Sequence[KeyedRecord]:
        log = self.logs.get(topic_partition, [])
        last = min(len(log), offset + count)
        return [KeyedRecord(at, log[at][1], log[at][2], log[at][0]) for at in range(offset, last)]

    def last_offsets(self, group_id: str) -> Sequence[CommittedOffset]:
        self.calls.append("pointer")
        return list({**self.groups, **self.past_offsets}.get(group_id, {}).values())

    def find_records(
        self, starts: Mapping[TopicPartition, int | None], is_wanted: Callable[[bytes, int], bool]
    ) -> FoundRecords:
        self.calls.append(f"scan {len(starts)}" if None in starts.values() else "scan on")
        found: list[tuple[TopicPartition, KeyedRecord]] = []
        unended: list[tuple[TopicPartition, KeyedRecord]] = []
        for place, start in starts.items():
            for at, (_, key, value) in enumerate(self.logs.get(place, [])):
                if key is None or at < (start or 0) or not is_wanted(key, 0):
                    continue
                record = KeyedRecord(at, key, value)
                if (place, at) in self.unended:
                    unended.append((place, record))
                else:
                    found.append((place, record))
        return FoundRecords(tuple(found), tuple(unended), {each: len(self.logs.get(each, [])) for each in starts})

    def begins_with(self, topic_partition: TopicPartition, key: bytes) -> bool:
        return any(found == key for _, found, _ in self.logs.get(topic_partition, [])[:1])

    def all_records(self, topic: str, *, waits: bool = True) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        for tp, log in self.logs.items():
            for at, (_, key, value) in enumerate(log):
                if tp.topic == topic:
                    yield tp, KeyedRecord(at, key, value)

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def known_counts(self, topics: Collection[str], micro_batch: Hashable) -> Mapping[str, int]:
        self.calls.append(f"topics {len(topics)}")
        return self.partition_counts(topics)

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.partition_count(topic) for topic in topics}

    def replaced_topics(
        self, written: Mapping[str, Collection[UUID]], transactional_ids: Collection[str]
    ) -> Collection[str]:
        return [name for name, ids in written.items() if set(ids) != {self.topic_ids.get(name)}]

    def lost_ranges(self, written: Sequence[PreparedTransaction]) -> Sequence[LostRange]:
        return [LostRange(t, each) for t in written for each in t.ranges if each.place in self.emptied]

    def leaderless_partitions(self, topics: Collection[str], max_age_ms: int = 1_000) -> Mapping[str, Collection[int]]:
        return dict.fromkeys(topics, self.leaderless)

    def leader_epochs(self, topics: Collection[str], since: float) -> Mapping[TopicPartition, int]:
        return {TopicPartition(topic, each): 0 for topic in topics for each in range(self.partitions)}

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        return wanted_bytes

    def start_decision(self, write: DecisionWrite) -> Appended:
        # Under the old protocol the partition is added before the records are sent.
        found = self._fenced(write)
        if found.code is ErrorCode.NONE:
            self.ids[write.transaction.transactional_id].state = S.ONGOING
        return found if write.transaction.transaction_version < 2 else Appended()

    def _fenced(self, write: DecisionWrite) -> Appended:
        known = self.ids.get(write.transaction.transactional_id)
        if known is None or known.identity.producer_id != write.transaction.producer.producer_id:
            return Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return Appended(ErrorCode.NONE if known.identity == write.transaction.producer else ErrorCode.PRODUCER_FENCED)

    def append_decision(self, write: DecisionWrite) -> Appended:
        found = self._fenced(write)
        if found.code is not ErrorCode.NONE:
            return found
        # A coordinator that is cut off accepts no offset commit, so the client has found the current one by now.
        self.past_offsets.pop(write.group_id, None)
        return Appended(offsets=tuple(self.groups.get(write.group_id, {}).values()))

    def end_decision(self, write: DecisionWrite, commit: bool) -> EndAnswer:
        if not commit:
            return self._end(write.transaction, False)
        return self.write_decision(write)

    def write_decision(self, write: DecisionWrite) -> EndAnswer:
        """Make a decision visible at the end of its transaction; tests act before and after this."""
        self.calls.append("decide")
        known = self.ids[write.transaction.transactional_id]
        if known.identity == write.transaction.producer and known.state is S.ONGOING:
            log = self.logs.setdefault(write.topic_partition, [])
            if write.metadata is not None:
                place = CommittedOffset(write.topic_partition, len(log), write.metadata)
                self.groups.setdefault(write.group_id, {})[write.topic_partition] = place
            log += [(write.transaction.producer, key, value) for key, value in write.records]
        answer = self._end(write.transaction, True)
        return EndAnswer(None) if write.transaction.transactional_id in self.lose_answer_of else answer

    # Actions of tests

    def prepare(
        self, transactional_id: str, split: int = 0, topic: str = "t", version: int | None = None, records: int = 1
    ) -> PreparedTransaction:
        """Act as a task: initialize the id if necessary, write to one partition, leave the transaction open."""
        if transactional_id not in self.ids:
            self.init_producer_id(transactional_id, 60_000)
        each = self.ids[transactional_id]
        place = TopicPartition(topic, split)
        log = self.logs.setdefault(place, [])
        first = len(log)
        log += [(each.identity, None, b"")] * records
        each.state, each.started_at_ms = S.ONGOING, self.now_ms
        each.partitions = [place]
        return PreparedTransaction(
            split,
            OpenTransaction(transactional_id, each.identity, self.version if version is None else version),
            each.timeout_ms,
            self.now_ms,
            (WrittenRange(topic, split, first, len(log) - 1, records),),
            (TopicRows(topic, records, 0),),
        )

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock."""
        self.now_ms += duration_ms

    def time_out(self, transactional_id: str) -> None:
        """Time out as the coordinator does: abort and raise the producer epoch."""
        each = self.ids[transactional_id]
        self._mark(each, False)
        each.identity = ProducerIdentity(each.identity.producer_id, each.identity.producer_epoch + 1)
        each.state = S.COMPLETE_ABORT

    # Internals

    def _end(self, opened: OpenTransaction, commit: bool) -> EndAnswer:
        self.calls.append(f"end {opened.transactional_id} {'commit' if commit else 'abort'}")
        each = self.ids.get(opened.transactional_id)
        if each is None or each.identity.producer_id != opened.producer.producer_id:
            return EndAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        v2 = opened.transaction_version >= 2
        done = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
        distance = each.identity.producer_epoch - opened.producer.producer_epoch
        if each.state is S.ONGOING and distance == 0:
            self._mark(each, commit)
            each.state = done
            if v2:
                each.identity = ProducerIdentity(each.identity.producer_id, each.identity.producer_epoch + 1)
        elif each.state is not done or distance != int(v2):
            return EndAnswer(ErrorCode.PRODUCER_FENCED if distance not in (0, int(v2)) else ErrorCode.INVALID_TXN_STATE)
        if opened.transactional_id in self.lose_answer_of:
            return EndAnswer(None)
        return EndAnswer(ErrorCode.NONE, each.identity)

    def _mark(self, each: Id, committed: bool) -> None:
        for tp in each.partitions:
            for at, (identity, _, _) in enumerate(self.logs[tp]):
                if identity == each.identity:
                    self.outcomes.setdefault((tp, at), committed)

    def _is_decided(self, tp: TopicPartition, at: int) -> bool:
        return (tp, at) in self.outcomes

    def _new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id
