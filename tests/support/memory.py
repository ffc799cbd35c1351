"""The memory of a process."""

import shutil
import subprocess
from pathlib import Path

JCMD_DEADLINE_S = 120


def resident_mib(name: str, process_id: int | str = "self") -> float:
    """Return a process's memory in MiB: `VmRSS` is the current amount, `VmHWM` the peak."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 1024


def heap_bytes(jvm: int) -> int | None:
    """Return the size of what lives in a JVM's heap after a full collection; None where the JDK's tool is missing."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return None
    command = [jcmd, str(jvm), "GC.class_histogram"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=JCMD_DEADLINE_S, check=True)
    # The last line is the total: its name, the number of objects, and their bytes.
    return int(answer.stdout.split()[-1])
