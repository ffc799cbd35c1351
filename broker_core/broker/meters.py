"""Counters of the brokers' work.

They are plain numbers, incremented by the one thread of the core. Durations are measured with a stopwatch, which the
server provides. No decision depends on it, so the simulation, which has none, lacks only the durations.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from broker_core.installed import States
from broker_core.wire.error_responses import error_codes
from broker_core.wire.framing import Request, Response

# Milliseconds since an arbitrary point: only differences are meaningful.
Stopwatch: TypeAlias = Callable[[], float]
# The number of latest values that quantiles are computed from.
RECENT: Final = 1024


def stopped() -> float:
    """Return 0: without a stopwatch all durations are 0 ms."""
    return 0.0


class Timing:
    """The durations of one operation: count, sum, maximum, and the latest values."""

    __slots__ = ("count", "max_ms", "recent_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=RECENT)

    def add(self, duration_ms: float) -> None:
        self.count += 1
        self.total_ms += duration_ms
        if duration_ms > self.max_ms:
            self.max_ms = duration_ms
        self.recent_ms.append(duration_ms)


class RequestMeter:
    """The answered requests of one API by version, and the error codes in their responses."""

    __slots__ = ("by_version", "errors", "latency")

    def __init__(self) -> None:
        self.by_version: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.latency = Timing()


class Meters:
    """The counters of a cluster, for all its broker ids together."""

    def __init__(self, stopwatch: Stopwatch = stopped) -> None:
        self.stopwatch = stopwatch
        self.requests: defaultdict[str, RequestMeter] = defaultdict(RequestMeter)
        self.verification = Timing()
        self.verification_failures = 0
        # By internal topic: the time its coordinator took to load a partition.
        self.loads: dict[str, Timing] = {}
        # What features count.
        self.states = States()

    def answering(self, request: Request, response: Response) -> None:
        for code in filter(None, error_codes(response, request.version)):
            errors = self.requests[request.api.name].errors
            errors[code] = errors.get(code, 0) + 1

    def answered(self, request: Request, began_ms: float) -> None:
        meter = self.requests[request.api.name]
        meter.by_version[request.version] = meter.by_version.get(request.version, 0) + 1
        meter.latency.add(self.stopwatch() - began_ms)

    def verified(self, began_ms: float) -> None:
        """Count a verification that a leader requested of a coordinator at `began_ms`."""
        self.verification.add(self.stopwatch() - began_ms)

    def loaded(self, topic: str, began_ms: float) -> None:
        self.loads.setdefault(topic, Timing()).add(self.stopwatch() - began_ms)
