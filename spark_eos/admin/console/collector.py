"""The collector: it polls a cluster in cycles, within a budget of requests, and keeps what it has seen.

A cycle looks at the partitions that waited in the one before, and lists the transactions that have not ended. All
partitions are looked at in a full scan, which comes the less often the longer it takes; so does a cycle. While no page
is open, the collector almost pauses.
"""

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, TransactionState, counted
from spark_eos.admin.console.decision_tail import DecisionTail, QueryState
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
from spark_eos.errors import EosKafkaError, UnansweredError
from spark_eos.runtime import now_ms
from spark_eos.transactions.findings import (
    NOT_JUDGED,
    HangingFinding,
    Owner,
    PartitionTransaction,
    live_finding,
    unknown_finding,
)
from spark_eos.transactions.judge import judge, open_transactions
from spark_eos.transactions.standstills import Ends, Standstill, Standstills, ends, partition_places

logger: Final = logging.getLogger(__name__)
CYCLE_SECONDS: Final = 2.0
_UNWATCHED_SECONDS: Final = 60.0
_UNWATCHED_CYCLE_SECONDS: Final = 30.0
# After a cycle, and after a scan of everything, so many times as long as it took nothing is sent, within limits.
_REST, _LONGEST_REST_SECONDS = 2, 10.0
_SCAN_REST, _LONGEST_SCAN_REST_SECONDS = 10, 30.0
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


class SeenState(NamedTuple):
    """A state of a transactional id and the time at which it was first seen."""

    at_ms: int
    state: str
    producer_id: int
    producer_epoch: int | None
    partition_count: int | None = None


class StateHistory:
    """The last states of transactional ids; the ids that have changed least recently are dropped first."""

    def __init__(self, most_ids: int = 20_000, most_states: int = 50) -> None:
        self._most_ids, self._most_states = most_ids, most_states
        self._seen: OrderedDict[str, deque[SeenState]] = OrderedDict()
        # The collector writes while pages read.
        self._lock = threading.Lock()

    def note(self, transactional_id: str, state: SeenState) -> None:
        """Add a state if it differs from the last one; a state without an epoch adds nothing to one that has it."""
        with self._lock:
            states = self._seen.setdefault(transactional_id, deque(maxlen=self._most_states))
            last = states[-1] if states else None
            if last is not None and last.state == state.state:
                if last.producer_id == state.producer_id and state.producer_epoch in (None, last.producer_epoch):
                    return
                if last.producer_epoch is None:
                    # The listing showed it first, without the epoch.
                    state = state._replace(at_ms=states.pop().at_ms)
            states.append(state)
            self._seen.move_to_end(transactional_id)
            while len(self._seen) > self._most_ids:
                self._seen.popitem(last=False)

    def matching(self, beginning: str) -> dict[str, tuple[SeenState, ...]]:
        """Return the states of the ids that begin with a text, the oldest first."""
        with self._lock:
            return {name: tuple(states) for name, states in self._seen.items() if name.startswith(beginning)}


