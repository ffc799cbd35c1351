"""Known bugs of brokers, injected on purpose to show that the simulation finds them."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from broker_core.broker.log_manager import LogManager
from broker_core.broker.marker_writer import MarkerWriter
from broker_core.coordinator.transactions.completion import MarkerProgress, TransactionCompletion
from broker_core.coordinator.transactions.conditions import is_exhausted
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.coordinator.transactions.decision_tables import ENDED, TransitionVerdict
from broker_core.coordinator.transactions.messages import ProducerIdResult
from broker_core.coordinator.transactions.records import PREPARED
from broker_core.coordinator.transactions.store import TransactionEntry
from broker_core.errors import ErrorCode
from broker_core.log import producer_state, reading, write_ahead
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.log.producer_rules import BatchCase, judge_batch
from broker_core.log.state import LogState
from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from broker_core.wire import messages as m
from tests.support.history.anomalies import Kind
from tests.support.history.checker import check

if TYPE_CHECKING:
    from broker_core.coordinator.transactions.messages import MarkerOrder
    from tests.simulation.world import Outcome

Break = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def aborted_list_left_out() -> Iterator[None]:
    """Omit aborted transactions from fetch responses: readers take aborted records for committed ones."""
    with patch.object(reading, "collect_aborted", _nothing):
        yield


def _nothing(*_: object) -> list[object]:
    return []


@contextlib.contextmanager
def takeover_without_abort() -> Iterator[None]:
    """Let a new owner of an id, or a timeout, end the open transaction without any marker."""

    def abort_ongoing(self: TransactionCompletion, entry: TransactionEntry, now_ms: int) -> None:
        image = ENDED.resolve(
            bumps=self._transaction_version() >= 2, exhausted=is_exhausted(entry.image.producer_epoch)
        )
        self._store.write(entry, TransitionVerdict(ErrorCode.NONE, TransactionState.PREPARE_ABORT, image), now_ms)
        _complete_unmarked(self, entry, now_ms)

    with patch.object(TransactionCompletion, "abort_ongoing", abort_ongoing):
        yield


@contextlib.contextmanager
def recovery_without_marker() -> Iterator[None]:
    """Let a coordinator complete the prepared transactions it loads without writing their markers."""

    def resume(self: TransactionCompletion, partition: int, now_ms: int) -> None:
        for entry in list(self._store.led[partition].entries.values()):
            if entry.image.state in PREPARED:
                _complete_unmarked(self, entry, now_ms)

    with patch.object(TransactionCompletion, "resume", resume):
        yield


def _complete_unmarked(ending: TransactionCompletion, entry: TransactionEntry, now_ms: int) -> None:
    name, partition = entry.transactional_id, ending._store.partition_for(entry.transactional_id)
    epoch = ending._store.led[partition].coordinator_epoch
    ending._progress[name] = MarkerProgress(name, partition, epoch, entry.image, frozenset())
    ending._complete_if_done(ending._progress[name], now_ms)


@contextlib.contextmanager
def dedupe_window_lost() -> Iterator[None]:
    """Append a repeated batch again instead of responding with the first one's offset."""

    def lenient(case: BatchCase) -> ErrorCode:
        repeats = case.entry.batches and case.base_sequence <= case.entry.last_sequence
        return ErrorCode.NONE if repeats else judge_batch(case)

    with patch.object(ProducerStateEntry, "find_duplicate", lambda *_: None):
        with patch.object(producer_state, "judge_batch", lenient):
            yield


@contextlib.contextmanager
def late_end_applied() -> Iterator[None]:
    """Let late EndTxns of the old protocol arrive, which end the next transaction by design (KIP-890).

    The broker is unchanged: the protocol has the bug, and all other worlds keep such requests from arriving.
    """
    from tests.simulation import plan

    right = plan.recalled

    def recalled(protocol: int, *, verifies: bool) -> frozenset[int]:
        return right(protocol, verifies=verifies) - {m.EndTxnRequest.API_KEY}

    with patch.object(plan, "recalled", recalled):
        yield


@contextlib.contextmanager
def stale_end_applied() -> Iterator[None]:
    """Apply an EndTxn of the previous epoch to the open transaction, which the new protocol's epochs forbid."""
    right = TransactionCoordinator.end_transaction

    def end_transaction(
        self: TransactionCoordinator, transactional_id: str, producer: ProducerIdentity, **rest: object
    ) -> ProducerIdResult:
        image, stale = self.images().get(transactional_id), producer.producer_epoch
        if image is not None and image.state is TransactionState.ONGOING and image.producer_epoch == stale + 1:
            producer = producer._replace(producer_epoch=image.producer_epoch)
        return right(self, transactional_id, producer, **rest)  # type: ignore[arg-type]

    with patch.object(TransactionCoordinator, "end_transaction", end_transaction):
        yield


@contextlib.contextmanager
def answers_before_syncs() -> Iterator[None]:
    """Respond before the data is durable."""
    with patch.object(LogManager, "_pending", lambda self: []):
        yield


@contextlib.contextmanager
def failed_syncs_ignored() -> Iterator[None]:
    """Respond after a failed sync, and count on the next one to make up for it."""

    def ignoring(name: str) -> contextlib.AbstractContextManager[object]:
        right = getattr(LogManager, name)

        def sync(self: LogManager, *ended: Callable[[], None]) -> bool:
            try:
                return bool(right(self, *ended))
            except OSError:
                return False

        return patch.object(LogManager, name, sync)

    with ignoring("sync"), ignoring("start_sync"), ignoring("finish_sync"):
        with patch.object(write_ahead.WriteAheadStorage, "_check", _nothing):
            yield


