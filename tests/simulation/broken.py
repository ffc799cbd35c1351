"""Break the broker on purpose, in ways brokers are known to be broken, so that the simulation can show its worth."""

import contextlib
from collections.abc import Callable, Iterator
from unittest.mock import patch

from broker_core.broker.logs import Logs
from broker_core.coordinator.transaction_coordinator import TransactionCoordinator
from broker_core.coordinator.transaction_ending import TransactionEnding
from broker_core.coordinator.transaction_facts import is_exhausted
from broker_core.coordinator.transaction_messages import ProducerIdResult
from broker_core.coordinator.transaction_states import PREPARED, TransactionState
from broker_core.coordinator.transaction_store import TransactionEntry
from broker_core.coordinator.transaction_tables import FENCE, Verdict
from broker_core.errors import ErrorCode
from broker_core.log import producer_state, reading
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.log.producer_rules import BatchCase, judge_batch
from broker_core.log.state import LogState

Break = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def aborted_list_left_out() -> Iterator[None]:
    """Tell readers of no aborted transaction: they take what was aborted for committed."""
    with patch.object(reading, "collect_aborted", _nothing):
        yield


def _nothing(*_: object) -> list[object]:
    return []


@contextlib.contextmanager
def takeover_without_abort() -> Iterator[None]:
    """Let a new owner of an id, or a timeout, end the open transaction without any marker."""

    def abort_ongoing(self: TransactionEnding, entry: TransactionEntry, now_ms: int) -> None:
        image = FENCE.resolve(
            bumps=self._transaction_version() >= 2, exhausted=is_exhausted(entry.image.producer_epoch))
        self._writer.write(entry, Verdict(ErrorCode.NONE, TransactionState.PREPARE_ABORT, image), now_ms)
        _complete_unmarked(self, entry, now_ms)

    with patch.object(TransactionEnding, "abort_ongoing", abort_ongoing):
        yield


@contextlib.contextmanager
def recovery_without_marker() -> Iterator[None]:
    """Let a coordinator that finds a transaction half ended call it ended, without its markers."""

    def resume(self: TransactionEnding, partition: int, now_ms: int) -> None:
        for entry in list(self._store.led()[partition].entries.values()):
            if entry.image.state in PREPARED:
                _complete_unmarked(self, entry, now_ms)

    with patch.object(TransactionEnding, "resume", resume):
        yield


def _complete_unmarked(ending: TransactionEnding, entry: TransactionEntry, now_ms: int) -> None:
    partition = ending._store.partition_for(entry.transactional_id)
    epoch = ending._store.led()[partition].coordinator_epoch
    ending._markers.start(entry.transactional_id, partition, epoch, entry.image, frozenset())
    ending._complete_if_done(ending._markers.progress(entry.transactional_id), now_ms)


@contextlib.contextmanager
def dedupe_window_lost() -> Iterator[None]:
    """Append a repeated batch once more instead of answering with the first one's place."""

    def lenient(case: BatchCase) -> ErrorCode:
        repeats = case.entry.batches and case.base_sequence <= case.entry.last_sequence
        return ErrorCode.NONE if repeats else judge_batch(case)

    with patch.object(ProducerStateEntry, "find_duplicate", lambda *_: None):
        with patch.object(producer_state, "judge_batch", lenient):
            yield


@contextlib.contextmanager
def late_end_applied() -> Iterator[None]:
    """Apply an EndTxn of the epoch before to the transaction that is open now, as the old protocol does (KIP-890)."""
    right = TransactionCoordinator.end_transaction

    def end_transaction(
        self: TransactionCoordinator, transactional_id: str, producer_id: int, producer_epoch: int, **rest: object
    ) -> ProducerIdResult:
        image = self.images().get(transactional_id)
        if image is not None and image.state is TransactionState.ONGOING and image.producer_epoch == producer_epoch + 1:
            producer_epoch = image.producer_epoch
        return right(self, transactional_id, producer_id, producer_epoch, **rest)  # type: ignore[arg-type]

    with patch.object(TransactionCoordinator, "end_transaction", end_transaction):
        yield


@contextlib.contextmanager
def answers_before_syncs() -> Iterator[None]:
    """Answer before what was promised is durable."""

    def sync(self: Logs) -> None:
        self._promised.clear()

    with patch.object(Logs, "sync", sync):
        yield


@contextlib.contextmanager
def last_stable_offset_ignored() -> Iterator[None]:
    """Let a committed reader read on past an open transaction."""
    with patch.object(LogState, "last_stable_offset", property(lambda self: self.high_watermark)):
        yield


# How each broken broker is called, and the first seed from 1 on that catches it.
BROKEN: dict[str, tuple[Break, int]] = {
    "aborted list left out": (aborted_list_left_out, 1),
    "takeover without abort": (takeover_without_abort, 11),
    "recovery without marker": (recovery_without_marker, 2),
    "dedupe window lost": (dedupe_window_lost, 10),
    "late EndTxn applied to the next transaction": (late_end_applied, 111),
    "answers before syncs": (answers_before_syncs, 2),
    "last stable offset ignored": (last_stable_offset_ignored, 2),
}


def first_caught(breakage: Break, seeds: range) -> tuple[int, list[str]] | None:
    """Play seeds on a broken broker until one shows it; return that one and what it showed."""
    # The worlds are played as ever: they do not know what is broken.
    from tests.simulation.world import play

    with breakage():
        for seed in seeds:
            problems = play(seed).problems
            if problems:
                return seed, problems
    return None