@dataclass(slots=True)
class CollectedState:
    """What the collector knows at one time; other threads read it, so a published one does not change.

    The next one is filled meanwhile. Its `descriptions` and `problems` change in place, so a publication copies them.
    """

    at_ms: int = 0
    cycle: int = 0
    cycle_seconds: float = 0.0
    scanned_at_ms: int | None = None
    scan_seconds: float = 0.0
    broker_count: int = 0
    topic_count: int = 0
    places: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    standstills: Mapping[TopicPartition, Standstill] = field(default_factory=dict)
    # The ids with a transaction that has not ended.
    active: Mapping[str, TransactionListing] = field(default_factory=dict)
    descriptions: dict[str, TransactionDescription] = field(default_factory=dict)
    states: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)
    active_owners: Mapping[int, str] = field(default_factory=dict)
    groups: tuple[WaitingGroup, ...] = ()
    queries: Mapping[tuple[str, str], QueryState] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer, as far as coordinators have listed it."""
        return self.active_owners.get(producer_id) or self.owners.get(producer_id)


class Collector:
    """The poller of one cluster; `cycle` is called by one thread, `snapshot` by any."""

    def __init__(self, client: KafkaClient, decision_topic: str, suspect_seconds: float = SUSPECT_SECONDS) -> None:
        self.history = StateHistory()
        self.snapshot = CollectedState()
        # The next one, as it is filled.
        self._next = CollectedState()
        self._client = client
        self._clock = client.runtime.clock
        self._tail = DecisionTail(decision_topic)
        self._suspect_ms = int(suspect_seconds * 1000)
        self._standstills = Standstills()
        self._stable: Ends = {}
        self._opened: list[PartitionTransaction] = []
        self._described_at: dict[str, float] = {}
        self._findings: dict[PartitionTransaction, HangingFinding] = {}
        self._judged: dict[PartitionTransaction, tuple[float, HangingFinding]] = {}
        self._due: dict[str, float] = {}
        self._watched_at = self._clock.monotonic()
        self._wake = threading.Event()
        self._stopping = False

    # The thread.

    def watch(self) -> None:
        was_unwatched = self._clock.monotonic() - self._watched_at > _UNWATCHED_SECONDS
        self._watched_at = self._clock.monotonic()
        if was_unwatched:
            self._wake.set()

    def look_again(self) -> None:
        """Begin the next cycle at once, with a full scan and new verdicts: something was changed."""
        self._due.clear()
        self._judged = {}
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        while not self._stopping:
            began = self._clock.monotonic()
            try:
                self.cycle()
            except Exception as error:
                # A page that stays without a reason would look as if all were well.
                logger.exception("the console could not look at the cluster")
                self.snapshot = replace(self.snapshot, problems={**self._next.problems, "console": repr(error)})
            took = self._clock.monotonic() - began
            is_watched = self._clock.monotonic() - self._watched_at <= _UNWATCHED_SECONDS
            rest = min(took * _REST, _LONGEST_REST_SECONDS)
            self._wake.wait(max(CYCLE_SECONDS if is_watched else _UNWATCHED_CYCLE_SECONDS, rest))
            self._wake.clear()

    # One cycle.

    def cycle(self) -> None:
        """Look once, and replace the snapshot; a part that fails keeps what it knew and adds a problem."""
        began = self._clock.monotonic()
        self._part("metadata", self._refresh_metadata, every_seconds=30.0)
        if not self._next.places and "metadata" in self._next.problems:
            # Nothing else can succeed; the page shows why.
            self._publish(self._clock.monotonic() - began)
            return
        self._part("partitions", self._scan_partitions)
        self._part("decisions", lambda: self._tail.read(self._client, self._next.places, self._stable))
        self._part("open transactions", self._describe_partitions)
        self._part("transactional ids", self._list_active)
        self._part("coordinators", self._describe_active)
        self._part("verdicts", self._judge)
        self._part("groups", self._find_groups)
        self._publish(self._clock.monotonic() - began)
        # After the first picture: with many ids this takes longest.
        if self._part("all transactional ids", self._count_states, every_seconds=60.0):
            self._publish(self._clock.monotonic() - began)

    def _part(self, name: str, do: Callable[[], None], every_seconds: float = 0.0) -> bool:
        """Do one part of a cycle if it is due; return whether it was. One that takes long comes less often."""
        began = self._clock.monotonic()
        if self._due.get(name, 0.0) > began:
            return False
        try:
            do()
        except EosKafkaError as error:
            logger.info("%s: %s", name, error)
            self._next.problems[name] = str(error)
            # What failed may be a leader that has moved.
            self._due.pop("metadata", None)
        else:
            self._next.problems.pop(name, None)
            if every_seconds:
                took = self._clock.monotonic() - began
                self._due[name] = began + took + max(every_seconds, took * _SCAN_REST)
        return True

    def _refresh_metadata(self) -> None:
        self._next.places, self._next.topic_count = partition_places(self._client)
        self._next.broker_count = len(self._client.brokers())
        self._standstills.keep_only(self._next.places)

    def _scan_partitions(self) -> None:
        began = self._clock.monotonic()
        is_full = self._due.get("full scan", 0.0) <= began
        wanted = list(self._next.places)
        if not is_full:
            waiting = self._standstills.known
            wanted = [each for each in wanted if each in waiting or each.topic == self._tail.topic]
        stable, high = ends(self._client, self._next.places, wanted)
        self._stable = stable
        self._standstills.note(stable, high, wanted, now_ms(self._clock))
        if is_full:
            took = self._next.scan_seconds = self._clock.monotonic() - began
            self._next.scanned_at_ms = now_ms(self._clock)
            self._due["full scan"] = self._clock.monotonic() + min(took * _SCAN_REST, _LONGEST_SCAN_REST_SECONDS)
        if silent := [each for each in wanted if self._next.places[each].leader_id >= 0 and each not in high]:
            raise UnansweredError(f"No leader answers for {counted(len(silent), 'partition')}, {silent[0]} among them")

    def _describe_partitions(self) -> None:
        waiting = sorted(self._standstills.known.values(), key=lambda each: each.since_ms)[:_MOST_WAITING_PARTITIONS]
        places = self._next.places
        led = [place for each in waiting if (place := each.topic_partition) in places and places[place].leader_id >= 0]
        failed: dict[TopicPartition, str] = {}
        scan = ProducerScan(self._client, max_in_flight=1, unreadable=failed)
        self._opened = open_transactions(scan, led)
        if failed:
            self._next.problems["producers"] = unreadable_text(failed)
        else:
            self._next.problems.pop("producers", None)

    def _list_active(self) -> None:
        before, listed = self._next.active, list_by_broker(self._client, states=_ACTIVE_STATES)
        self._next.active = {each.transactional_id: each for each in listed if each.state in _ACTIVE_STATES}
        at_ms = now_ms(self._clock)
        for name, each in self._next.active.items():
            self.history.note(name, SeenState(at_ms, each.state, each.producer_id, None))
        left = [name for name in before if name not in self._next.active]
        for name in left:
            self._next.descriptions.pop(name, None)
            self._described_at.pop(name, None)
        self._describe(left[:_MOST_LEFT])

    def _describe_active(self) -> None:
        """Describe ids that are new or have changed their state, then ids that were described longest ago."""
        now = self._clock.monotonic()

        def age(name: str) -> float:
            known = self._next.descriptions.get(name)
            is_new = known is None or known.state != self._next.active[name].state
            return float("inf") if is_new else now - self._described_at[name]

        due = [name for name in self._next.active if age(name) > _DESCRIBED_AGAIN_SECONDS]
        wanted = sorted(due, key=age, reverse=True)[:_MOST_DESCRIBED]
        found = self._describe(wanted)
        self._next.descriptions |= found
        self._described_at |= dict.fromkeys(found, now)

    def _describe(self, names: list[str]) -> dict[str, TransactionDescription]:
        """Describe ids and note their states; an id that does not exist is left out."""
        described = describe_transactions(self._client, names) if names else {}
        found = {name: each for name, each in described.items() if each.exists}
        at_ms = now_ms(self._clock)
        for name, each in found.items():
            size = len(each.topic_partitions)
            self.history.note(name, SeenState(at_ms, each.state, each.producer_id, each.producer_epoch, size))
        return found

    def _judge(self) -> None:
        """Judge the open transactions that no description covers, once they were seen for longer than a race takes."""
        now, at_ms = self._clock.monotonic(), now_ms(self._clock)
        owners = {
            each.producer_id: (Owner(self._next.active[name].coordinator_id, each),)
            for name, each in self._next.descriptions.items()
            if name in self._next.active
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
            waiting = self._standstills.known.get(each.topic_partition)
            if is_due and at_ms - (at_ms if waiting is None else waiting.since_ms) >= self._suspect_ms:
                suspects.append(each)
        if suspects:
            for finding in judge(self._client, suspects[:_MOST_SUSPECTS]):
                self._findings[finding.transaction] = finding
                self._judged[finding.transaction] = now, finding

    def _with_open(self) -> dict[TopicPartition, Standstill]:
        return self._standstills.with_open(
            self._findings.get(each) or unknown_finding(each, NOT_JUDGED) for each in self._opened
        )

    def _find_groups(self) -> None:
        waiting = [
            each for place, each in self._with_open().items() if place.topic == CONSUMER_OFFSETS_TOPIC and each.opened
        ]
        self._next.groups = tuple(
            group
            for each in waiting[:_MOST_GROUP_PARTITIONS]
            for group in waiting_groups(self._client, each, self._next.places[each.topic_partition])
        )

    def _count_states(self) -> None:
        listed = list_by_broker(self._client)
        self._next.states = Counter(each.state for each in listed)
        self._next.owners = {each.producer_id: each.transactional_id for each in listed}

    def _publish(self, took: float) -> None:
        self.snapshot = replace(
            self._next,
            at_ms=now_ms(self._clock),
            cycle=self.snapshot.cycle + 1,
            cycle_seconds=took,
            standstills=self._with_open(),
            descriptions=dict(self._next.descriptions),
            active_owners={each.producer_id: name for name, each in self._next.active.items()},
            queries=dict(self._tail.queries),
            problems=dict(self._next.problems),
        )
