"""Count what the sink does in this process, for logs and for whoever wants to export it."""

from collections.abc import Mapping
from threading import Lock


class Metrics:
    """Hold counters (which only grow) and gauges (which are set); names end with their unit where they have one.

    >>> from spark_eos.sink.metrics import METRICS
    >>> METRICS.snapshot().get("transactions_committed", 0) >= 0
    True
    """

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._lock = Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Raise a counter."""
        with self._lock:
            self._values[name] = self._values.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[name] = value

    def snapshot(self) -> Mapping[str, int]:
        """Copy all values."""
        with self._lock:
            return dict(self._values)


METRICS = Metrics()
