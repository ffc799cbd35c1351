"""Turn a verdict into its record and have it recorded: the one way by which a transaction moves."""

from collections.abc import Callable
from typing import Final

from broker_core.coordinator.transaction_images import NEEDS_PRODUCER_ID, Change, Draft, build
from broker_core.coordinator.transaction_store import TransactionEntry, TransactionStore
from broker_core.coordinator.transaction_tables import Image, Verdict
from broker_core.types import NO_PRODUCER_ID, TopicPartition


class TransactionWriter:
    """Write verdicts to the state log."""

    def __init__(self, store: TransactionStore, next_producer_id: Callable[[], int]) -> None:
        self._store: Final = store
        self._next_producer_id: Final = next_producer_id

    def write(
        self,
        entry: TransactionEntry,
        verdict: Verdict,
        now_ms: int,
        *,
        timeout_ms: int = 0,
        partitions: frozenset[TopicPartition] = frozenset(),
        client_transaction_version: int = 0,
    ) -> Draft:
        """Build the verdict's record, append it and replay it.

        Raises `KafkaError` with what the client is told when there is no producer id to go on to, or when
        the log refuses the record; nothing has changed then.
        """
        assert verdict.image is not None, verdict
        assert verdict.next_state is not None, verdict
        draft = build(
            verdict.image,
            Change(
                entry.image,
                entry.last_producer_epoch,
                verdict.next_state,
                now_ms,
                timeout_ms,
                partitions,
                client_transaction_version,
                self._fresh_producer_id(verdict.image),
            ),
        )
        partition = self._store.partition_for(entry.transactional_id)
        self._store.record(partition, {entry.transactional_id: draft}, now_ms)
        return draft

    def _fresh_producer_id(self, image: Image) -> int:
        return self._next_producer_id() if image in NEEDS_PRODUCER_ID else NO_PRODUCER_ID
