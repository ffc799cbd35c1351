"""A recorder of client operations, for several threads."""

import itertools
import threading
import time
from typing import Any

from tests.support.history.format import INVOKE, READ_COMMITTED, Op


class Recorder:
    """A history in the order in which its lines were added."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._lock = threading.Lock()
        self._values = itertools.count(1)
        self._began_ns = time.monotonic_ns()

    def next_value(self) -> int:
        """Return a value that no other record has."""
        return next(self._values)

    def note(
        self,
        process: str,
        kind: str,
        function: str,
        value: Any = None,
        *,
        transaction: str | None = None,
        isolation: str = READ_COMMITTED,
        rebalanced: bool = False,
        error: str | None = None,
    ) -> None:
        """Add one line."""
        with self._lock:
            self.ops.append(
                Op(
                    len(self.ops),
                    time.monotonic_ns() - self._began_ns,
                    process,
                    kind,
                    function,
                    value,
                    transaction,
                    isolation,
                    rebalanced,
                    error,
                )
            )

    def begin(self, process: str, function: str, value: Any = None, **more: Any) -> None:
        """Add the begin of an operation."""
        self.note(process, INVOKE, function, value, **more)
