"""The filter for the record batches of one fetch response that a reader may see.

A broker's response to a read_committed fetch is raw log: it includes the records of aborted transactions, together with
a list of (producer id, first offset) of the aborted transactions that overlap the response. One producer can have
several in one response, and the batches of different producers interleave, so which transactions apply changes from
batch to batch. Kafka's consumer processes the batches in offset order with a heap of the list ordered by first offset:

- before a batch is judged, every aborted transaction that begins at or before its *last* offset becomes active;
- an ABORT marker ends its producer's active transaction, so that the same producer's next one is judged separately;
- a transactional batch of a producer with an active aborted transaction is invisible, as a whole;
- control batches are never visible, at either isolation level.

Nothing is decompressed or decoded: the 61 byte header of a batch is enough, and two bytes of a marker's key.
"""

import heapq
from collections.abc import Iterator, Mapping

from broker_core.records.control import ControlType
from broker_core.records.header import BatchHeader
from spark_eos.client.fetch import FetchedChunk


def visible_in(chunk: FetchedChunk) -> Iterator[tuple[int, BatchHeader]]:
    """Return the positions and headers of the data batches that no aborted transaction covers, in order."""
    upcoming = [(transaction.first_offset, transaction.producer_id) for transaction in chunk.aborted]
    heapq.heapify(upcoming)
    active: set[int] = set()
    for position, header in chunk.batches:
        while upcoming and upcoming[0][0] <= header.last_offset:
            active.add(heapq.heappop(upcoming)[1])
        if header.is_control:
            marker = chunk.marker(position, header)
            if marker is not None and marker.control_type is ControlType.ABORT:
                active.discard(header.producer_id)
        elif header.record_count > 0 and not (header.is_transactional and header.producer_id in active):
            yield position, header


def ends_in(chunk: FetchedChunk, after: Mapping[int, int]) -> dict[int, bool]:
    """Return for producers whether their first marker after an offset, in a fetched chunk, is a commit."""
    found: dict[int, bool] = {}
    for position, header in chunk.batches:
        each = header.producer_id
        if header.is_control and each in after and each not in found and header.base_offset > after[each]:
            marker = chunk.marker(position, header)
            if marker is not None:
                found[each] = marker.control_type is ControlType.COMMIT
    return found
