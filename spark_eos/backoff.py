"""The pauses between attempts."""

from typing import Final

# Keeps the result within a float for any number of attempts.
_MOST_DOUBLINGS: Final = 20


def backoff_ms(attempt: int, first_ms: float, longest_ms: float) -> float:
    """Return how long to wait before another attempt: `first_ms` after attempt 0, twice as long each time.

    It is at least a millisecond: attempts without any pause would only occupy a processor.

    >>> [backoff_ms(attempt, 100, 500) for attempt in range(4)]
    [100.0, 200.0, 400.0, 500]
    """
    return max(1.0, min(first_ms * 2.0 ** min(attempt, _MOST_DOUBLINGS), longest_ms))
