"""The memory of a process."""

from pathlib import Path


def resident_mib(name: str, process_id: int | str = "self") -> float:
    """Return a process's memory in MiB: `VmRSS` is the current amount, `VmHWM` the peak."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 1024
