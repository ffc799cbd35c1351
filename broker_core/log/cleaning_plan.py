"""The plan of a compaction: whether it is due, its end, and which segments are merged.

Only whole segments are cleaned. The end of the dirty range is therefore the base of a segment: of the one that has
the last stable offset, of the active one, or of the first whose records are younger than min.compaction.lag.ms.
"""

from typing import NamedTuple

from broker_core.config import TopicConfig
from broker_core.log.segment import Segment
from broker_core.log.state import LogState

# An index counts offsets from its segment's base in 31 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1


class CleaningPlan(NamedTuple):
    """The plan of one pass: it reads the keys of [first_dirty_offset, end_offset) and cleans everything below its end.

    The segments from `dirty_at` up to `end_at` contain the dirty range.
    """

    first_dirty_offset: int
    end_offset: int
    dirty_at: int
    end_at: int


def is_compacted(config: TopicConfig) -> bool:
    """Return whether the topic is compacted, with or without deletion."""
    return "compact" in (policy.strip() for policy in config.cleanup_policy.split(","))


def plan_cleaning(state: LogState, now_ms: int) -> CleaningPlan | None:
    """Return the plan of a pass; None if nothing can be cleaned or too little is dirty."""
    if not is_compacted(state.config):
        return None
    plan = _cleanable(state, now_ms)
    segments = state.segments
    clean_bytes = sum(segments[at].size_bytes for at in range(plan.dirty_at))
    dirty_bytes = sum(segments[at].size_bytes for at in range(plan.dirty_at, plan.end_at))
    if dirty_bytes == 0:
        return None
    if dirty_bytes > state.config.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
        return plan
    return plan if _is_overdue(state, plan, now_ms) else None


def _cleanable(state: LogState, now_ms: int) -> CleaningPlan:
    segments, lag_ms = state.segments, state.config.min_compaction_lag_ms
    first_dirty = state.first_dirty_offset
    if not state.log_start_offset <= first_dirty <= state.log_end_offset:
        # The cleaned range was deleted since, or the log was emptied.
        first_dirty = state.log_start_offset
    dirty_at = end_at = segments.index_of(first_dirty)
    bound = min(state.last_stable_offset, segments.active.base_offset)
    while end_at + 1 < len(segments) and segments[end_at + 1].base_offset <= bound:
        if lag_ms > 0 and segments[end_at].largest_timestamp[0] > now_ms - lag_ms:
            break
        end_at += 1
    return CleaningPlan(first_dirty, segments[end_at].base_offset, dirty_at, end_at)


def _is_overdue(state: LogState, plan: CleaningPlan, now_ms: int) -> bool:
    """Return whether a dirty record is older than max.compaction.lag.ms (KIP-354)."""
    begun = (state.segments[at].rolling_since_ms for at in range(plan.dirty_at, plan.end_at))
    oldest_ms = min((since_ms for since_ms in begun if since_ms > 0), default=None)
    return oldest_ms is not None and oldest_ms < now_ms - state.config.max_compaction_lag_ms


def group_segments(state: LogState, end_at: int) -> list[list[Segment]]:
    """Return the segments below `end_at` in groups that fit into one segment even if nothing is removed."""
    groups: list[list[Segment]] = []
    for at in range(end_at):
        segment = state.segments[at]
        if groups and _fits(state, groups[-1], segment, state.segments.end_of(at, state.log_end_offset)):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(state: LogState, group: list[Segment], segment: Segment, end_offset: int) -> bool:
    config, together = state.config, [*group, segment]
    return (
        sum(each.size_bytes for each in together) <= config.largest_segment_bytes
        and sum(each.offset_index.size_bytes for each in together) <= config.segment_index_bytes
        and sum(each.time_index.size_bytes for each in together) <= config.segment_index_bytes
        and end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )
