"""Counters of what the brokers do, raised as it happens.

Plain numbers, raised by the one thread of the core. How long something took is measured by a stopwatch, which the
server brings along: it decides nothing, so the simulation, which has none, loses no more than durations.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from broker_core.wire.error_responses import error_codes
from broker_core.wire.framing import Request

# Milliseconds since whenever: only differences mean anything.
Stopwatch: TypeAlias = Callable[[], float]
# Quantiles speak of so many values, the latest.
RECENT: Final = 1024


def stopped() -> float:
    """Return no time: everything takes 0 ms."""
    return 0.0


class Timing:
    """How often something was timed, how long it took in all and at the most, and its latest durations."""

    __slots__ = ("count", "max_ms", "recent_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=RECENT)

    def add(self, duration_ms: float) -> None:
        """Take in one duration."""
        self.count += 1
        self.total_ms += duration_ms
        if duration_ms > self.max_ms:
            self.max_ms = duration_ms
        self.recent_ms.append(duration_ms)


class RequestMeter:
    """The answered requests of one API by version, and the error codes in their answers."""

    __slots__ = ("by_version", "errors", "latency")

    def __init__(self) -> None:
        self.by_version: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.latency = Timing()


class Meters:
    """The counters of a cluster, for all its broker ids together."""

    def __init__(self, stopwatch: Stopwatch = stopped) -> None:
        self.stopwatch = stopwatch
        self.requests: dict[str, RequestMeter] = {}
        self.verification = Timing()
        self.verification_failures = 0
        # By internal topic: how long its coordinator took to load a partition.
        self.loads: dict[str, Timing] = {}

    def answering(self, request: Request, response: Any) -> None:
        """Count the errors in an answer."""
        for code in filter(None, error_codes(response, request.version)):
            errors = self._of(request).errors
            errors[code] = errors.get(code, 0) + 1

    def answered(self, request: Request, began_ms: float) -> None:
        """Count a request whose answer leaves now; `began_ms` is what the stopwatch showed when it was taken up."""
        meter = self._of(request)
        meter.by_version[request.version] = meter.by_version.get(request.version, 0) + 1
        meter.latency.add(self.stopwatch() - began_ms)

    def verified(self, began_ms: float) -> None:
        """Take in that a coordinator has answered a leader that asked at `began_ms`."""
        self.verification.add(self.stopwatch() - began_ms)

    def loaded(self, topic: str, began_ms: float) -> None:
        """Take in that a coordinator has loaded one partition of its internal topic."""
        self.loads.setdefault(topic, Timing()).add(self.stopwatch() - began_ms)

    def _of(self, request: Request) -> RequestMeter:
        meter = self.requests.get(request.api.name)
        if meter is None:
            meter = self.requests[request.api.name] = RequestMeter()
        return meter
