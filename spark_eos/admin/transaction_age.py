"""How long a transaction has been open: one answer for all views, from the evidence that can be right.

Only a coordinator knows when a transaction began, by its own clock. A partition knows the time of the producer's last
record, which the producer chose: it can lie in the future, or long before the transaction began.
"""

from typing import Final

from spark_eos.client.inspection import TransactionDescription

MINUTE_MS: Final = 60_000
# How far the clocks of two machines may differ.
_CLOCK_SKEW_MS: Final = MINUTE_MS


def possible_time(at_ms: int | None, now_ms: int) -> int | None:
    """Return a time from elsewhere, at most `now_ms`; None if it is in the future, which says nothing about an age."""
    if at_ms is None or not 0 < at_ms <= now_ms + _CLOCK_SKEW_MS:
        return None
    return min(at_ms, now_ms)


def began_at(
    described: TransactionDescription | None, record_ms: int | None, now_ms: int, *, seen_ms: int | None = None
) -> int | None:
    """Return when an open transaction began, None if that is unknown.

    `described` is what the coordinator of this very transaction says, and is right. Without it, the transaction is at
    least as old as it was seen, and as old as its records claim.
    """
    started = None if described is None else possible_time(described.start_time_ms, now_ms)
    if started is not None:
        return started
    times = [each for each in (seen_ms, possible_time(record_ms, now_ms)) if each is not None]
    return min(times, default=None)


def minutes(age_ms: int | None) -> int | None:
    """Return an age in whole minutes."""
    return None if age_ms is None else age_ms // MINUTE_MS
