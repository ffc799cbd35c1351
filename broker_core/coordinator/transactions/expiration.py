"""The timeout of transactions, the expiration of unused ids, and the schedule of the scans for both (rules A.11)."""

from collections.abc import Iterator, Sequence
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.coordinator.transactions.records import TransactionImage, encode_key
from broker_core.coordinator.transactions.states import EXPIRABLE
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


class ScanSchedule:
    """The schedule of the two scans: for transactions to abort, and for ids to expire."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config: Final = config
        self._abort_scan_ms: int | None = None
        self._expire_scan_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """Schedule the first scans, unless they are scheduled already."""
        if self._abort_scan_ms is None:
            self._abort_scan_ms = now_ms + self._config.transaction_abort_interval_ms
            self._expire_scan_ms = now_ms + self._config.transaction_expire_interval_ms

    def abort_scan_is_due(self, now_ms: int) -> bool:
        """Return whether the scan for timed-out transactions is due, and if so schedule the next one."""
        if self._abort_scan_ms is None or now_ms < self._abort_scan_ms:
            return False
        self._abort_scan_ms = now_ms + self._config.transaction_abort_interval_ms
        return True

    def expire_scan_is_due(self, now_ms: int) -> bool:
        """Return whether the scan for unused ids is due, and if so schedule the next one."""
        if self._expire_scan_ms is None or now_ms < self._expire_scan_ms:
            return False
        self._expire_scan_ms = now_ms + self._config.transaction_expire_interval_ms
        return True

    def next_scan_ms(self) -> int | None:
        """Return when the next scan is due."""
        return min((one for one in (self._abort_scan_ms, self._expire_scan_ms) if one is not None), default=None)

    def has_expired(self, image: TransactionImage, now_ms: int) -> bool:
        """Return whether the id has been idle for longer than its expiration time."""
        limit_ms = now_ms - self._config.transactional_id_expiration_ms
        return image.state in EXPIRABLE and image.update_ms <= limit_ms
