"""A driver that dies between its decision and the first EndTxn, while one of the transactions times out early.

The next driver on the checkpoint starts when that one is lost and the others are still open: nothing of the micro-batch
is visible then, and nothing of it may become visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker_core.types import TransactionState
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.messages import Prepared, TaskMessage
from spark_eos.sink.prepared import PreparedTransaction
from tests.support.simulated.faults import FaultKind
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_SHORT_MS = 5_000
# Longer than the short timeout and the coordinator's interval together.
_AWAY_MS = 7_500


class DecidedDeath:
    """The death of the first driver that has decided over transactions with a short and a long timeout."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._has_died = False
        # Transactions to be rolled back, because the next driver found some of them lost and the others open.
        self.to_be_rolled_back: tuple[PreparedTransaction, ...] = ()

    def options(self, options: SinkOptions, split: int, rows: Sequence[Sequence[Any]]) -> SinkOptions:
        """Set a short timeout for the first task of a micro-batch that has rows."""
        is_first = split == next((at for at, each in enumerate(rows) if each), None)
        if not self._world.plan.dies_decided or self._has_died or not is_first:
            return options
        return replace(options, transaction_timeout_ms=_SHORT_MS)

    def reach(self, point: str, messages: Sequence[TaskMessage]) -> None:
        """Kill the driver's fiber at this point, and let the next driver start later."""
        prepared = tuple(message.transaction for message in messages if isinstance(message, Prepared))
        timeouts_ms = {transaction.timeout_ms for transaction in prepared}
        if point != "driver.after_decide" or self._has_died or len(timeouts_ms) < 2:
            return
        world, fiber = self._world, self._world.fibers.current
        self._has_died = True
        world.nemesis(f"{fiber.name} dies between its decision and the first EndTxn")
        world.start_actor(world.actors[fiber.name].successor(f"{fiber.name}d", _AWAY_MS))
        world.scheduler.after(_AWAY_MS * US_PER_MS, lambda: self.look(prepared))
        fiber.kill()
        world.fibers.sleep_ms(1)

    def look(self, prepared: tuple[PreparedTransaction, ...]) -> None:
        """Record what the next driver finds if some transactions are lost and all others open."""
        # A timeout that was not durable when the power failed did not happen.
        still_open = [t for t in prepared if self._is_open(t)]
        timed_out = self._world.watch.timed_out
        lost = [t for t in prepared if t not in still_open and t.producer in timed_out]
        if lost and still_open and len(lost) + len(still_open) == len(prepared):
            self._world.faults.record(FaultKind.DECIDED_AND_LOST)
            self.to_be_rolled_back = prepared

    def _is_open(self, transaction: PreparedTransaction) -> bool:
        name = transaction.transactional_id
        brokers = self._world.server.cluster.brokers.values() if self._world.server.is_running else ()
        images = [broker.transactions.images()[name] for broker in brokers if name in broker.transactions.images()]
        return any(
            image.state is TransactionState.ONGOING
            and (image.producer_id, image.producer_epoch) == transaction.producer
            for image in images
        )

    def check(self) -> Iterator[str]:
        """Check that no transaction was committed that had to be rolled back."""
        for transaction in self.to_be_rolled_back:
            # Under the new protocol a marker has the epoch after that of the records.
            producer_id, epoch = transaction.producer
            if (producer_id, epoch + (transaction.opened.transaction_version >= 2)) in self._world.watch.committed:
                yield (
                    f"task {transaction.split} was committed as {transaction.transactional_id} by a restart that "
                    "found a part of its micro-batch lost and nothing visible"
                )
