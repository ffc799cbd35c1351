"""The decisions of all queries, read incrementally: a decision topic that has not grown costs no request."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Self
from uuid import UUID

from broker_core.records.batch import read_records
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.aborted_filter import visible_in
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.options.positions import EARLIEST
from spark_eos.options.source import FetchLimits
from spark_eos.sink.decision import Decision, Part, UnreadableDecisionError, join_parts, read_part
from spark_eos.sink.naming import decision_name, is_audit_key, is_head_key

MOST_KEPT: Final = 100
MOST_QUERIES: Final = 500
MOST_ENDS: Final = 4
# A decision with thousands of transactions is large; the page draws the newest ones.
_LIMITS: Final = FetchLimits(4 << 20, 4 << 20, max_wait_ms=100, poll_timeout_ms=10_000)


class WrittenEnd(NamedTuple):
    """The last record of one transaction in one partition; its marker comes after it."""

    topic_partition: TopicPartition
    producer_id: int
    last_offset: int


class MicroBatch(NamedTuple):
    """What a decision says about one attempt at a micro-batch; the decision is kept without its transactions."""

    decision: Decision
    started_at_ms: int | None
    transaction_count: int
    record_count: int
    ends: tuple[WrittenEnd, ...]

    @classmethod
    def of(cls, decision: Decision) -> Self:
        """Summarize a decision; of the ends a few are kept, spread over its transactions."""
        written = [
            WrittenEnd(TopicPartition(each.topic, each.partition), transaction.producer.producer_id, each.last_offset)
            for transaction in decision.transactions
            for each in transaction.ranges[:1]
        ]
        step = max(1, -(-len(written) // MOST_ENDS))
        started_at_ms = min((each.started_at_ms for each in decision.transactions), default=None)
        summary, count = replace(decision, transactions=()), len(decision.transactions)
        return cls(summary, started_at_ms, count, decision.record_count, tuple(written[::step]))


class QueryState(NamedTuple):
    """The decisions of one query: the newest one whole, and a summary of those before it, the oldest first.

    `problem` is why the newest one cannot be read.
    """

    prefix: str
    query: str
    newest: Decision | None = None
    micro_batches: tuple[MicroBatch, ...] = ()
    problem: str = ""

    def with_decision(self, decision: Decision) -> Self:
        """Add a decision, or a later revision of one."""
        known = {(each.decision.micro_batch, each.decision.attempt): each for each in self.micro_batches}
        name = decision.micro_batch, decision.attempt
        if name in known and known[name].decision.revision > decision.revision:
            return self
        known[name] = MicroBatch.of(decision)
        whole = self._replace(micro_batches=tuple(known[each] for each in sorted(known)[-MOST_KEPT:]))
        if self.newest is None or decision.rank >= self.newest.rank:
            return whole._replace(newest=decision, problem="")
        return whole


class DecisionTail:
    """A reader of one decision topic that goes on where it ended."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.queries: dict[tuple[str, str], QueryState] = {}
        self._topic_ids: set[UUID | None] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._parts: dict[tuple[TopicPartition, tuple[str, str], int], Part] = {}

    def read(
        self,
        client: KafkaClient,
        places: Mapping[TopicPartition, PartitionPlace],
        stable: Mapping[TopicPartition, int | None],
    ) -> None:
        mine = {
            place: end
            for place, end in stable.items()
            if place.topic == self.topic and end is not None and place in places
        }
        topic_ids = {places[place].topic_id for place in mine} or self._topic_ids
        is_other = bool(self._topic_ids) and topic_ids != self._topic_ids
        self._topic_ids = topic_ids
        if is_other or any(self._positions.get(place, 0) > end for place, end in mine.items()):
            # Another topic under the same name, which has none of these decisions, or a leader that has lost some.
            self.queries, self._positions, self._parts = {}, {}, {}
        new = [place for place in mine if place not in self._positions]
        if new:
            starts = OffsetLookup(client, dict(places)).offsets(
                dict.fromkeys(new, EARLIEST), IsolationLevel.READ_UNCOMMITTED
            )
            self._positions |= {place: starts.get(place) or 0 for place in new}
        for place, end in mine.items():
            if self._positions[place] < end:
                self._read_one(client, place, places[place], end)

    def _read_one(self, client: KafkaClient, topic_partition: TopicPartition, place: PartitionPlace, end: int) -> None:
        fetch = RangeFetch(client, topic_partition, place, IsolationLevel.READ_COMMITTED, _LIMITS)
        try:
            for chunk in fetch.chunks(self._positions[topic_partition], end):
                for position, header in visible_in(chunk):
                    for record in read_records(chunk.data, position, header):
                        if record.key is not None:
                            self._take(topic_partition, record.offset, record.key, record.value)
                self._positions[topic_partition] = chunk.next_position
        except OffsetsGoneError:
            # Deleted records, or another topic under the same name: begin where the log begins now.
            del self._positions[topic_partition]

    def _take(self, topic_partition: TopicPartition, offset: int, key: bytes, value: bytes | None) -> None:
        if is_audit_key(key) or b"/" not in key:
            return
        name = decision_name(key)
        if value is None:
            if is_head_key(key):
                self.queries.pop(name, None)
            return
        if name not in self.queries:
            while len(self.queries) >= MOST_QUERIES:
                del self.queries[next(iter(self.queries))]
            self.queries[name] = QueryState(*name)
        where = f"{topic_partition}@{offset}"
        try:
            part = read_part(value, where)
            decision = part.decision if part.count == 1 else self._join(topic_partition, name, part, where)
        except UnreadableDecisionError as error:
            self.queries[name] = self.queries[name]._replace(problem=str(error))
            return
        if decision is not None:
            self.queries[name] = self.queries[name].with_decision(decision)

    def _join(self, topic_partition: TopicPartition, query: tuple[str, str], part: Part, where: str) -> Decision | None:
        """Collect the parts of a large decision, which follow one another; return it when all are there."""
        self._parts[topic_partition, query, part.number] = part
        keys = [(topic_partition, query, number) for number in range(part.count)]
        parts = [self._parts[each] for each in keys if each in self._parts]
        name = part.decision.run, part.decision.rank
        if len(parts) < part.count or any((each.decision.run, each.decision.rank) != name for each in parts):
            return None
        for each in keys:
            del self._parts[each]
        return join_parts(parts, where)
