"""What `watch` shows: the partitions whose last stable offset lags, and the transactions that are open in them."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from broker_core.types import TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import existing_topics
from spark_eos.client.offset_lookup import places_of
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT, ProducerScan, unreadable_text
from spark_eos.errors import AuthorizationError, EosKafkaError, UnsupportedError
from spark_eos.readable import age_text
from spark_eos.runtime import now_ms
from spark_eos.transactions.findings import HangingFinding, HangingVerdict, unknown_finding
from spark_eos.transactions.judge import judge, open_transactions
from spark_eos.transactions.standstills import Standstill, Standstills, ends, partition_places


class Order(StrEnum):
    """What the partitions are sorted by; the first needs attention most."""

    AGE = "age"
    LAG = "lag"
    NAME = "name"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """What was found at one time; `trouble` is what could not be found, and why."""

    taken_at_ms: int
    partition_count: int = 0
    lagging: tuple[Standstill, ...] = ()
    trouble: str = ""

    def ordered(self, order: Order) -> list[Standstill]:

        def key(each: Standstill) -> tuple[object, ...]:
            age, hangs = each.rank(self.taken_at_ms), any(opened.hangs for opened in each.opened)
            ranks = {Order.AGE: (age,), Order.LAG: (-each.lag,), Order.NAME: (), Order.VERDICT: (not hangs, age)}
            return *ranks[order], each.topic_partition

        return sorted(self.lagging, key=key)

    def counts(self) -> str:
        """Count the open transactions; one that is open in several partitions counts in each."""
        opened = [opened for each in self.lagging for opened in each.opened]
        return f"{counted(len(opened), 'open transaction')}, {sum(each.hangs for each in opened)} hanging"


@dataclass(slots=True)
class Watcher:
    """Looks at the partitions of some topics, or of all."""

    client: KafkaClient
    topics: Collection[str] | None = None
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    _last: WatchSnapshot = field(default_factory=lambda: WatchSnapshot(0))
    _standstills: Standstills = field(default_factory=Standstills)

    @property
    def has_looked(self) -> bool:
        return self._last.taken_at_ms != 0

    def look(self) -> WatchSnapshot:
        """Return what is found now; if brokers do not respond, what was found last, with the trouble."""
        try:
            self._last = self._look()
        except EosKafkaError as error:
            if not self.has_looked:
                # A topic that does not exist is a mistake in the command.
                raise
            self._last = replace(self._last, trouble=str(error))
        return self._last

    def _look(self) -> WatchSnapshot:
        if self.topics is None:
            places = partition_places(self.client)[0]
        else:
            # One that is deleted later, or hidden, must not stop the look at the others.
            if self.has_looked:
                described = existing_topics(self.client, self.topics)
            else:
                described = self.client.require_topics(self.topics, need_leaders=False)
            places = places_of(described.values())
        stable, high = ends(self.client, places, places)
        at_ms = now_ms(self.client.runtime.clock)
        self._standstills.keep_only(places)
        # One without an answer has no offsets to show, and describing its producers waits for an election.
        self._standstills.note(stable, high, places, at_ms)
        findings, troubles = self._findings(self._standstills.known)
        if missing := len(places) - len(high):
            troubles.append(f"Partitions without a leader, or whose leader does not respond: {missing}")
        gone = sorted(set(self.topics or ()) - {place.topic for place in places})
        if gone:
            troubles.append(f"Deleted, or hidden from this principal: {', '.join(gone)}")
        lagging = self._standstills.with_open(findings)
        return WatchSnapshot(at_ms, len(places), tuple(lagging.values()), ". ".join(troubles))

    def _findings(self, lagging: Collection[TopicPartition]) -> tuple[list[HangingFinding], list[str]]:
        """Return the open transactions of partitions, judged, and what could not be found."""
        unreadable: dict[TopicPartition, str] = {}
        scan = ProducerScan(self.client, max_in_flight=self.max_in_flight, unreadable=unreadable)
        try:
            opened = open_transactions(scan, lagging)
        except UnsupportedError as error:
            return [], [f"No transactions: {error}".removesuffix(".")]
        troubles = [unreadable_text(unreadable).removesuffix(".")] if unreadable else []
        try:
            findings = judge(self.client, opened, max_in_flight=self.max_in_flight)
        except (AuthorizationError, UnsupportedError) as error:
            # The offsets are worth showing all the same.
            why = f"No verdicts: {error}".removesuffix(".")
            return [unknown_finding(each, str(error)) for each in opened], [*troubles, why]
        hidden = [each.why for each in findings if each.verdict is HangingVerdict.UNKNOWN]
        if hidden:
            troubles.append(f"{counted(len(hidden), 'transaction')} without a verdict: {hidden[0]}")
        return findings, troubles


def waited_text(each: Standstill, now_ms: int) -> str:
    """Return how long a partition has waited; the wait is only a lower bound unless a coordinator has it."""
    return ("" if each.has_known_age(now_ms) else ">") + age_text(now_ms - each.began_at_ms(now_ms))
