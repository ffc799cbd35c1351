"""The collector: it polls a cluster in cycles, within a budget of requests, and keeps what it has seen.

A cycle looks at the partitions that waited in the one before, and lists the transactions that have not ended. All
partitions are looked at in a full scan, which comes the less often the longer it takes; so does a cycle. While no page
is open, the collector almost pauses.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, TransactionState
from spark_eos.admin.console.budget import RequestBudget
from spark_eos.admin.console.decision_tail import DecisionTail, QueryState
from spark_eos.admin.console.history import SeenState, StateHistory
from spark_eos.admin.console.log_views import WaitingGroup, waiting_groups
from spark_eos.client.inspection import (
    TransactionDescription,
    TransactionListing,
    describe_transactions,
    list_by_broker,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.client.producer_scan import ProducerScan, unreadable_text
from spark_eos.errors import EosKafkaError
from spark_eos.transactions.findings import (
    NOT_JUDGED,
    HangingFinding,
    Owner,
    PartitionTransaction,
    live_finding,
    open_now,
    unknown_finding,
)
from spark_eos.transactions.judge import judge, open_transactions
from spark_eos.transactions.standstills import Ends, Standstill, Standstills, ends, partition_places

logger: Final = logging.getLogger(__name__)
CYCLE_SECONDS: Final = 2.0
_METADATA_SECONDS: Final = 30.0
_LISTING_SECONDS: Final = 60.0
_UNWATCHED_SECONDS: Final = 60.0
_UNWATCHED_CYCLE_SECONDS: Final = 30.0
# After a cycle, and after a scan of everything, so many times as long as it took nothing is sent, within limits.
_REST, _LONGEST_REST_SECONDS = 2, 10.0
_SCAN_REST, _LONGEST_SCAN_REST_SECONDS = 10, 30.0
# To each broker: the console must not keep it busy.
_IN_FLIGHT: Final = 1
_MOST_DESCRIBED: Final = 2_000
_MOST_LEFT: Final = 500
_MOST_SUSPECTS: Final = 200
_MOST_WAITING_PARTITIONS: Final = 1_000
_MOST_GROUP_PARTITIONS: Final = 10
_DESCRIBED_AGAIN_SECONDS: Final = 10.0
_JUDGED_AGAIN_SECONDS: Final = 30.0
SUSPECT_SECONDS: Final = 5.0
# The states of a transaction that has not ended. Brokers refuse a filter with a state that they do not know.
_ACTIVE_STATES: Final = tuple(
    each.label for each in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the collector knows at one time; other threads read it."""

    at_ms: int = 0
    cycle: int = 0
    cycle_seconds: float = 0.0
    scanned_at_ms: int | None = None
    scan_seconds: float = 0.0
    broker_count: int = 0
    topic_count: int = 0
    places: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    standstills: Mapping[TopicPartition, Standstill] = field(default_factory=dict)
    active: Mapping[str, tuple[int, TransactionListing]] = field(default_factory=dict)
    descriptions: Mapping[str, TransactionDescription] = field(default_factory=dict)
    states: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)
    active_owners: Mapping[int, str] = field(default_factory=dict)
    groups: tuple[WaitingGroup, ...] = ()
    queries: Mapping[tuple[str, str], QueryState] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer, as far as coordinators have listed it."""
        return self.active_owners.get(producer_id) or self.owners.get(producer_id)


class Collector:
    """The poller of one cluster; `cycle` is called by one thread, `snapshot` by any."""

    def __init__(
        self,
        client: KafkaClient,
        budget: RequestBudget,
        decision_topic: str,
        *,
        suspect_seconds: float = SUSPECT_SECONDS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        self.history = StateHistory()
        self.snapshot = Snapshot()
        self._client = client
        self._tail = DecisionTail(decision_topic)
        self._suspect_ms = int(suspect_seconds * 1000)
        self._clock, self._monotonic = clock, monotonic
        self._standstills = Standstills()
        self._places: dict[TopicPartition, PartitionPlace] = {}
        self._topic_count = self._broker_count = 0
        self._stable: Ends = {}
        self._opened: list[PartitionTransaction] = []
        self._active: dict[str, tuple[int, TransactionListing]] = {}
        self._descriptions: dict[str, TransactionDescription] = {}
        self._described_at: dict[str, float] = {}
        self._states: Counter[str] = Counter()
        self._owners: dict[int, str] = {}
        self._findings: dict[PartitionTransaction, HangingFinding] = {}
        self._judged: dict[PartitionTransaction, tuple[float, HangingFinding]] = {}
        self._groups: tuple[WaitingGroup, ...] = ()
        self._problems: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._scanned_at_ms: int | None = None
        self._scan_seconds = 0.0
        self._watched_at = monotonic()
        self._wake = threading.Event()
        self._stopping = False

    # The thread.

    def watch(self) -> None:
        """Note that a page is open."""
        was_unwatched = self._monotonic() - self._watched_at > _UNWATCHED_SECONDS
        self._watched_at = self._monotonic()
        if was_unwatched:
            self._wake.set()

    def look_again(self) -> None:
        """Begin the next cycle at once, with a full scan and new verdicts: something was changed."""
        self._due.clear()
        self._judged = {}
        self._wake.set()

    def stop(self) -> None:
        """End `run` after the cycle that runs."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Poll until `stop`."""
        while not self._stopping:
            began = self._monotonic()
            try:
                self.cycle()
            except Exception as error:
                # A page that stays without a reason would look as if all were well.
                logger.exception("the console could not look at the cluster")
                self.snapshot = replace(self.snapshot, problems={**self._problems, "console": repr(error)})
            took = self._monotonic() - began
            is_watched = self._monotonic() - self._watched_at <= _UNWATCHED_SECONDS
            rest = min(took * _REST, _LONGEST_REST_SECONDS)
            self._wake.wait(max(CYCLE_SECONDS if is_watched else _UNWATCHED_CYCLE_SECONDS, rest))
            self._wake.clear()

    # One cycle.

    def cycle(self) -> None:
        """Look once, and replace the snapshot; a part that fails keeps what it knew and adds a problem."""
        began = self._monotonic()
        self._part("metadata", self._refresh_metadata, _METADATA_SECONDS, _SCAN_REST)
        if not self._places and "metadata" in self._problems:
            # Nothing else can succeed; the page shows why.
            self._publish(self._monotonic() - began)
            return
        self._part("partitions", self._scan_partitions)
        self._part("decisions", self._read_decisions)
        self._part("open transactions", self._describe_partitions)
        self._part("transactional ids", self._list_active)
        self._part("coordinators", self._describe_active)
        self._part("verdicts", self._judge)
        self._part("groups", self._find_groups)
        self._publish(self._monotonic() - began)
        # After the first picture: with many ids this takes longest.
        if self._part("all transactional ids", self._count_states, _LISTING_SECONDS, _SCAN_REST):
            self._publish(self._monotonic() - began)

    def _part(self, name: str, do: Callable[[], None], every_seconds: float = 0.0, rest: float = 0.0) -> bool:
        """Do one part of a cycle if it is due; return whether it was."""
        began = self._monotonic()
        if self._due.get(name, 0.0) > began:
            return False
        try:
            do()
        except EosKafkaError as error:
            logger.info("%s: %s", name, error)
            self._problems[name] = str(error)
            # What failed may be a leader that has moved.
            self._due.pop("metadata", None)
        else:
            self._problems.pop(name, None)
            if every_seconds:
                took = self._monotonic() - began
                self._due[name] = began + took + max(every_seconds, took * rest)
        return True

    def _refresh_metadata(self) -> None:
        self._places, self._topic_count = partition_places(self._client)
        self._broker_count = len(self._client.brokers())
        self._standstills.keep_only(self._places)

    def _scan_partitions(self) -> None:
        began = self._monotonic()
        is_full = self._due.get("full scan", 0.0) <= began
        wanted = list(self._places)
        if not is_full:
            waiting = self._standstills.known
            wanted = [each for each in wanted if each in waiting or each.topic == self._tail.topic]
        stable, high = ends(self._client, self._places, wanted)
        self._stable = stable
        self._standstills.note(stable, high, wanted, self._now_ms())
        if is_full:
            self._scan_seconds = self._monotonic() - began
            self._scanned_at_ms = self._now_ms()
            self._due["full scan"] = self._monotonic() + min(
                self._scan_seconds * _SCAN_REST, _LONGEST_SCAN_REST_SECONDS
            )

    def _read_decisions(self) -> None:
        self._tail.read(self._client, self._places, self._stable)

    def _describe_partitions(self) -> None:
        waiting = sorted(self._standstills.known.values(), key=lambda each: each.since_ms)[:_MOST_WAITING_PARTITIONS]
        led = [each.topic_partition for each in waiting if self._is_led(each.topic_partition)]
        failed: dict[TopicPartition, str] = {}
        scan = ProducerScan(self._client, max_in_flight=_IN_FLIGHT, unreadable=failed)
        self._opened = open_transactions(scan, led)
        if failed:
            self._problems["producers"] = unreadable_text(failed)
        else:
            self._problems.pop("producers", None)

    def _is_led(self, place: TopicPartition) -> bool:
        known = self._places.get(place)
        return known is not None and known.leader_id >= 0

    def _list_active(self) -> None:
        before, self._active = self._active, _active_listing(self._client)
        at_ms = self._now_ms()
        for name, (_, each) in self._active.items():
            self.history.note(name, SeenState(at_ms, each.state, each.producer_id, None))
        left = [name for name in before if name not in self._active]
        for name in left:
            self._descriptions.pop(name, None)
            self._described_at.pop(name, None)
        for name, found in self._describe(left[:_MOST_LEFT]).items():
            if found.exists:
                self._note(name, found)

    def _describe_active(self) -> None:
        """Describe ids that are new or have changed their state, then ids that were described longest ago."""
        now = self._monotonic()

        def age(name: str) -> float:
            known = self._descriptions.get(name)
            is_new = known is None or known.state != self._active[name][1].state
            return float("inf") if is_new else now - self._described_at[name]

        due = [name for name in self._active if age(name) > _DESCRIBED_AGAIN_SECONDS]
        wanted = sorted(due, key=age, reverse=True)[:_MOST_DESCRIBED]
        for name, each in self._describe(wanted).items():
            if each.exists:
                self._descriptions[name] = each
                self._described_at[name] = now
                self._note(name, each)

    def _describe(self, names: list[str]) -> dict[str, TransactionDescription]:
        return describe_transactions(self._client, names) if names else {}

    def _note(self, name: str, each: TransactionDescription) -> None:
        seen = SeenState(self._now_ms(), each.state, each.producer_id, each.producer_epoch, len(each.topic_partitions))
        self.history.note(name, seen)

    def _judge(self) -> None:
        """Judge the open transactions that no description covers, once they were seen for longer than a race takes."""
        now, now_ms = self._monotonic(), self._now_ms()
        owners = {
            each.producer_id: (Owner(self._active[name][0], each),)
            for name, each in self._descriptions.items()
            if name in self._active
        }
        before = {each.name: judged for each, judged in self._judged.items()}
        self._findings, self._judged, suspects = {}, {}, []
        for each in self._opened:
            live = live_finding(each, owners.get(each.producer.producer_id, ()))
            if live is not None:
                self._findings[each] = live
                continue
            judged = before.get(each.name)
            self._findings[each] = unknown_finding(each, NOT_JUDGED) if judged is None else judged[1]
            if judged is not None:
                self._judged[each] = judged
            is_due = judged is None or now - judged[0] > _JUDGED_AGAIN_SECONDS
            if is_due and now_ms - self._since_ms(each, now_ms) >= self._suspect_ms:
                suspects.append(each)
        if suspects:
            for finding in judge(self._client, suspects[:_MOST_SUSPECTS]):
                self._findings[finding.transaction] = finding
                self._judged[finding.transaction] = now, finding

    def _since_ms(self, each: PartitionTransaction, now_ms: int) -> int:
        standstill = self._standstills.known.get(each.topic_partition)
        return now_ms if standstill is None else standstill.since_ms

    def _with_open(self) -> dict[TopicPartition, Standstill]:
        """Return the partitions that wait, with what is open in them."""
        opened: dict[TopicPartition, list[HangingFinding]] = {}
        for each in self._opened:
            finding = self._findings.get(each) or unknown_finding(each, NOT_JUDGED)
            opened.setdefault(each.topic_partition, []).append(finding)
        return {
            place: replace(each, opened=open_now(opened.get(place, ())))
            for place, each in self._standstills.known.items()
        }

    def _find_groups(self) -> None:
        waiting = [
            each for place, each in self._with_open().items() if place.topic == CONSUMER_OFFSETS_TOPIC and each.opened
        ]
        self._groups = tuple(
            group
            for each in waiting[:_MOST_GROUP_PARTITIONS]
            for group in waiting_groups(self._client, each, self._places[each.topic_partition])
        )

    def _count_states(self) -> None:
        listed = list_by_broker(self._client)
        self._states = Counter(each.state for listings in listed.values() for each in listings)
        self._owners = {each.producer_id: each.transactional_id for listings in listed.values() for each in listings}

    def _publish(self, took: float) -> None:
        self.snapshot = Snapshot(
            at_ms=self._now_ms(),
            cycle=self.snapshot.cycle + 1,
            cycle_seconds=took,
            scanned_at_ms=self._scanned_at_ms,
            scan_seconds=self._scan_seconds,
            broker_count=self._broker_count,
            topic_count=self._topic_count,
            places=self._places,
            standstills=self._with_open(),
            active=self._active,
            descriptions=dict(self._descriptions),
            states=dict(self._states),
            owners=self._owners,
            active_owners={each.producer_id: name for name, (_, each) in self._active.items()},
            groups=self._groups,
            queries=self._tail.states(),
            problems=dict(self._problems),
        )

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _active_listing(client: KafkaClient) -> dict[str, tuple[int, TransactionListing]]:
    """Return the ids with a transaction that has not ended, each with its coordinator."""
    return {
        each.transactional_id: (node, each)
        for node, listings in list_by_broker(client, states=_ACTIVE_STATES).items()
        for each in listings
        if each.state in _ACTIVE_STATES
    }
