"""The batch sizes that brokers accept for a topic, as learned from refused batches.

`max.message.bytes` is a topic setting, and reading it takes a right that producers seldom have. So the first batches of
a process discover it, and the next ones are made to fit.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core.records.compression import Compression, decompress
from broker_core.records.header import HEADER_SIZE, BatchHeader
from spark_eos.runtime import Clock

if TYPE_CHECKING:
    # A process that plans a write has a client and no batches.
    from spark_eos.codec.encoded_batch import EncodedBatch

# The setting may be raised while a query runs; it costs one refused batch to find out.
_KEPT_SECONDS: Final = 600.0


class _Limit(NamedTuple):
    refused_bytes: int
    records_bytes: int
    noted_at: float


class BatchLimits:
    """What one process has learned about the topics of one cluster."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[str, _Limit] = {}

    def note_refused(self, topic: str, batch: "EncodedBatch") -> None:
        """Record that a batch of several records was too large: halves of it are tried next."""
        records_bytes = _uncompressed_bytes(batch) // 2
        known = self._known(topic)
        refused_bytes = batch.size_bytes
        if known is not None:
            refused_bytes = min(refused_bytes, known.refused_bytes)
            records_bytes = min(records_bytes, known.records_bytes)
        self._limits[topic] = _Limit(refused_bytes, records_bytes, self._clock.monotonic())

    def is_too_large(self, topic: str, batch: "EncodedBatch") -> bool:
        """Return whether a batch as small as this one was refused and this one can be split."""
        known = self._known(topic)
        return known is not None and batch.record_count > 1 and batch.size_bytes >= known.refused_bytes

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Return the batch size to use, before compression, where `wanted_bytes` is the user's choice."""
        known = self._known(topic)
        return wanted_bytes if known is None else min(wanted_bytes, known.records_bytes)

    def _known(self, topic: str) -> _Limit | None:
        limit = self._limits.get(topic)
        if limit is not None and self._clock.monotonic() - limit.noted_at > _KEPT_SECONDS:
            del self._limits[topic]
            return None
        return limit


def _uncompressed_bytes(batch: "EncodedBatch") -> int:
    compression = BatchHeader.parse(batch.data).compression
    if compression is Compression.NONE:
        return batch.size_bytes
    return HEADER_SIZE + len(decompress(compression, bytes(memoryview(batch.data)[HEADER_SIZE:])))
