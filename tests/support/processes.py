"""Trees of processes on Linux: search, signals and processor time."""

import os
import signal
from collections.abc import Iterable
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


def processor_seconds(root: int) -> float | None:
    """Return the processor time of a process and its descendants, ended ones included, or None without `/proc`."""
    found = tree(root)
    ticks = 0
    for process in found:
        with suppress(OSError):
            # User and system time, and the same of the ended children that were waited for.
            ticks += sum(map(int, _stat(Path(f"/proc/{process.pid}"))[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") if found else None


def _read(folder: Path) -> tuple[int, Process]:
    fields = _stat(folder)
    return int(fields[1]), Process(int(folder.name), int(fields[19]))


def _stat(folder: Path) -> list[str]:
    # The name, in parentheses, may contain any character.
    return (folder / "stat").read_text().rpartition(")")[2].split()
