"""The limits at which a log begins a new segment."""

from typing import NamedTuple, Self

from broker_core.config import TopicConfig
from broker_core.log.cleaning_plan import MAX_RELATIVE_OFFSET, is_compacted
from broker_core.log.segment import Segment, largest_unfilled_bytes


class RollLimits(NamedTuple):
    """The limits of the active segment in the topic's settings, which change only with these."""

    segment_bytes: int
    segment_ms: int
    index_bytes: int
    # Segments up to this size need no look at their indexes.
    unfilled_bytes: int

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        segment_ms = config.segment_ms
        if is_compacted(config):
            # The active segment is never cleaned, so it must not be active for longer than the maximum compaction lag.
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        return cls(
            config.largest_segment_bytes,
            segment_ms,
            config.segment_index_bytes,
            largest_unfilled_bytes(config.segment_index_bytes),
        )

    def are_exceeded(self, active: Segment, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> bool:
        used_bytes = active.size_bytes
        if used_bytes == 0:
            return False
        return (
            used_bytes + size_bytes > self.segment_bytes
            # Age is measured by the records' timestamps, so that old records written today roll as they did originally.
            or 0 <= active.rolling_since_ms < max_timestamp_ms - self.segment_ms
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or (used_bytes > self.unfilled_bytes and active.is_index_full(self.index_bytes))
        )
