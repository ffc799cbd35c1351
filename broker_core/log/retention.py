"""The removal of records at a log's start: retention and DeleteRecords.

Compaction, the other way to lose records, is in `cleaner`.
"""

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.state import LogState

UP_TO_HIGH_WATERMARK = -1


def delete_records_before(state: LogState, offset: int) -> int:
    """Move the log start to `offset` (-1: the high watermark) and return it; segments below it go."""
    policy = state.config.cleanup_policy
    # An empty policy keeps records until a client deletes them.
    if policy.strip() and "delete" not in policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {state.topic_partition} cannot be deleted: its "
            f"cleanup.policy is {policy}, which must include delete",
        )
    if offset == UP_TO_HIGH_WATERMARK:
        offset = state.high_watermark
    if offset < 0 or offset > state.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {state.topic_partition} is not between 0 "
            f"and the high watermark {state.high_watermark}",
        )
    state.advance_log_start(offset)
    drop_below_log_start(state)
    return state.log_start_offset


def drop_below_log_start(state: LogState) -> None:
    """Delete the segments that end at or below the log start."""
    segments = state.segments
    while len(segments) > 1 and segments[1].base_offset <= state.log_start_offset:
        segments.drop_first().delete()
        state.has_unsynced_names = True
    for offset in state.snapshots.offsets[:-1]:
        if offset < segments[0].base_offset:
            state.snapshots.delete(offset)


def apply_retention(state: LogState, now_ms: int) -> int:
    """Delete the oldest segments beyond the retention time or size; return their number."""
    before = len(state.segments)
    if "delete" in state.config.cleanup_policy:
        count = max(_count_too_old(state, now_ms), _count_too_large(state))
        if count == len(state.segments):
            if state.segments.active.size_bytes == 0:
                count -= 1
            else:
                state.roll()
                before += 1
        if count:
            # The new start is made durable first: a segment that a crash restores is then below it.
            state.advance_log_start(state.segments[count].base_offset)
    drop_below_log_start(state)
    return before - len(state.segments)


def _count_too_old(state: LogState, now_ms: int) -> int:
    limit_ms = state.config.retention_ms
    if limit_ms < 0:
        return 0
    for at, segment in enumerate(state.segments):
        newest_ms = segment.largest_timestamp[0]
        if newest_ms < 0:
            # After compaction there may be no record with a timestamp, or no record.
            if segment.size_bytes == 0:
                continue
            newest_ms = segment.rolling_since_ms
        # Records without a timestamp never expire.
        if newest_ms < 0 or now_ms - newest_ms <= limit_ms:
            return at
    return len(state.segments)


def _count_too_large(state: LogState) -> int:
    limit_bytes = state.config.retention_bytes
    if limit_bytes < 0:
        return 0
    excess = state.segments.size_bytes - limit_bytes
    for at, segment in enumerate(state.segments):
        excess -= segment.size_bytes
        if excess < 0:
            return at
    return len(state.segments)
