"""The names of compared decisions, for all processes of a driver; see `protocol.compared_decisions`.

Spark commits each write in any Python process of the driver. So a commit that finds its decision leaves an empty file
in the temporary directory of the driver's JVM (see `incarnation`). A driver that commits in its own process remembers
it.
"""

from contextlib import suppress

from spark_eos.runtime import Runtime
from spark_eos.sink.incarnation import local_path


class ComparedNames:
    """The names of the decisions that the runs of a driver have compared."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Record a name."""
        self._names.add(name)
        path = local_path("compared", name)
        if path is not None:
            # Without the file the other writes stop, if they are committed in another process.
            with suppress(OSError):
                path.touch()

    def __contains__(self, name: object) -> bool:
        """Return whether any process of the driver has recorded a name."""
        path = local_path("compared", str(name))
        return name in self._names or (path is not None and path.exists())
