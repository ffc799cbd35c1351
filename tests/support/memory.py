"""Ask the system what a process holds."""

from pathlib import Path


def resident_mib(name: str, process_id: int | str = "self") -> float:
    """Read a size of a process's memory in MiB: `VmRSS`, what it holds, or `VmHWM`, the most it ever held."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 1024
