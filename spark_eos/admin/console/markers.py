"""When the transactions of micro-batches were ended, from their markers in the log.

A decision says when it was made, and seldom when it was completed. The markers of its transactions have the time: a
few are looked up, and kept.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.admin.console.decision_tail import MicroBatch, WrittenEnd
from spark_eos.admin.timeline_log import LogReading, TransactionOutcome
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.options.source import FetchLimits

_LIMITS: Final = FetchLimits(
    max_bytes=256 << 10, partition_max_bytes=256 << 10, min_bytes=1, max_wait_ms=50, poll_timeout_ms=5_000
)
_MOST_CHUNKS: Final = 4
_MOST_KEPT: Final = 5_000


class EndMarker(NamedTuple):
    """The end of one transaction in one partition."""

    at_ms: int
    is_commit: bool


_NOT_YET: Final = EndMarker(-1, False)


class MarkerSearch:
    """The markers that were found; a later search looks only for the others."""

    def __init__(self) -> None:
        self._found: dict[WrittenEnd, EndMarker | None] = {}

    def of(self, micro_batch: MicroBatch) -> list[EndMarker]:
        """Return the known markers of a micro-batch."""
        return [found for each in micro_batch.ends if (found := self._found.get(each)) is not None]

    def search(
        self,
        client: KafkaClient,
        places: Mapping[TopicPartition, PartitionPlace],
        ends: Mapping[TopicPartition, int],
        micro_batches: Iterable[MicroBatch],
        most: int,
    ) -> None:
        """Look for at most so many markers, of the first micro-batches first; `ends` are high watermarks."""
        missing = [end for each in micro_batches for end in each.ends if end not in self._found]
        for each in missing[:most]:
            place, end = places.get(each.topic_partition), ends.get(each.topic_partition)
            if place is None or end is None:
                continue
            try:
                marker = _find(client, each, place, end)
            except OffsetsGoneError:
                self._keep(each, None)
                continue
            if marker is not _NOT_YET:
                self._keep(each, marker)

    def _keep(self, end: WrittenEnd, marker: EndMarker | None) -> None:
        self._found[end] = marker
        while len(self._found) > _MOST_KEPT:
            del self._found[next(iter(self._found))]


def _find(client: KafkaClient, end: WrittenEnd, place: PartitionPlace, high_watermark: int) -> EndMarker | None:
    """Return the marker, `_NOT_YET` if the log has none so far, or None if it is too far away."""
    reading = LogReading()
    fetch = RangeFetch(client, end.topic_partition, place, IsolationLevel.READ_UNCOMMITTED, _LIMITS)
    for number, chunk in enumerate(fetch.chunks(end.last_offset, high_watermark)):
        reading.take([chunk])
        for bar in reading.transactions:
            if bar.producer_id == end.producer_id and bar.marker_timestamp_ms is not None:
                return EndMarker(bar.marker_timestamp_ms, bar.outcome is TransactionOutcome.COMMITTED)
        if number + 1 >= _MOST_CHUNKS:
            return None
    return _NOT_YET
