"""Trees of processes on Linux: search, signals and processor time."""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process, distinguished from a later one with the same number."""

    pid: int
    started_ticks: int


def tree(root: int) -> list[Process]:
    """Return a process and all its descendants, parents first."""
    children: dict[int, list[Process]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent, process = _read(path)
            children.setdefault(parent, []).append(process)
    found = [process for group in children.values() for process in group if process.pid == root]
    for process in found:
        found += children.get(process.pid, [])
    return found


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for process in processes:
        with suppress(OSError):
            if _read(Path(f"/proc/{process.pid}"))[1] == process:
                os.kill(process.pid, number)


def is_executor(process: Process) -> bool:
    """Return whether a process is the JVM of an executor in a cluster."""
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return False


class Ticks(NamedTuple):
    """The processor time of a process: its own, and that of its ended children, and theirs, if they were waited for."""

    own: int
    waited: int


class ProcessorWatch:
    """The processor time of a process and its descendants since the watch began.

    A process that no other waits for takes its time with it, such as a worker whose parent is killed: the sums of two
    looks differ by less than what was used, or by a negative time. So each look adds what the processes have used since
    the last one. What an unwaited process used after its last look is lost: look often.
    """

    def __init__(self, root: int, read: Callable[[int], Mapping[Process, Ticks]] | None = None) -> None:
        self._root = root
        self._read = ticks_of_tree if read is None else read
        self._last = self._read(root)
        self._ticks = 0

    def look(self) -> float:
        """Return the seconds so far."""
        now, last = self._read(self._root), self._last
        none = Ticks(0, 0)
        ended = sum(sum(ticks) for process, ticks in last.items() if process not in now)
        waited = sum(ticks.waited - last.get(process, none).waited for process, ticks in now.items())
        self._ticks += sum(ticks.own - last.get(process, none).own for process, ticks in now.items())
        # What was waited for contains all that the ended ones had used before.
        self._ticks += max(waited - ended, 0)
        self._last = now
        return self._ticks / os.sysconf("SC_CLK_TCK")


def ticks_of_tree(root: int) -> dict[Process, Ticks]:
    """Return the processor time of a process and each of its descendants; empty without `/proc`."""
    found = {}
    for process in tree(root):
        with suppress(OSError):
            user, system, waited_user, waited_system = map(int, _stat(Path(f"/proc/{process.pid}"))[11:15])
            found[process] = Ticks(user + system, waited_user + waited_system)
    return found


def ticks_of_descendants(root: int) -> dict[Process, Ticks]:
    """Return the processor time of each descendant of a process, and what the process has waited for.

    It asks each process for its children, which is faster than to read every process of the machine.
    """
    found: dict[Process, Ticks] = {}
    pids = [root]
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        with suppress(OSError):
            fields = _stat(folder)
            user, system, waited_user, waited_system = map(int, fields[11:15])
            own = 0 if pid == root else user + system
            found[Process(pid, int(fields[19]))] = Ticks(own, waited_user + waited_system)
            # A thread that ends now has no children any more.
            for thread in (folder / "task").iterdir():
                with suppress(OSError):
                    pids += map(int, (thread / "children").read_text().split())
    return found


def _read(folder: Path) -> tuple[int, Process]:
    fields = _stat(folder)
    return int(fields[1]), Process(int(folder.name), int(fields[19]))


def _stat(folder: Path) -> list[str]:
    # The name, in parentheses, may contain any character.
    return (folder / "stat").read_text().rpartition(")")[2].split()
