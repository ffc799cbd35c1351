"""The command loop of adapters for clients written in Python."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

DEADLINE_S = 60
# Apache Kafka may be started twice in that time, which is slow.
COPY_DEADLINE_S = 150
BATCH = 10
# The group keeps members that a scenario has joined by hand.
LONG_SESSION_MS = 120_000
OUT = "copy of "


class Reading:
    """The records read, until there are enough: a last one in each partition, or some and then silence."""

    def __init__(self, partitions: int, until: str | None, at_least: int, quiet_s: float, tell: int | None) -> None:
        self.records: list[list[Any]] = []
        self._partitions = partitions
        self._until = until
        self._at_least = at_least
        self._quiet_s = quiet_s
        self._tell = tell
        self._ended: set[int] = set()
        self._end_s = time.monotonic() + DEADLINE_S
        self._last_s = time.monotonic()

    def add(self, partition: int, offset: int, value: bytes) -> None:
        """Add a record."""
        text = value.decode()
        self._last_s = time.monotonic()
        self.records.append([partition, offset, text])
        if text == self._until:
            self._ended.add(partition)
        if len(self.records) == self._tell:
            say({"note": self._tell})

    def continues(self) -> bool:
        """Return whether to read on; raise TimeoutError if records are missing for too long."""
        now_s = time.monotonic()
        if self._until is not None:
            if len(self._ended) == self._partitions:
                # The note comes first, because closing a consumer may take as long as its last fetch.
                say({"note": len(self.records)})
                return False
        elif len(self.records) >= self._at_least and now_s - self._last_s > self._quiet_s:
            return False
        if now_s > self._end_s:
            raise TimeoutError(f"read {self.records}")
        return True


class Copying:
    """The state of a consume-transform-produce loop."""

    def __init__(self, partitions: int, until: str, abort_every: int, hold_at: int, stop_after: int) -> None:
        self.commits = self.aborts = self.failures = 0
        self._partitions = partitions
        self._until = until.encode()
        self._abort_every = abort_every
        self._hold_at = hold_at
        self._stop_after = stop_after
        self._count = 0
        self._last: dict[int, int] = {}
        self._end_s = time.monotonic() + COPY_DEADLINE_S

    def continues(self, committed: Callable[[int], int]) -> bool:
        """Return whether a partition's last record is still to be copied; raise TimeoutError if that takes too long.

        With `stop_after`, so many commits are enough.
        """
        if self._stop_after and self.commits >= self._stop_after:
            return False
        if len(self._last) == self._partitions and all(committed(each) > at for each, at in self._last.items()):
            return False
        if time.monotonic() > self._end_s:
            raise TimeoutError(f"copied {self.outcome()}, seen the ends of {sorted(self._last)}")
        return True

    def ends_seen(self) -> list[int]:
        """Return the partitions whose last record has been read."""
        return list(self._last)

    def copies(self, records: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, bytes]]:
        """Transform: return partition and value of each record to produce."""
        out = []
        for partition, offset, value in records:
            if value == self._until:
                self._last[partition] = offset
            else:
                out.append((partition, OUT.encode() + value))
        return out

    def is_to_be_aborted(self) -> bool:
        """Return whether to abort the next transaction."""
        self._count += 1
        return bool(self._abort_every) and self._count % self._abort_every == 0

    def is_to_be_held(self) -> bool:
        """Return whether the transaction that is about to end is the one to stop at."""
        return self._count + 1 == self._hold_at

    def hold(self) -> None:
        """Send a note and stop: the test kills this process."""
        say({"note": self._hold_at})
        threading.Event().wait()

    def outcome(self) -> dict[str, int]:
        """Return the number of commits, aborts and failures."""
        return {"commits": self.commits, "aborts": self.aborts, "failures": self.failures}


def say(answer: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(command: Callable[[str, dict[str, Any]], Any], name_of: Callable[[Exception], str]) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say({"answer": command(request.pop("do"), request)})
        # Every error goes to the scenario, which knows which one it expects.
        except Exception as failure:
            say({"error": name_of(failure), "message": str(failure)})
