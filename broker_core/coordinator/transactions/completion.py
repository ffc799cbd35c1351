"""The completion of prepared transactions: markers, answers and the completion record (rules A.9, A.10, A.13)."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.coordinator.transactions.conditions import is_exhausted
from broker_core.coordinator.transactions.decision_tables import COMPLETE, FENCE, TransitionVerdict
from broker_core.coordinator.transactions.errors import MarkerAction, completion_action
from broker_core.coordinator.transactions.marker_queue import (
    RETRY_BACKOFF_MS,
    MarkerBacklog,
    MarkerProgress,
    MarkerQueue,
)
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.coordinator.transactions.states import PREPARED, is_legal
from broker_core.coordinator.transactions.store import TransactionEntry, TransactionStore, TransactionWriter
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import TopicPartition, TransactionState

logger = logging.getLogger(__name__)


class TransactionCompletion:
    """The completion of prepared transactions, and the aborts that the broker decides itself."""

    def __init__(
        self,
        store: TransactionStore,
        writer: TransactionWriter,
        transaction_version: Callable[[], int],
        partition_exists: Callable[[TopicPartition], bool],
    ) -> None:
        self._store: Final = store
        self._writer: Final = writer
        self._transaction_version: Final = transaction_version
        self._partition_exists: Final = partition_exists
        self._markers: Final = MarkerQueue()

    def pending(self, transactional_id: str) -> bool:
        """Return whether the id's transaction is being completed, so that every request has to be retried."""
        return self._markers.pending(transactional_id)

    def remaining(self, entry: TransactionEntry) -> frozenset[TopicPartition]:
        """Return the partitions of the id's transaction without a marker."""
        progress = self._markers.progress(entry.transactional_id)
        return entry.image.partitions if progress is None else progress.remaining

    def abort_ongoing(self, entry: TransactionEntry, now_ms: int) -> None:
        """Fence the producer and abort its open transaction (rules A.10); raises as `TransactionWriter.write` does."""
        assert is_legal(entry.image.state, TransactionState.PREPARE_EPOCH_FENCE), entry.image.state
        image = FENCE.resolve(
            bumps=self._transaction_version() >= 2, exhausted=is_exhausted(entry.image.producer_epoch)
        )
        self._writer.write(entry, TransitionVerdict(ErrorCode.NONE, TransactionState.PREPARE_ABORT, image), now_ms)
        self.send_markers(entry, now_ms)

    def send_markers(self, entry: TransactionEntry, now_ms: int) -> None:
        """Queue the markers of a prepared transaction; one without partitions is completed at once."""
        partition = self._store.partition_for(entry.transactional_id)
        self._markers.start(
            entry.transactional_id,
            partition,
            self._store.led()[partition].coordinator_epoch,
            entry.image,
            frozenset(one for one in entry.image.partitions if self._partition_exists(one)),
        )
        self._complete_if_done(self._markers.progress(entry.transactional_id), now_ms)

    def resume(self, partition: int, now_ms: int) -> None:
        """Queue the markers of all prepared transactions of a state partition that was just loaded."""
        for entry in list(self._store.led()[partition].entries.values()):
            if entry.image.state in PREPARED:
                self.send_markers(entry, now_ms)

    def drop_partition(self, partition: int) -> None:
        """Drop the markers of a state partition; late answers to them are ignored."""
        self._markers.drop_partition(partition)

    def take(self) -> list[MarkerOrder]:
        """Return the markers to be written now."""
        return self._markers.take()

    def answered(self, order: MarkerOrder, errors: Mapping[TopicPartition, ErrorCode], now_ms: int) -> None:
        """Handle the answers of all or some partitions of an order."""
        if self._markers.answered(order, errors, now_ms):
            self._complete(order.transactional_id, now_ms)

    def retry_due(self, now_ms: int) -> None:
        """Make due markers ready again and retry due completions; a deleted partition needs no marker."""
        for progress in self._markers.due(now_ms):
            gone = [one for one in progress.due_ms if not self._partition_exists(one)]
            self._markers.release(progress, gone, now_ms)
            self._complete_if_done(progress, now_ms)

    def next_due_ms(self) -> int | None:
        """Return the time when `retry_due` next has work."""
        return self._markers.next_due_ms()

    def backlog(self) -> MarkerBacklog:
        """Return the markers and completions that wait for a retry."""
        return self._markers.backlog()

    def _complete_if_done(self, progress: MarkerProgress | None, now_ms: int) -> None:
        if progress is not None and progress.complete:
            self._complete(progress.transactional_id, now_ms)

    def _complete(self, transactional_id: str, now_ms: int) -> None:
        """Record that every marker is written (rules A.9, A.13 completion); a refused record is retried or dropped."""
        entry, progress = self._store.find(transactional_id), self._markers.progress(transactional_id)
        assert entry is not None, f"{transactional_id} was forgotten with its markers out"
        assert progress is not None, f"{transactional_id} completes without being pending"
        verdict = COMPLETE.resolve(state=entry.image.state, rotates=entry.image.rotates)
        try:
            self._writer.write(entry, verdict, now_ms)
        except KafkaError as error:
            if completion_action(error.code) is MarkerAction.RETRY:
                progress.completion_due_ms = now_ms + RETRY_BACKOFF_MS
                return
            logger.warning(
                "transaction of %s has all its markers and stays %s: the record that completes it was refused with"
                " %s; the next load of its state partition completes it",
                transactional_id,
                entry.image.state.label,
                error,
            )
        self._markers.finish(transactional_id)
