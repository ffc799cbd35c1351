"""The arithmetic of Kafka's quotas: a rate over several windows, and a bucket of tokens."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Sample:
    """The sum of the values of one window."""

    start_ms: int
    last_ms: int
    value: float = 0.0


class Rate:
    """A rate per second over the last `count` windows of `window_ms` each, as Kafka computes it.

    Until as many windows have passed, the missing ones but one count as empty, so that a burst at the beginning
    is spread over them.
    """

    def __init__(self, count: int, window_ms: int) -> None:
        self._count = count
        self._window_ms = window_ms
        self._samples: list[_Sample] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
            del self._samples[: -self._count - 1]
        self._samples[-1].value += value
        self._samples[-1].last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        length_ms = self._length_ms(now_ms)
        return sum(each.value for each in self._samples) / (length_ms / 1000)

    def _length_ms(self, now_ms: int) -> int:
        self._samples = [each for each in self._samples if now_ms - each.last_ms < self._count * self._window_ms]
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(0, missing) * self._window_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long the rate is at the limit again if nothing is added; 0 if it is not above."""
        rate = self.measure(now_ms)
        return 0 if rate <= limit else round((rate - limit) / limit * self._length_ms(now_ms))


class TokenBucket:
    """The tokens that changes of the cluster's topics take; there are at most `seconds` times the limit."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._tokens = 0.0
        self._updated_ms = 0

    def take(self, value: float, limit: float, now_ms: int) -> None:
        """Take tokens; their number may become negative."""
        self._refill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long there are no missing tokens."""
        self._refill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1000))

    def _refill(self, limit: float, now_ms: int) -> None:
        gained = limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._seconds * limit, self._tokens + gained)
        self._updated_ms = now_ms
