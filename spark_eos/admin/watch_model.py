"""What `watch` shows: the partitions whose last stable offset lags, and the transactions that are open in them.

A record of an open transaction is never below the last stable offset, so a partition without a lag has no open
transaction, and only the others are asked for their producers.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter

from broker_core.types import TopicPartition
from spark_eos.admin import lag_scan
from spark_eos.admin.hanging import HangingFinding, HangingVerdict, PartitionTransaction, judge
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT, unreadable_text
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnsupportedError


class Order(StrEnum):
    """What the partitions are sorted by; the first is the one that most needs attention."""

    AGE = "age"
    LAG = "lag"
    NAME = "name"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction of a partition; without a finding, its coordinator could not be queried."""

    transaction: PartitionTransaction
    finding: HangingFinding | None = None

    @property
    def verdict(self) -> str:
        """Return the verdict in one word."""
        return "unknown" if self.finding is None else self.finding.verdict.value

    @property
    def hangs(self) -> bool:
        """Return whether no coordinator will end it."""
        return self.finding is not None and self.finding.verdict is HangingVerdict.HANGING

    @property
    def transactional_id(self) -> str:
        """Return the transactional id, or an empty text if none is known."""
        owner = None if self.finding is None else self.finding.owner
        return "" if owner is None else owner.description.transactional_id

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long it has been open, as far as is known."""
        return self.transaction.idle_ms(now_ms) if self.finding is None else self.finding.age_ms(now_ms)


@dataclass(frozen=True, slots=True)
class LaggingPartition:
    """A partition whose last stable offset is below its high watermark, with its open transactions, oldest first."""

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    opened: tuple[OpenTransaction, ...] = ()

    @property
    def lag(self) -> int:
        """Return how many offsets are withheld from readers of committed records."""
        return self.high_watermark - self.last_stable_offset

    @property
    def oldest(self) -> OpenTransaction | None:
        """Return the transaction at the last stable offset."""
        return self.opened[0] if self.opened else None

    def age_ms(self, now_ms: int) -> int | None:
        """Return the age of the oldest transaction, None if it is unknown."""
        return 0 if self.oldest is None else self.oldest.age_ms(now_ms)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was found at one time; `trouble` is what could not be found, and why."""

    taken_at_ms: int
    partition_count: int = 0
    lagging: tuple[LaggingPartition, ...] = ()
    trouble: str = ""

    def ordered(self, order: Order) -> list[LaggingPartition]:
        """Sort the partitions."""
        by_name = sorted(self.lagging, key=attrgetter("topic_partition"))
        if order is Order.NAME:
            return by_name
        if order is Order.LAG:
            return sorted(by_name, key=lambda each: -each.lag)
        # One of unknown age may be the oldest.
        ages = {each.topic_partition: each.age_ms(self.taken_at_ms) for each in by_name}
        by_age = sorted(by_name, key=lambda each: -math.inf if (age := ages[each.topic_partition]) is None else -age)
        if order is Order.AGE:
            return by_age
        return sorted(by_age, key=lambda each: not any(opened.hangs for opened in each.opened))

    @property
    def open_count(self) -> int:
        """Count the open transactions; one that is open in several partitions counts in each."""
        return sum(len(each.opened) for each in self.lagging)

    @property
    def hanging_count(self) -> int:
        """Count those that hang."""
        return sum(opened.hangs for each in self.lagging for opened in each.opened)


@dataclass(slots=True)
class Watcher:
    """Looks at the partitions of some topics, or of all."""

    client: KafkaClient
    topics: Collection[str] | None = None
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    clock: Callable[[], float] = time.time
    _last: Snapshot = field(default_factory=lambda: Snapshot(0))

    def look(self) -> Snapshot:
        """Return what is found now; if brokers do not respond, what was found last, with the trouble."""
        try:
            self._last = self._look()
        except TopicError:
            if self._last.taken_at_ms == 0:
                # A topic that does not exist is a mistake in the command.
                raise
            self._last = replace(self._last, trouble="A topic was deleted")
        except EosKafkaError as error:
            if self._last.taken_at_ms == 0:
                raise
            self._last = replace(self._last, trouble=str(error))
        return self._last

    def _look(self) -> Snapshot:
        places = self._places()
        stable, high = lag_scan.ends(self.client, places, places)
        ends = {each: (stable.get(each) or 0, end or 0) for each, end in high.items()}
        lagging = [each for each, (last_stable, end) in ends.items() if last_stable < end]
        opened, troubles = self._opened(lagging)
        missing = sum(place.leader_id < 0 for place in places.values())
        if missing:
            troubles.append(f"Partitions without a leader: {missing}")
        return Snapshot(
            int(self.clock() * 1_000),
            len(places),
            tuple(LaggingPartition(each, *ends[each], opened.get(each, ())) for each in lagging),
            ". ".join(troubles),
        )

    def _places(self) -> dict[TopicPartition, PartitionPlace]:
        if self.topics is None:
            return lag_scan.partition_places(self.client)[0]
        return lag_scan.places_of(self.client.require_topics(self.topics, need_leaders=False).values())

    def _opened(
        self, lagging: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, tuple[OpenTransaction, ...]], list[str]]:
        """Return the open transactions of partitions, judged, and what could not be found."""
        if not lagging:
            return {}, []
        try:
            producers, unreadable = lag_scan.open_producers(self.client, lagging, self.max_in_flight)
        except UnsupportedError as error:
            return {}, [f"No transactions: {error}".removesuffix(".")]
        transactions = [PartitionTransaction(place, each) for place, found in producers.items() for each in found]
        troubles = [unreadable_text(unreadable).removesuffix(".")] if unreadable else []
        findings: dict[PartitionTransaction, HangingFinding] = {}
        if transactions:
            try:
                judged = judge(TransactionAdmin(self.client), transactions, max_in_flight=self.max_in_flight)
                findings = {each.transaction: each for each in judged}
            except (AuthorizationError, UnsupportedError) as error:
                # The offsets are worth showing all the same.
                troubles.append(f"No verdicts: {error}".removesuffix("."))
        opened: dict[TopicPartition, tuple[OpenTransaction, ...]] = {}
        for each in transactions:
            finding = findings.get(each)
            if finding is None or finding.verdict is not HangingVerdict.ENDED:
                place = each.topic_partition
                opened[place] = (*opened.get(place, ()), OpenTransaction(each, finding))
        return opened, troubles


def age_text(age_ms: int | None) -> str:
    """Return a duration in its largest units.

    >>> [age_text(each) for each in (900, 59_999, 61_000, 3_600_000, 90_000_000)]
    ['0 s', '59 s', '1m 01s', '1h 00m', '1d 1h']
    """
    if age_ms is None:
        return "?"
    seconds = age_ms // 1_000
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60:02}m"
    return f"{minutes}m {seconds % 60:02}s" if minutes else f"{seconds} s"
