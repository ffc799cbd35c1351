"""The completion of prepared transactions: markers, answers and the completion record (rules A.9, A.10, A.13).

A transaction that is being completed is *pending*: it is prepared, its markers are being written, and every request
for it has to be retried. It is pending until its completion is recorded, or its coordinator resigns.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from broker_core.coordinator.transactions.conditions import is_exhausted
from broker_core.coordinator.transactions.decision_tables import (
    COMPLETE,
    ENDED,
    MARKER_ACTIONS,
    RETRIED_COMPLETIONS,
    MarkerAction,
    TransitionVerdict,
)
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.coordinator.transactions.records import PREPARED, TransactionImage, is_legal
from broker_core.coordinator.transactions.store import TransactionEntry, TransactionStore
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import TopicPartition, TransactionEnd, TransactionState

logger = logging.getLogger(__name__)
RETRY_BACKOFF_MS: Final = 50


class MarkerBacklog(NamedTuple):
    """The retries that are waiting: the partitions of markers, and the number of completions."""

    markers: tuple[TopicPartition, ...]
    completions: int


class MarkerProgress:
    """The progress of the markers of one transaction."""

    def __init__(
        self,
        transactional_id: str,
        state_partition: int,
        coordinator_epoch: int,
        image: TransactionImage,
        partitions: Collection[TopicPartition],
    ) -> None:
        self.transactional_id: Final = transactional_id
        self.state_partition: Final = state_partition
        self._coordinator_epoch: Final = coordinator_epoch
        self._image: Final = image
        self.ready = set(partitions)
        self.in_flight: dict[TopicPartition, int] = {}
        self.due_ms: dict[TopicPartition, int] = {}
        # Whether no more markers are sent; the transaction stays prepared until its partition is loaded again.
        self.cancelled = False
        self.completion_due_ms: int | None = None

    @property
    def remaining(self) -> frozenset[TopicPartition]:
        """Return the partitions whose marker is not known to be written."""
        return frozenset({*self.ready, *self.in_flight, *self.due_ms})

    @property
    def complete(self) -> bool:
        return not (self.cancelled or self.ready or self.in_flight or self.due_ms)

    @property
    def next_due_ms(self) -> int | None:
        """Return the time of the next retry; None for never."""
        if self.cancelled:
            return None
        if self.completion_due_ms is not None:
            return self.completion_due_ms
        return min(self.due_ms.values(), default=None)

    def take(self, order_id: int) -> MarkerOrder:
        """Return the markers that are ready, in one order."""
        partitions = frozenset(self.ready)
        self.in_flight.update(dict.fromkeys(partitions, order_id))
        self.ready.clear()
        is_commit = self._image.state is TransactionState.PREPARE_COMMIT
        end = TransactionEnd(
            self._image.identity, is_commit, self._coordinator_epoch, self._image.client_transaction_version
        )
        return MarkerOrder(self.transactional_id, self.state_partition, end, partitions, order_id)

    def answer(self, order_id: int, topic_partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        """Handle one partition's answer; an unexpected answer is ignored."""
        if self.in_flight.get(topic_partition) != order_id:
            return
        action = MARKER_ACTIONS.get(error, MarkerAction.ILLEGAL)
        if action is MarkerAction.DONE:
            del self.in_flight[topic_partition]
        elif action is MarkerAction.RETRY:
            del self.in_flight[topic_partition]
            self.due_ms[topic_partition] = now_ms + RETRY_BACKOFF_MS
        else:
            logger.log(
                logging.ERROR if action is MarkerAction.ILLEGAL else logging.WARNING,
                "transaction of %s stays prepared: %s answered its marker with %s; its markers are sent again when"
                " state partition %d is next loaded",
                self.transactional_id,
                topic_partition,
                error.name,
                self.state_partition,
            )
            self.cancelled = True


