"""The removal of records at a log's start: retention and DeleteRecords.

Compaction, the other way to lose records, is in `cleaner`.
"""

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.reading import ReadableLog

UP_TO_HIGH_WATERMARK = -1


class TrimmedLog(ReadableLog):
    """A log whose oldest records go."""

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark), durably, and return it.

        Raises OFFSET_OUT_OF_RANGE above the high watermark, and POLICY_VIOLATION if the topic is only compacted.
        """
        policy = self.config.cleanup_policy
        # An empty policy keeps records until a client deletes them.
        if policy.strip() and "delete" not in policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted: its "
                f"cleanup.policy is {policy}, which must include delete",
            )
        if offset == UP_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not between 0 "
                f"and the high watermark {self.high_watermark}",
            )
        self.advance_log_start(offset)
        self._drop_below_log_start()
        return self.log_start_offset

    def _drop_below_log_start(self) -> None:
        """Delete the segments that end at or below the log start."""
        segments = self.segments
        while len(segments) > 1 and segments[1].base_offset <= self.log_start_offset:
            segments.drop_first().delete()
            self.has_unsynced_names = True
        for offset in self.snapshots.offsets[:-1]:
            if offset < segments[0].base_offset:
                self.snapshots.delete(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments beyond the retention time or size, or below the log start offset; return their number."""
        self._logged_error = ""
        before = len(self.segments)
        if "delete" in self.config.cleanup_policy:
            count = max(self._count_too_old(now_ms), self._count_too_large())
            if count == len(self.segments):
                if self.segments.active.size_bytes == 0:
                    count -= 1
                else:
                    self.roll()
                    before += 1
            if count:
                # The new start is made durable first: a segment that a crash restores is then below it.
                self.advance_log_start(self.segments[count].base_offset)
        self._drop_below_log_start()
        return before - len(self.segments)

    def _count_too_old(self, now_ms: int) -> int:
        limit_ms = self.config.retention_ms
        if limit_ms < 0:
            return 0
        for at, segment in enumerate(self.segments):
            newest_ms = segment.largest_timestamp[0]
            if newest_ms < 0:
                # After compaction there may be no record with a timestamp, or no record.
                if segment.size_bytes == 0:
                    continue
                newest_ms = segment.rolling_since_ms
            # Records without a timestamp never expire.
            if newest_ms < 0 or now_ms - newest_ms <= limit_ms:
                return at
        return len(self.segments)

    def _count_too_large(self) -> int:
        limit_bytes = self.config.retention_bytes
        if limit_bytes < 0:
            return 0
        excess = self.segments.size_bytes - limit_bytes
        for at, segment in enumerate(self.segments):
            excess -= segment.size_bytes
            if excess < 0:
                return at
        return len(self.segments)
