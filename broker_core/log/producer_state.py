"""The producers of a partition: what each may append, and which offsets are decided.

Theory. The state is a fold over the log: `apply_batch` and `apply_marker` are the only ways to change it, they never
refuse, and they are the same for a live append and for a replay. All refusing is done before, by `check_batch` and
`check_marker`, which change nothing. So the state after a crash is the state before it, up to what was lost.

Two things are not in the log and die with the process: verifications (a producer whose coordinator checks whether
the partition belongs to its transaction, rules C.3) and the high watermark. Losing the first is safe: a guard that is
not found is refused and the client asks again. The guard closes a race: verified, then aborted by a marker, then the
late batch arrives; the marker took the guard away, so the batch cannot open a transaction that would never end.

The last stable offset is bounded by two sets of transactions. *Ongoing* ones have no marker; new ones begin at the log
end, so an ordered map by first offset has the oldest at its head. *Unreplicated* ones have a marker at or above the
high watermark. They leave in the order of their markers while we want the smallest first offset, the minimum of a
sliding window: a queue from which a newcomer evicts all that have a larger first offset, for those would leave no
later than it and never be the minimum again. Everything is thus O(1), amortised.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, NewType

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.producer_entry import BatchMetadata, ProducerStateEntry
from broker_core.log.producer_rules import MARKER_RULES, BatchCase, MarkerCase, ProducerVerification, judge_batch
from broker_core.records.header import BatchHeader

Guard = NewType("Guard", int)
# The answer for a producer that needs no verification; no guard is ever equal to it.
SENTINEL: Final = Guard(0)
# How much longer than the longest allowed timeout a transaction may be open before it counts as late (rules C.7).
_LATE_AFTER_MS: Final = 300_000


class AppendOrigin(Enum):
    """The origin of an append: a client's request or a coordinator of this very broker."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


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
        self._unreplicated: deque[CompletedTransaction] = deque()
        self._verifications: dict[int, ProducerVerification] = {}
        # When a sweep first met a verification; it has no time of its own.
        self._verification_seen_ms: dict[int, int] = {}
        self._guards_given = 0

    @property
    def entries(self) -> list[ProducerStateEntry]:
        """Return all producers, by id."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return what is known of the producer."""
        return self._entries.get(producer_id)

    @property
    def open_transactions(self) -> list[OngoingTransaction]:
        """Return the transactions without a marker, oldest first."""
        found = []
        for first_offset, producer_id in self._ongoing.items():
            entry = self._entries[producer_id]
            found.append(OngoingTransaction(producer_id, entry.producer_epoch, first_offset, entry.last_timestamp_ms))
        return found

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the smallest first offset of an ongoing or unreplicated transaction."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        unreplicated = self._unreplicated[0].first_offset
        return unreplicated if ongoing is None or unreplicated < ongoing else ongoing

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether that incarnation of the producer has a transaction open here."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def has_late_transaction(self, now_ms: int, transaction_max_timeout_ms: int) -> bool:
        """Return whether the oldest open transaction outlived every allowed timeout: it hangs (KIP-664)."""
        oldest = next(iter(self._ongoing.values()), None)
        if oldest is None:
            return False
        # Without a timestamp nothing is known of its age.
        return 0 < self._entries[oldest].last_timestamp_ms < now_ms - transaction_max_timeout_ms - _LATE_AFTER_MS

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> Guard:
        """Return the guard a first batch must bring back, `SENTINEL` when its transaction is open already.

        Raises INVALID_PRODUCER_EPOCH when a newer incarnation of the producer was here.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise _fenced(producer_id, producer_epoch, entry)
        if self.has_open_transaction(producer_id, producer_epoch):
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
        """Return the batch this one repeats, None when it may be appended; raise the verdict when it may not.

        The order is that of rules C.1/22 to C.1/27.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id) or ProducerStateEntry(producer_id)
        if origin is AppendOrigin.CLIENT:
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
        """Take in a data batch that begins at `base_offset`; never refuses, so that replay can use it."""
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
        """Raise the verdict of `MARKER_RULES` when the marker may not be appended (rules C.6)."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        row = MARKER_RULES.row(**MarkerCase(entry, producer_epoch, coordinator_epoch, transaction_version).facts())
        if row.verdict is not ErrorCode.NONE:
            raise KafkaError(
                row.verdict,
                f"{row.rule}: marker of producer {producer_id}, epoch {producer_epoch}, "
                f"coordinator epoch {coordinator_epoch}; known here are epoch {entry.producer_epoch} and "
                f"coordinator epoch {entry.coordinator_epoch}",
            )

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        offset: int,
        aborted: bool,
        coordinator_epoch: int,
        timestamp_ms: int,
    ) -> CompletedTransaction | None:
        """Take in a marker at `offset` and return the transaction it ended; None when none was open."""
        entry = self._entries.get(producer_id) or ProducerStateEntry(producer_id)
        first_offset = entry.current_txn_first_offset
        self._entries[producer_id] = entry.with_marker(producer_epoch, coordinator_epoch, timestamp_ms)
        known = self._verifications.get(producer_id)
        # A V2 marker carries the epoch of the next transaction. Coming late, it must not undo that one's verification.
        if known is not None and not (known.supports_epoch_bump and known.producer_epoch == producer_epoch):
            self._drop_verification(producer_id)
        if first_offset is None:
            return None
        self._ongoing.pop(first_offset, None)
        completed = CompletedTransaction(producer_id, first_offset, offset, aborted)
        while self._unreplicated and self._unreplicated[-1].first_offset > first_offset:
            self._unreplicated.pop()
        self._unreplicated.append(completed)
        return completed

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset as the aborted-transaction index records it (rules C.7)."""
        return next(iter(self._ongoing), completed.last_offset + 1)

    def replicated_up_to(self, offset: int) -> None:
        """Drop ended transactions whose marker is below `offset`."""
        while self._unreplicated and self._unreplicated[0].last_offset < offset:
            self._unreplicated.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget producers without news for `expiration_ms`, except those with a transaction open (rules C.10)."""
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
    """Return whether the producer may be forgotten; its time is that of its records, not of the clock."""
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