@contextlib.contextmanager
def write_ahead_log_not_replayed() -> Iterator[None]:
    """Start after a crash without the writes that only the write-ahead log has made durable."""
    with patch.object(write_ahead, "_entries", _nothing):
        yield


@contextlib.contextmanager
def names_changed_before_a_checkpoint() -> Iterator[None]:
    """Let the write-ahead log keep the writes of files that are cut, renamed or deleted: a replay writes them again."""
    with patch.object(write_ahead.WriteAheadStorage, "checkpoint_of", _nothing):
        yield


@contextlib.contextmanager
def last_stable_offset_ignored() -> Iterator[None]:
    """Let read_committed readers continue past an open transaction."""
    with patch.object(LogState, "last_stable_offset", property(lambda self: self.high_watermark)):
        yield


@contextlib.contextmanager
def marker_twice() -> Iterator[None]:
    """Write each marker of a coordinator twice."""
    right = MarkerWriter._write

    def write(self: MarkerWriter, order: "MarkerOrder", topic_partition: TopicPartition, now_ms: int) -> ErrorCode:
        right(self, order, topic_partition, now_ms)
        return right(self, order, topic_partition, now_ms)

    with patch.object(MarkerWriter, "_write", write):
        yield


@contextlib.contextmanager
def no_marker_for_one_partition() -> Iterator[None]:
    """Omit the marker in the last partition of each transaction with several partitions."""
    right = MarkerWriter._write

    def write(self: MarkerWriter, order: "MarkerOrder", topic_partition: TopicPartition, now_ms: int) -> ErrorCode:
        if len(order.partitions) > 1 and topic_partition == max(order.partitions):
            return ErrorCode.NONE
        return right(self, order, topic_partition, now_ms)

    with patch.object(MarkerWriter, "_write", write):
        yield


@contextlib.contextmanager
def commit_ends_in_abort() -> Iterator[None]:
    """Abort every other producer's transaction instead of committing it, and respond that the producer is fenced."""
    right = TransactionCoordinator.end_transaction

    def end_transaction(
        self: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        now_ms: int,
        **rest: int,
    ) -> ProducerIdResult:
        entry = self.store.find(transactional_id)
        is_met = entry is not None and entry.image.identity == producer and producer.producer_id % 2 == 1
        if commit and is_met and entry.image.state is TransactionState.ONGOING:
            self.completion.abort_ongoing(entry, now_ms)
            return ProducerIdResult(ErrorCode.PRODUCER_FENCED)
        return right(self, transactional_id, producer, commit=commit, now_ms=now_ms, **rest)

    with patch.object(TransactionCoordinator, "end_transaction", end_transaction):
        yield


class Broken(NamedTuple):
    """A bug of the broker and the checks that must detect it.

    `kind` is the anomaly in the clients' history, `line` the problem found in the logs; a bug that the history cannot
    show has a line only. `seed` is the first from 1 on that shows both.
    """

    breakage: Break
    seed: int
    kind: Kind | None = None
    line: str = ""

    def shown_by(self, outcome: "Outcome") -> str | None:
        """Return what in the outcome of a world reveals the bug, if anything does."""
        stories = [
            f"{anomaly.kind}: {anomaly.story}" for anomaly in check(outcome.history.ops) if anomaly.kind is self.kind
        ]
        lines = [problem for problem in outcome.problems if self.line and re.search(self.line, problem)]
        if bool(stories) < (self.kind is not None) or bool(lines) < bool(self.line):
            return None
        return "; ".join([*stories[:1], *lines[:1]])


BROKEN: dict[str, Broken] = {
    "aborted list left out": Broken(aborted_list_left_out, 1, Kind.ABORTED_READ),
    "takeover without abort": Broken(takeover_without_abort, 1, Kind.ABORTED_READ),
    "recovery without marker": Broken(recovery_without_marker, 23, Kind.LOST_WRITE),
    "dedupe window lost": Broken(dedupe_window_lost, 7, Kind.DUPLICATE),
    "late EndTxn applied to the next transaction under the old protocol": Broken(
        late_end_applied, 337, Kind.ABORTED_READ
    ),
    "stale EndTxn applied under the new protocol": Broken(stale_end_applied, 11, Kind.ABORTED_READ),
    # Clients learn the truth, that the transaction was not committed; only the log shows that there was no reason.
    "commit ends in abort": Broken(commit_ends_in_abort, 3, line=r"stopped over .*, which has not timed out"),
    "answers before syncs": Broken(answers_before_syncs, 8, Kind.LOST_WRITE),
    "failed syncs ignored": Broken(failed_syncs_ignored, 181, Kind.LOST_WRITE),
    "write-ahead log not replayed": Broken(write_ahead_log_not_replayed, 37, Kind.LOST_WRITE),
    "names changed before a checkpoint": Broken(
        names_changed_before_a_checkpoint, 38, line=r"transactional id .* was .*, after a restart it is None"
    ),
    "last stable offset ignored": Broken(last_stable_offset_ignored, 9, Kind.ABORTED_READ),
    # No client sees a marker, so a second one hides no record.
    "marker twice": Broken(marker_twice, 1, line=r"a commit marker of producer \d+ at \d+, after the commit marker"),
    "no marker for one partition": Broken(
        no_marker_for_one_partition, 7, Kind.TORN, r"was committed, but no marker follows its record"
    ),
}


def first_caught(broken: Broken, seeds: range) -> tuple[int, str] | None:
    """Run seeds on a broken broker until one reveals the bug; return the seed and what shows it."""
    # The worlds run as usual, without knowledge of the bug.
    from tests.simulation.world import play

    with broken.breakage():
        for seed in seeds:
            shown = broken.shown_by(play(seed))
            if shown is not None:
                return seed, shown
    return None
