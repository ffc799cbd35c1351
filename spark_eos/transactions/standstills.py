"""The partitions whose last stable offset is below their high watermark, since when, and what is open in them.

A record of an open transaction is never below the last stable offset, so a partition without a lag has no open
transaction, and only the others are searched for their producers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import ELECTION_MS
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace, places_of
from spark_eos.options.positions import LATEST
from spark_eos.transactions.findings import HangingFinding, open_now

Ends: TypeAlias = Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class Standstill:
    """A partition whose last stable offset waits, and the transactions that are open in it, the oldest first.

    `since_ms` is when this last stable offset was first seen, by the clock of the view that looks.
    """

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    since_ms: int
    opened: tuple[HangingFinding, ...] = ()

    @property
    def lag(self) -> int:
        """Return the number of offsets that readers of committed records cannot reach."""
        return self.high_watermark - self.last_stable_offset

    @property
    def oldest(self) -> HangingFinding | None:
        return self.opened[0] if self.opened else None

    def has_known_age(self, now_ms: int) -> bool:
        """Return whether the wait is known; without a coordinator it may be longer than it was seen."""
        return self.oldest is None or self.oldest.age_ms(now_ms) is not None

    def rank(self, now_ms: int) -> tuple[bool, int]:
        """Return what sorts the longest wait first, and before all the waits that may be longer than they were seen."""
        return self.has_known_age(now_ms), self.began_at_ms(now_ms)

    def began_at_ms(self, now_ms: int) -> int:
        """Return since when the partition waits: since its oldest transaction began, or since the wait was seen."""
        began_ms = None if self.oldest is None else self.oldest.began_at_ms(now_ms)
        return self.since_ms if began_ms is None else began_ms


class Standstills:
    """The partitions that wait; the wait of one whose last stable offset moves begins again."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, Standstill] = {}
        # Those of partitions that the last look had no answer about.
        self._hidden: dict[TopicPartition, Standstill] = {}

    def note(self, stable: Ends, high: Ends, looked_at: Iterable[TopicPartition], now_ms: int) -> None:
        """Replace what is known of the partitions that were looked at."""
        for place in looked_at:
            last, end = stable.get(place), high.get(place)
            before = self.known.pop(place, None) or self._hidden.pop(place, None)
            if (last is None or end is None) and before is not None:
                self._hidden[place] = before
            elif last is not None and end is not None and last < end:
                is_same = before is not None and before.last_stable_offset == last
                self.known[place] = Standstill(place, last, end, before.since_ms if before and is_same else now_ms)

    def keep_only(self, existing: Iterable[TopicPartition]) -> None:
        kept = set(existing)
        for waiting in (self.known, self._hidden):
            for place in waiting.keys() - kept:
                del waiting[place]

    def with_open(self, findings: Iterable[HangingFinding]) -> dict[TopicPartition, Standstill]:
        """Return all of them, each with the transactions that are open in it."""
        opened: dict[TopicPartition, list[HangingFinding]] = {}
        for each in findings:
            opened.setdefault(each.transaction.topic_partition, []).append(each)
        return {place: replace(each, opened=open_now(opened.get(place, ()))) for place, each in self.known.items()}


def partition_places(client: KafkaClient) -> tuple[dict[TopicPartition, PartitionPlace], int]:
    """Return all partitions, the internal ones included, and the number of topics."""
    topics = client.metadata(None)
    return places_of(topics.values()), len(topics)


def ends(
    client: KafkaClient, places: Mapping[TopicPartition, PartitionPlace], wanted: Iterable[TopicPartition]
) -> tuple[Ends, Ends]:
    """Return the last stable offsets and the high watermarks, with two requests to each leader.

    The high watermark is requested first: so a last stable offset below it is blocked, and not only read earlier. A
    partition without a leader is left out, as looking it up would wait for an election; so is one whose leader does
    not respond within 10 seconds.
    """
    led = [place for place in wanted if place in places and places[place].leader_id >= 0]
    if not led:
        return {}, {}
    lookup, patience_ms = OffsetLookup(client, places), min(ELECTION_MS, client.options.api_timeout_ms)
    high = lookup.offsets(dict.fromkeys(led, LATEST), IsolationLevel.READ_UNCOMMITTED, patience_ms)
    stable = lookup.offsets(dict.fromkeys(high, LATEST), IsolationLevel.READ_COMMITTED, patience_ms)
    return stable, high
