"""The state of the transactional ids led here, changed only by the replay of records.

New records and loaded ones are applied by the same function. A new one is not decoded again, which would take 8 µs for
each of a transaction's three records: `as_stored` is what decoding returns, which a test checks for every image. So a
coordinator's state is always what its successor will load.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_core.coordinator.journal import Journal, JournalEntry, JournalRecord
from broker_core.coordinator.transactions.decision_tables import APPEND_ERRORS, TransitionVerdict
from broker_core.coordinator.transactions.records import (
    TransactionImage,
    as_stored,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker_core.coordinator.transactions.transitions import Change, broken, build, stored_rules
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.types import NO_PRODUCER_EPOCH, TopicPartition, coordinator_partition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TransactionEntry:
    """One transactional id: its durable image, and the state in memory only.

    `last_producer_epoch` lets a caller of InitProducerId retry if its answer was lost (KIP-360). It has no field in the
    log, so it does not survive a failover; such a caller is then fenced, as in Kafka.
    """

    transactional_id: str
    image: TransactionImage
    last_producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class StatePartition:
    """One partition of `__transaction_state` that is led here."""

    coordinator_epoch: int
    loading: bool = True
    entries: dict[str, TransactionEntry] = field(default_factory=dict)


class TransactionStore:
    """The transactional ids of the partitions led here: found, recorded, loaded."""

    def __init__(
        self,
        journal: Journal,
        partition_count: int,
        transaction_version: Callable[[], int],
        next_producer_id: Callable[[], int],
    ) -> None:
        self._journal: Final = journal
        self._partition_count: Final = partition_count
        self._transaction_version: Final = transaction_version
        self._next_producer_id: Final = next_producer_id
        # The partitions led here, loading ones included.
        self.led: Final[dict[int, StatePartition]] = {}

    def partition_for(self, transactional_id: str) -> int:
        return coordinator_partition(transactional_id, self._partition_count)

    def find(self, transactional_id: str) -> TransactionEntry | None:
        """Return the id's entry, None if it is not in use; raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        number = coordinator_partition(transactional_id, self._partition_count)
        found = self.led.get(number)
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"state partition {number} has another leader")
        if found.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"state partition {number} is loading")
        return found.entries.get(transactional_id)

    def entries(self) -> Iterator[TransactionEntry]:
        """Yield all entries of loaded partitions; the caller may write records during the iteration."""
        for led in list(self.led.values()):
            if not led.loading:
                yield from list(led.entries.values())

    def max_batch_bytes(self, partition: int) -> int:
        return self._journal.max_batch_bytes(partition)

    def write(
        self,
        entry: TransactionEntry,
        verdict: TransitionVerdict,
        now_ms: int,
        *,
        timeout_ms: int = 0,
        partitions: frozenset[TopicPartition] = frozenset(),
        client_transaction_version: int = 0,
    ) -> TransactionImage:
        """Build the verdict's record, append it and replay it; return its image.

        Raises `KafkaError` with the client's error (rules A.3) if no producer id is available or the log refuses the
        record; nothing has changed then.
        """
        assert verdict.image is not None, verdict
        assert verdict.next_state is not None, verdict
        image, last_producer_epoch = build(
            verdict.image,
            Change(
                entry.image,
                entry.last_producer_epoch,
                verdict.next_state,
                now_ms,
                timeout_ms,
                partitions,
                client_transaction_version,
                self._next_producer_id,
            ),
        )
        name, level = entry.transactional_id, self._transaction_version()
        partition = coordinator_partition(name, self._partition_count)
        self._append(partition, [JournalRecord(encode_key(name), encode_value(image, level))], now_ms)
        written = _apply(self.led[partition], name, as_stored(image, level))
        written.last_producer_epoch = last_producer_epoch
        return image

    def remove(self, partition: int, transactional_ids: Collection[str], now_ms: int) -> None:
        """Append a tombstone for each id, all in one batch, and replay them; raises as `write` does."""
        self._append(partition, [JournalRecord(encode_key(one), None) for one in transactional_ids], now_ms)
        for one in transactional_ids:
            self.led[partition].entries.pop(one, None)

    def _append(self, partition: int, records: Sequence[JournalRecord], now_ms: int) -> None:
        try:
            self._journal.append(partition, self.led[partition].coordinator_epoch, records, now_ms)
        except KafkaError as error:
            raise KafkaError(APPEND_ERRORS.get(error.code, error.code), error.message) from error

    def replay(self, partition: int, entry: JournalEntry) -> None:
        """Apply one loaded record to the state.

        Records and values of unknown types are skipped, as are impossible images; raises `DamageError` for a record
        without a key or that cannot be read.
        """
        if entry.control is not None:
            return
        if entry.key is None:
            raise DamageError(f"record at offset {entry.offset} of state partition {partition} has no key")
        transactional_id = decode_key(entry.key)
        if transactional_id is None:
            return
        if entry.value is None:
            self.led[partition].entries.pop(transactional_id, None)
            return
        image = decode_value(entry.value)
        if image is None:
            return
        violated = broken(stored_rules(image))
        if violated:
            # The next step from it would be illegal; only this id is affected.
            logger.error(
                "skipped the record of transactional id %r at offset %d of __transaction_state-%d, which no"
                " coordinator writes: it violates %s; the id keeps its previous state",
                transactional_id,
                entry.offset,
                partition,
                violated,
            )
            return
        _apply(self.led[partition], transactional_id, image)

    def load(self, partition: int, coordinator_epoch: int) -> None:
        """Load the partition under `coordinator_epoch`.

        A record that cannot be read ends the load, and the records before it are used, as in Kafka. If
        the journal itself cannot be read, the partition stays in the loading state.
        """
        self.led[partition] = StatePartition(coordinator_epoch)
        for entry in self._journal.read(partition):
            try:
                self.replay(partition, entry)
            except Exception as damage:
                # A client with write access can write anything, and replay expects a coordinator's records.
                logger.error(
                    "stopped loading __transaction_state-%d at offset %d: %r; the records before it are used, so that"
                    " ids may be missing or in an earlier state. Inspect the record with a dump tool; to go"
                    " on without it, stop the broker, move the folder __transaction_state-%d away, and start again: its"
                    " ids are then unknown, and open transactions have to be aborted by hand (kafka-transactions.sh)",
                    partition,
                    entry.offset,
                    damage,
                    partition,
                )
                break
        self.led[partition].loading = False


def _apply(led: StatePartition, transactional_id: str, image: TransactionImage) -> TransactionEntry:
    """Change the state of an id to a recorded image; only this and tombstones change it."""
    found = led.entries.get(transactional_id)
    if found is None:
        found = led.entries[transactional_id] = TransactionEntry(transactional_id, image)
    found.image = image
    found.last_producer_epoch = NO_PRODUCER_EPOCH
    return found
