"""Temporary files of tests in memory, if there is enough of it.

Brokers sync their files. Where something else writes to the same disk, each sync waits for that: tests that need 2
seconds of a processor took 80 seconds. A process that is killed loses nothing here either. `TMPDIR=/var/tmp` is a disk.
Containers often forbid programs in such a folder, which tests of installations put there.
"""

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/dev/shm")
# The tests have a few hundred MiB of files at a time; JVMs of Spark and Apache Kafka need the rest.
NEEDED_BYTES: Final = 8 << 30
_PREFIX: Final = "k-"
_LONGEST_RUN_S: Final = 24 * 3600


def use_memory(
    environ: MutableMapping[str, str],
    *,
    folder: Path = FOLDER,
    needed_bytes: int = NEEDED_BYTES,
    memory: Path = Path("/proc/meminfo"),
) -> None:
    """Set `TMPDIR` for this process and its children, unless it is set or there is too little memory."""
    if "TMPDIR" in environ:
        return
    try:
        available = dict(line.split(":") for line in memory.read_text().splitlines())["MemAvailable"]
        forbids_programs = os.statvfs(folder).f_flag & os.ST_NOEXEC
        free_bytes = min(shutil.disk_usage(folder).free, int(available.split()[0]) << 10)
    except (OSError, KeyError):
        return
    if free_bytes >= needed_bytes and not forbids_programs:
        environ["TMPDIR"] = str(folder)


def own_folder(place: Path) -> str:
    """Make a temporary folder that this process removes when it ends; also remove the folders of killed runs."""
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _LONGEST_RUN_S:
                shutil.rmtree(left)
    folder, owner = tempfile.mkdtemp(prefix=_PREFIX, dir=place), os.getpid()

    def remove() -> None:
        # Not in a fork.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