class TransactionCompletion:
    """The completion of prepared transactions, and the aborts that the broker decides itself."""

    def __init__(
        self,
        store: TransactionStore,
        transaction_version: Callable[[], int],
        partition_exists: Callable[[TopicPartition], bool],
    ) -> None:
        self._store: Final = store
        self._transaction_version: Final = transaction_version
        self._partition_exists: Final = partition_exists
        self._progress: dict[str, MarkerProgress] = {}
        self._ready: dict[str, None] = {}
        self._last_order_id = 0

    def pending(self, transactional_id: str) -> bool:
        """Return whether the id's transaction is being completed, so that every request has to be retried."""
        return transactional_id in self._progress

    def remaining(self, entry: TransactionEntry) -> frozenset[TopicPartition]:
        progress = self._progress.get(entry.transactional_id)
        return entry.image.partitions if progress is None else progress.remaining

    def abort_ongoing(self, entry: TransactionEntry, now_ms: int) -> None:
        """Fence the producer and abort its open transaction (rules A.10); raises as `TransactionStore.write` does."""
        assert is_legal(entry.image.state, TransactionState.PREPARE_EPOCH_FENCE), entry.image.state
        image = ENDED.resolve(
            bumps=self._transaction_version() >= 2, exhausted=is_exhausted(entry.image.producer_epoch)
        )
        self._store.write(entry, TransitionVerdict(ErrorCode.NONE, TransactionState.PREPARE_ABORT, image), now_ms)
        self.send_markers(entry, now_ms)

    def send_markers(self, entry: TransactionEntry, now_ms: int) -> None:
        """Queue the markers of a prepared transaction; one without partitions is completed at once."""
        number = self._store.partition_for(entry.transactional_id)
        partitions = [one for one in entry.image.partitions if self._partition_exists(one)]
        progress = self._progress[entry.transactional_id] = MarkerProgress(
            entry.transactional_id, number, self._store.led[number].coordinator_epoch, entry.image, partitions
        )
        if partitions:
            self._ready[entry.transactional_id] = None
        else:
            self._complete_if_done(progress, now_ms)

    def resume(self, partition: int, now_ms: int) -> None:
        """Queue the markers of all prepared transactions of a state partition that was just loaded."""
        for entry in list(self._store.led[partition].entries.values()):
            if entry.image.state in PREPARED:
                self.send_markers(entry, now_ms)

    def drop_partition(self, partition: int) -> None:
        """Drop the markers of a state partition; late answers to them are ignored."""
        for transactional_id, progress in list(self._progress.items()):
            if progress.state_partition == partition:
                del self._progress[transactional_id]

    def take(self) -> list[MarkerOrder]:
        """Return the markers to be written now, each only once until it is answered.

        Write them only when the state log is durable.
        """
        orders = []
        for transactional_id in self._ready:
            progress = self._progress.get(transactional_id)
            if progress is not None and progress.ready and not progress.cancelled:
                self._last_order_id += 1
                orders.append(progress.take(self._last_order_id))
        self._ready.clear()
        return orders

    def answered(self, order: MarkerOrder, errors: Mapping[TopicPartition, ErrorCode], now_ms: int) -> None:
        """Handle the answers of all or some partitions of an order (rules A.13).

        A lost connection counts as NETWORK_EXCEPTION and an unknown leader as UNKNOWN_TOPIC_OR_PARTITION. Markers that
        may be retried are returned by `take` again when `retry_due` has passed the backoff.
        """
        progress = self._progress.get(order.transactional_id)
        if progress is None or progress.cancelled:
            return
        for topic_partition, error in errors.items():
            progress.answer(order.order_id, topic_partition, error, now_ms)
        if progress.completion_due_ms is None:
            self._complete_if_done(progress, now_ms)

    def retry_due(self, now_ms: int) -> None:
        """Make due markers ready again and retry due completions; a deleted partition needs no marker."""
        retried = [one for one in self._progress.values() if (at := one.next_due_ms) is not None and at <= now_ms]
        for progress in retried:
            for topic_partition in [one for one, due_ms in progress.due_ms.items() if due_ms <= now_ms]:
                del progress.due_ms[topic_partition]
                if self._partition_exists(topic_partition):
                    progress.ready.add(topic_partition)
            if progress.ready:
                self._ready[progress.transactional_id] = None
            self._complete_if_done(progress, now_ms)

    def next_due_ms(self) -> int | None:
        """Return the time when `retry_due` next has work."""
        return min((at for one in self._progress.values() if (at := one.next_due_ms) is not None), default=None)

    def backlog(self) -> MarkerBacklog:
        alive = [progress for progress in self._progress.values() if not progress.cancelled]
        return MarkerBacklog(
            tuple(one for progress in alive for one in progress.due_ms),
            sum(progress.completion_due_ms is not None for progress in alive),
        )

    def _complete_if_done(self, progress: MarkerProgress, now_ms: int) -> None:
        """Record that every marker is written (rules A.9, A.13 completion); a refused record is retried or dropped."""
        if not progress.complete:
            return
        entry = self._store.find(progress.transactional_id)
        assert entry is not None, f"{progress.transactional_id} was forgotten with its markers out"
        verdict = COMPLETE.resolve(state=entry.image.state, rotates=entry.image.rotates)
        try:
            self._store.write(entry, verdict, now_ms)
        except KafkaError as error:
            if error.code in RETRIED_COMPLETIONS:
                progress.completion_due_ms = now_ms + RETRY_BACKOFF_MS
                return
            logger.warning(
                "transaction of %s has all its markers and stays %s: the record that completes it was refused with"
                " %s; the next load of its state partition completes it",
                progress.transactional_id,
                entry.image.state.label,
                error,
            )
        del self._progress[progress.transactional_id]
