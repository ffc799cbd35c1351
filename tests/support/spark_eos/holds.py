"""Processes of Spark that are held at a failpoint until a test lets them continue."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from tests.support.waiting import wait_until

HOLD_DEADLINE_S = 240


@dataclass(frozen=True)
class Hold:
    """A rule that holds the first process that reaches a point."""

    rule: str
    path: Path

    def wait(self, query: StreamingQuery | None = None) -> int:
        """Wait until a process is held, and return its id; raise if the query ends before that."""

        def is_held() -> bool:
            if not self.path.exists() and query is not None and not query.isActive:
                raise AssertionError(f"the query ended before {self.rule}: {query.exception()}")
            return self.path.exists()

        wait_until(is_held, f"a process is held by {self.rule}", deadline_s=HOLD_DEADLINE_S)
        return int(self.path.read_text())

    def release(self) -> None:
        """Let the process continue."""
        self.path.unlink(missing_ok=True)


@dataclass
class Holds:
    """The rules of a session, in the file `rules`; `folder` has a file for each process that is held."""

    folder: Path
    rules: Path

    def hold(self, point: str, micro_batch: int | None = 0) -> Hold:
        """Make a rule that holds one process; `arm` it."""
        path, mark = (self.folder / f"{kind}-{uuid.uuid4().hex}" for kind in ("held", "mark"))
        place = "" if micro_batch is None else f"@{micro_batch}"
        return Hold(f"{point}=once:{mark}|hold:{path}{place}", path)

    def arm(self, *rules: str) -> None:
        """Replace all rules of the session."""
        fresh = self.rules.with_suffix(".fresh")
        fresh.write_text(";".join(rules))
        os.replace(fresh, self.rules)

    def end(self) -> None:
        """Leave nothing armed or held: a query of a failed test must not keep a slot either."""
        self.rules.unlink(missing_ok=True)
        for held in self.folder.glob("held-*"):
            held.unlink()
