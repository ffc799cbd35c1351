"""The state of a partition's producers: the appends each may make, and the undecided transactions.

Theory. The state is a fold over the log. `apply_batch` and `apply_marker` are the only ways to change it; they never
refuse, and they are the same for a live append and for a replay. All checks are made before, by `check_batch` and
`check_marker`, which change nothing. So the state after a crash is that of the log that survived.

Verifications (a producer whose coordinator checks whether the partition belongs to its transaction, rules C.3) are not
in the log and are lost with the process, which is safe: a guard that is not found is refused and the client retries.
The guard closes a race: verified, then aborted by a marker, then the late batch arrives; the marker removed the guard,
so the batch cannot open a transaction that would never end.

The last stable offset is bounded by the transactions without a marker. New ones begin at the log end, so an ordered map
by first offset has the oldest at its head.
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, NewType

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.indexes import AbortedEntry
from broker_core.log.producer_entry import BatchMetadata, ProducerStateEntry
from broker_core.log.producer_rules import BatchCase, MarkerCase, ProducerVerification, judge_batch, judge_marker
from broker_core.records.control import ControlType, EndTxnMarker
from broker_core.records.header import BatchHeader

Guard = NewType("Guard", int)
# The guard of a producer that needs no verification; it differs from all other guards.
SENTINEL: Final = Guard(0)
# How much longer than the longest allowed timeout a transaction may be open before it counts as late (rules C.7).
_LATE_AFTER_MS: Final = 300_000


class AppendOrigin(Enum):
    """The origin of an append: a client's request or a coordinator of this broker."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class OngoingTransaction(NamedTuple):
    """A transaction that awaits its marker in this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class ProducerState:
    """The fold of batches and markers into producer entries and the set of undecided transactions."""

    def __init__(self, entries: Iterable[ProducerStateEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        opened = [
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.current_txn_first_offset is not None
        ]
        self._ongoing: OrderedDict[int, int] = OrderedDict(sorted(opened))
        self._verifications: dict[int, ProducerVerification] = {}
        # The time when a scan first found a verification, which has no time of its own.
        self._verification_seen_ms: dict[int, int] = {}
        self._guards_given = 0

    @property
    def entries(self) -> list[ProducerStateEntry]:
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    @property
    def open_transactions(self) -> list[OngoingTransaction]:
        found = []
        for first_offset, producer_id in self._ongoing.items():
            entry = self._entries[producer_id]
            found.append(OngoingTransaction(producer_id, entry.producer_epoch, first_offset, entry.last_timestamp_ms))
        return found

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the smallest first offset of an ongoing transaction."""
        return next(iter(self._ongoing), None)

    def has_late_transaction(self, now_ms: int, transaction_max_timeout_ms: int) -> bool:
        """Return whether the oldest open transaction exceeds every allowed timeout, so that it hangs (KIP-664)."""
        oldest = next(iter(self._ongoing.values()), None)
        if oldest is None:
            return False
        # Without a timestamp its age is unknown.
        return 0 < self._entries[oldest].last_timestamp_ms < now_ms - transaction_max_timeout_ms - _LATE_AFTER_MS

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> Guard:
        """Return the guard that the first batch has to pass, `SENTINEL` if its transaction is open already.

        Raises INVALID_PRODUCER_EPOCH if a newer epoch of the producer is known.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise _fenced(producer_id, producer_epoch, entry)
        if entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch:
            return SENTINEL
        known = self._verifications.get(producer_id)
        if known is None:
            self._guards_given += 1
            known = ProducerVerification(self._guards_given, producer_epoch, base_sequence, supports_epoch_bump)
        elif producer_epoch > known.producer_epoch:
            known = known._replace(producer_epoch=producer_epoch, lowest_sequence=base_sequence)
        elif producer_epoch == known.producer_epoch and base_sequence < known.lowest_sequence:
            known = known._replace(lowest_sequence=base_sequence)
        self._verifications[producer_id] = known
        return Guard(known.guard)

    def check_batch(
        self, header: BatchHeader, *, origin: AppendOrigin, guard: Guard, verification_enabled: bool
    ) -> BatchMetadata | None:
        """Return the batch that this one repeats, None if it may be appended; raise `KafkaError` if it may not.

        The order follows rules C.1/22 to C.1/27.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id) or ProducerStateEntry(producer_id)
        if origin is AppendOrigin.CLIENT and entry.batches:
            duplicate = entry.find_duplicate(producer_epoch, header.base_sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
        transactional = header.is_transactional
        if transactional and (entry.current_txn_first_offset is None or entry.producer_epoch != producer_epoch):
            self._check_first_batch(entry, producer_epoch, guard, verification_enabled)
        if producer_epoch < entry.producer_epoch:
            raise _fenced(producer_id, producer_epoch, entry)
        if origin is AppendOrigin.CLIENT:
            verification = self._verifications.get(producer_id)
            verdict = judge_batch(BatchCase(entry, verification, producer_epoch, header.base_sequence))
            if verdict is not ErrorCode.NONE:
                raise _out_of_order(header, entry, verification, verdict)
        if not transactional and entry.current_txn_first_offset is not None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} sent a batch outside a transaction "
                f"while its transaction from offset {entry.current_txn_first_offset} is open here",
            )
        return None

    def _check_first_batch(
        self, entry: ProducerStateEntry, producer_epoch: int, guard: Guard, verification_enabled: bool
    ) -> None:
        if producer_epoch < entry.producer_epoch:
            raise _fenced(entry.producer_id, producer_epoch, entry)
        if not verification_enabled:
            return
        known = self._verifications.get(entry.producer_id)
        if guard == SENTINEL or known is None or known.guard != guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has no transaction of epoch "
                f"{producer_epoch} open here and the batch was not verified with its coordinator, or the "
                "transaction ended meanwhile",
            )

    def apply_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a data batch that begins at `base_offset`; it never refuses, so that replay can use it."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id) or ProducerStateEntry(producer_id)
        first_offset = entry.current_txn_first_offset
        if header.is_transactional:
            self._drop_verification(producer_id)
            if first_offset is None:
                first_offset = base_offset
                self._ongoing[base_offset] = producer_id
        delta = header.last_offset_delta
        batch = BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        self._entries[producer_id] = entry.with_batch(producer_epoch, batch, first_offset)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raise the error of `MARKER_RULES` if the marker may not be appended (rules C.6)."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        row = judge_marker(MarkerCase(entry, producer_epoch, coordinator_epoch, transaction_version))
        if row.verdict is not ErrorCode.NONE:
            raise KafkaError(
                row.verdict,
                f"{row.rule}: marker of producer {producer_id}, epoch {producer_epoch}, "
                f"coordinator epoch {coordinator_epoch}; known here are epoch {entry.producer_epoch} and "
                f"coordinator epoch {entry.coordinator_epoch}",
            )

    def apply_marker(self, header: BatchHeader, offset: int, marker: EndTxnMarker) -> AbortedEntry | None:
        """Apply a marker at `offset`; return the entry for the transaction index if it aborts a transaction."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id) or ProducerStateEntry(producer_id)
        first_offset = entry.current_txn_first_offset
        self._entries[producer_id] = entry.with_marker(producer_epoch, marker.coordinator_epoch, header.max_timestamp)
        known = self._verifications.get(producer_id)
        # A V2 marker has the epoch of the next transaction. A late one must not remove that transaction's verification.
        if known is not None and not (known.supports_epoch_bump and known.producer_epoch == producer_epoch):
            self._drop_verification(producer_id)
        if first_offset is None:
            return None
        self._ongoing.pop(first_offset, None)
        if marker.control_type is not ControlType.ABORT:
            return None
        # With the last stable offset of this moment (rules C.7).
        return AbortedEntry(producer_id, first_offset, offset, next(iter(self._ongoing), offset + 1))

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Remove producers without a record for `expiration_ms`, except those with an open transaction (rules C.10)."""
        expired = [entry.producer_id for entry in self._entries.values() if is_expired(entry, now_ms, expiration_ms)]
        for producer_id in expired:
            del self._entries[producer_id]
        for producer_id in list(self._verifications):
            if now_ms - self._verification_seen_ms.setdefault(producer_id, now_ms) >= expiration_ms:
                self._drop_verification(producer_id)
        return expired

    def _drop_verification(self, producer_id: int) -> None:
        if self._verifications.pop(producer_id, None) is not None:
            self._verification_seen_ms.pop(producer_id, None)


def is_expired(entry: ProducerStateEntry, now_ms: int, expiration_ms: int) -> bool:
    """Return whether the producer has expired; its last time is the timestamp of its records."""
    return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp_ms >= expiration_ms


def _fenced(producer_id: int, producer_epoch: int, entry: ProducerStateEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} sent epoch {producer_epoch}; the newest epoch here is {entry.producer_epoch}",
    )


def _out_of_order(
    header: BatchHeader, entry: ProducerStateEntry, verification: ProducerVerification | None, verdict: ErrorCode
) -> KafkaError:
    waiting = f"; sequence {verification.lowest_sequence} is still being verified" if verification else ""
    return KafkaError(
        verdict,
        f"producer {header.producer_id}, epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}; the newest known is {entry.last_sequence} of epoch "
        f"{entry.producer_epoch}{waiting}",
    )
