"""The budget of requests per second, which all connections of a console share."""

import threading
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, Final

from spark_eos.client.transport import SocketTransport
from spark_eos.runtime import Pending, Runtime

_WINDOW_SECONDS: Final = 10.0


class RequestBudget:
    """A token bucket: as many requests at once as it allows in one second, and that rate from then on."""

    def __init__(self, per_second: float, runtime: Runtime) -> None:
        self.per_second = per_second
        self.total = 0
        self._runtime, self._clock = runtime, runtime.clock
        self._lock = threading.Lock()
        self._tokens = self._size = max(per_second, 1.0)
        self._filled_at = self._clock.monotonic()
        self._sent: deque[float] = deque()

    def take(self) -> float:
        """Count one request; return how many seconds it has to wait."""
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._size, self._tokens + (now - self._filled_at) * self.per_second)
            self._filled_at = now
            self._tokens -= 1
            wait = max(0.0, -self._tokens / self.per_second)
            self.total += 1
            self._sent.append(now + wait)
            self._forget(now)
            return wait

    @property
    def recent_per_second(self) -> float:
        with self._lock:
            now = self._clock.monotonic()
            self._forget(now)
            return sum(each <= now for each in self._sent) / _WINDOW_SECONDS

    def _forget(self, now: float) -> None:
        while self._sent and self._sent[0] < now - _WINDOW_SECONDS:
            self._sent.popleft()

    def runtime(self) -> Runtime:
        """Return the runtime of clients whose requests wait for this budget."""
        return replace(self._runtime, open_transport=partial(_BudgetedTransport, self))


class _BudgetedTransport(SocketTransport):
    """Connections whose requests wait for the budget; the wait keeps connections alive."""

    def __init__(self, budget: RequestBudget, *arguments: Any) -> None:
        self._budget = budget
        super().__init__(*arguments)

    def start(self, node_id: int | str, request: Any, deadline: float) -> Pending:
        wait = self._budget.take()
        if wait > 0:
            self.pause(wait)
        return super().start(node_id, request, deadline + wait)
