"""The timeout of transactions, the tombstones of unused ids, and the schedule of the scans for both (rules A.11)."""

from collections.abc import Iterator, Sequence
from typing import Final

from broker_core.coordinator.transactions.records import TransactionImage, encode_key
from broker_core.types import NEVER_TIMES_OUT_MS, TransactionState

# The size of a batch header, and of a tombstone without its key: at most five varints and the attributes.
_BATCH_HEADER_BYTES: Final = 61
_RECORD_OVERHEAD_BYTES: Final = 30


def has_timed_out(image: TransactionImage, now_ms: int) -> bool:
    """Return whether the broker has to abort the transaction; with two-phase commit it never times out."""
    return (
        image.state is TransactionState.ONGOING
        and image.timeout_ms != NEVER_TIMES_OUT_MS
        and image.start_ms + image.timeout_ms < now_ms
    )


def tombstone_batches(transactional_ids: Sequence[str], limit_bytes: int) -> Iterator[list[str]]:
    """Split ids so that the tombstones of each part fit into one batch of the topic."""
    batch: list[str] = []
    size_bytes = _BATCH_HEADER_BYTES
    for transactional_id in transactional_ids:
        record_bytes = len(encode_key(transactional_id)) + _RECORD_OVERHEAD_BYTES
        if batch and size_bytes + record_bytes > limit_bytes:
            yield batch
            batch, size_bytes = [], _BATCH_HEADER_BYTES
        batch.append(transactional_id)
        size_bytes += record_bytes
    if batch:
        yield batch


class Scan:
    """The schedule of a scan that is repeated after an interval."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms: Final = interval_ms
        self.next_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """Schedule the first scan, unless it is scheduled already."""
        if self.next_ms is None:
            self.next_ms = now_ms + self._interval_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether the scan is due, and if so schedule the next one."""
        if self.next_ms is None or now_ms < self.next_ms:
            return False
        self.next_ms = now_ms + self._interval_ms
        return True
