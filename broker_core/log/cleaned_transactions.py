"""Tell compaction what became of each transaction: which data was aborted, and which markers nobody needs any more."""

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from broker_core.log.transaction_index import AbortedEntry
from broker_core.records.header import BatchHeader


class CleanedTransactions:
    """Follow the batches of a pass from the log start on.

    A marker must outlive the data in front of it: without it a reader would take a producer that once aborted for one
    that still aborts, and a replay would find a transaction that never ends.
    """

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._by_producer: dict[int, list[AbortedEntry]] = {}
        self._by_marker: dict[int, AbortedEntry] = {}
        for entry in aborted:
            self._by_producer.setdefault(entry.producer_id, []).append(entry)
            self._by_marker[entry.last_offset] = entry
        # Producers of whose current transaction a batch was kept, be it an empty one.
        self._with_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Say whether the data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        entries = self._by_producer.get(header.producer_id, [])
        # One producer's transactions follow one another, so only the first that ends behind the batch can hold it.
        at = bisect_left(entries, header.base_offset, key=attrgetter("last_offset"))
        return at < len(entries) and entries[at].first_offset <= header.base_offset

    def note_kept(self, header: BatchHeader) -> None:
        """Take in that the data batch stays in the log."""
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """Take in a marker and say whether no data of its transaction stays in front of it."""
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return False
        return True

    def ended_by(self, marker_offset: int) -> AbortedEntry | None:
        """Return the aborted transaction that the marker ended."""
        return self._by_marker.get(marker_offset)
