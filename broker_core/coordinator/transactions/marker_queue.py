"""The queue of transaction markers, until each partition has answered (rules A.13 sender).

A queued transaction is pending: it is prepared, its markers are being written, and every request for it has
to be retried. It is removed when its completion is recorded, or when its coordinator resigns.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from broker_core.coordinator.transactions.errors import MarkerAction, marker_action
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.coordinator.transactions.records import TransactionImage
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, TransactionState

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
        self.cancelled = False
        self.completion_due_ms: int | None = None

    @property
    def remaining(self) -> frozenset[TopicPartition]:
        """Return the partitions whose marker is not known to be written."""
        return frozenset({*self.ready, *self.in_flight, *self.due_ms})

    @property
    def complete(self) -> bool:
        """Return whether every partition has its marker."""
        return not (self.cancelled or self.ready or self.in_flight or self.due_ms)

    def cancel(self) -> None:
        """Send no more markers; the transaction stays prepared until its partition is loaded again."""
        self.cancelled = True

    def take(self, order_id: int) -> MarkerOrder:
        """Return the markers that are ready, in one order."""
        partitions = frozenset(self.ready)
        self.in_flight.update(dict.fromkeys(partitions, order_id))
        self.ready.clear()
        image = self._image
        return MarkerOrder(
            self.transactional_id,
            self.state_partition,
            image.producer_id,
            image.producer_epoch,
            image.state is TransactionState.PREPARE_COMMIT,
            self._coordinator_epoch,
            image.client_transaction_version,
            partitions,
            order_id,
        )

    def answer(self, order_id: int, topic_partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        """Handle one partition's answer; an unexpected answer is ignored."""
        if self.in_flight.get(topic_partition) != order_id:
            return
        action = marker_action(error)
        if action is MarkerAction.DONE:
            del self.in_flight[topic_partition]
        elif action is MarkerAction.RETRY:
            del self.in_flight[topic_partition]
            self.due_ms[topic_partition] = now_ms + RETRY_BACKOFF_MS
        else:
            self._give_up(topic_partition, error, action)

    def _give_up(self, topic_partition: TopicPartition, error: ErrorCode, action: MarkerAction) -> None:
        logger.log(
            logging.ERROR if action is MarkerAction.ILLEGAL else logging.WARNING,
            "transaction of %s stays prepared: %s answered its marker with %s; its markers are sent again when"
            " state partition %d is next loaded",
            self.transactional_id,
            topic_partition,
            error.name,
            self.state_partition,
        )
        self.cancel()


class MarkerQueue:
    """The transactions that are being completed, by transactional id."""

    def __init__(self) -> None:
        self._progress: dict[str, MarkerProgress] = {}
        self._ready: dict[str, None] = {}
        self._last_order_id = 0

    def start(
        self,
        transactional_id: str,
        state_partition: int,
        coordinator_epoch: int,
        image: TransactionImage,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Queue the markers of the prepared transaction `image` for some of its partitions."""
        self._progress[transactional_id] = MarkerProgress(
            transactional_id, state_partition, coordinator_epoch, image, partitions
        )
        if partitions:
            self._ready[transactional_id] = None

    def pending(self, transactional_id: str) -> bool:
        """Return whether the id's transaction is being completed."""
        return transactional_id in self._progress

    def progress(self, transactional_id: str) -> MarkerProgress | None:
        """Return the progress of the id's transaction."""
        return self._progress.get(transactional_id)

    def take(self) -> list[MarkerOrder]:
        """Return all markers that are ready, each only once until it is answered."""
        orders = []
        for transactional_id in self._ready:
            progress = self._progress.get(transactional_id)
            if progress is not None and progress.ready and not progress.cancelled:
                self._last_order_id += 1
                orders.append(progress.take(self._last_order_id))
        self._ready.clear()
        return orders

    def answered(self, order: MarkerOrder, errors: Mapping[TopicPartition, ErrorCode], now_ms: int) -> bool:
        """Handle the answers to an order, all or some; return whether the transaction may complete now."""
        progress = self._progress.get(order.transactional_id)
        if progress is None or progress.cancelled:
            return False
        for topic_partition, error in errors.items():
            progress.answer(order.order_id, topic_partition, error, now_ms)
        return progress.complete and progress.completion_due_ms is None

    def due(self, now_ms: int) -> list[MarkerProgress]:
        """Return the transactions with a retry that is due."""
        return [progress for progress in self._progress.values() if 0 <= _due_ms(progress) <= now_ms]

    def release(self, progress: MarkerProgress, gone: Collection[TopicPartition], now_ms: int) -> None:
        """Make the due markers ready again, except for the partitions in `gone`, which need none."""
        due = {one for one, due_ms in progress.due_ms.items() if due_ms <= now_ms}
        for topic_partition in due:
            del progress.due_ms[topic_partition]
        progress.ready |= due - set(gone)
        if progress.ready:
            self._ready[progress.transactional_id] = None

    def next_due_ms(self) -> int | None:
        """Return the time of the next retry."""
        return min((due for one in self._progress.values() if (due := _due_ms(one)) >= 0), default=None)

    def backlog(self) -> MarkerBacklog:
        """Return the waiting retries, for the metrics."""
        alive = [progress for progress in self._progress.values() if not progress.cancelled]
        return MarkerBacklog(
            tuple(one for progress in alive for one in progress.due_ms),
            sum(progress.completion_due_ms is not None for progress in alive),
        )

    def finish(self, transactional_id: str) -> None:
        """Remove the id's transaction."""
        self._progress.pop(transactional_id, None)

    def drop_partition(self, state_partition: int) -> None:
        """Remove all transactions of a state partition; late answers for them are ignored."""
        for transactional_id, progress in list(self._progress.items()):
            if progress.state_partition == state_partition:
                self.finish(transactional_id)


def _due_ms(progress: MarkerProgress) -> int:
    """Return the time of the next retry of one transaction, -1 for never."""
    if progress.cancelled:
        return -1
    if progress.completion_due_ms is not None:
        return progress.completion_due_ms
    return min(progress.due_ms.values(), default=-1)
