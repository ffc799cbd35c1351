"""The decisions of earlier runs that a run has found again, and compared with its rows.

The name of a write in `foreachBatch` follows from its topic, so a write whose topic was changed has another name. It
may find its micro-batch decided under the name that it had before the restart, and must not write it again. But a
function may make several writes, and the other name may belong to another write. That is certain if this run has
compared that decision, since a function makes its writes in the same order again. Otherwise a write that is known from
an earlier micro-batch goes on only if its rows are other ones: the order may have changed.

Spark commits each write in any Python process of the driver. So a commit that finds its decision leaves an empty file
in the temporary directory of the driver's JVM (see `incarnation`). A driver that commits in its own process remembers
it.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from spark_eos.runtime import Clock, Runtime
from spark_eos.sink.decision import Decision
from spark_eos.sink.incarnation import local_path

_KIND: Final = "compared"
_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


class ComparedDecisions:
    """The compared decisions of all runs of a driver."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._names: set[str] = set()

    def add(self, decision: Decision, run: str) -> None:
        """Record that a run has compared a decision of another run."""
        name = _name(decision, run)
        self._names.add(name)
        path = local_path(_KIND, name)
        if path is not None:
            # Without the file the other writes stop, if they are committed in another process.
            with suppress(OSError):
                path.touch()

    def others(self, decisions: Iterable[Decision], run: str) -> list[Decision]:
        """Return the decisions of other runs that a run has not compared."""
        return [each for each in decisions if each.run != run and not self._has(_name(each, run))]

    def comes(self, decision: Decision, run: str, clock: Clock) -> bool:
        """Return whether a run compares a decision within some seconds: threads may make writes at the same time."""
        deadline = clock.monotonic() + _WAIT_SECONDS
        while not (is_compared := self._has(_name(decision, run))) and clock.monotonic() < deadline:
            clock.sleep(_PAUSE_SECONDS)
        return is_compared

    def _has(self, name: str) -> bool:
        path = local_path(_KIND, name)
        return name in self._names or (path is not None and path.exists())


def _name(decision: Decision, run: str) -> str:
    """Return a name without the revision, which the run may have raised since."""
    return repr((decision.prefix, decision.query, decision.run, *decision.rank[:2], decision.decided_at_ms, run))
