"""Hold answers back until the coordinator's state is whole again."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


class Replies:
    """Queue answers and deliver them once the operation at hand is over.

    A callback may come straight back with the next request; delivered in the midst of a rebalance it
    would meet a group half changed.
    """

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._delivering = False

    def add(self, reply: Callable[[_Result], None], result: _Result) -> None:
        """Queue one answer."""
        self._queue.append(lambda: reply(result))

    def deliver(self) -> None:
        """Give the queued answers, in order; those that come up meanwhile are delivered too."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._delivering = False
