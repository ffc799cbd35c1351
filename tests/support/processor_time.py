"""The processor time of other processes, as Linux counts it."""

import os
from pathlib import Path


def tree_seconds(root: int) -> float | None:
    """Return the processor time of a process and all below it, those that have ended included; None without `/proc`."""
    if not Path("/proc/self/stat").exists():
        return None
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            # User and system time, and the same of the children that have ended and were waited for.
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    return sum(ticks[pid] for pid in ticks if _is_below(pid, root, parents)) / os.sysconf("SC_CLK_TCK")


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid != root and pid in parents:
        pid = parents[pid]
    return pid == root
