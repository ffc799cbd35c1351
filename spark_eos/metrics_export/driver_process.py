"""The process of Spark's driver that this Python process belongs to, and whether it is alive."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_SPARK_PROGRAMS: Final = "pyspark."
_DAEMON: Final = "pyspark.daemon"
_PATIENCE_SECONDS: Final = 5
_DEAD_STATES: Final = ("Z", "X")


class DriverProcess(NamedTuple):
    """A process; `started` distinguishes it from a later one with the same id, and is empty where there is no /proc."""

    process_id: int
    started: str


def driver_process() -> DriverProcess:
    """Return the process whose end is the end of the session.

    For a Python process that Spark has started it is the JVM, for the user's Python program the JVM that it drives.
    Without one on this machine (a client of Spark Connect), it is this process.
    """
    process_id = _parent_jvm() if _is_worker() else _active_jvm()
    # A worker whose JVM has ended belongs to process 1, unless that is the JVM.
    if process_id is None or (process_id == 1 and not _is_java(process_id)):
        process_id = os.getpid()
    return DriverProcess(process_id, _stat(process_id).started)


def is_alive(process: DriverProcess) -> bool:
    """Return whether a process has not ended; one that its parent has not waited for has ended."""
    if not (_PROC / "self" / "stat").exists():
        return _can_be_signaled(process.process_id)
    found = _stat(process.process_id)
    return bool(found.started) and found.started == process.started and found.state not in _DEAD_STATES


class _Stat(NamedTuple):
    state: str = ""
    parent: int | None = None
    started: str = ""


def _stat(process_id: int) -> _Stat:
    """Read Linux's file about a process; what is unknown is empty."""
    try:
        text = (_PROC / str(process_id) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _Stat()
    # The program's name is in parentheses and may have any characters.
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), fields[19])


def _can_be_signaled(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_worker() -> bool:
    return _main_program().startswith(_SPARK_PROGRAMS)


def _main_program() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return specification.name if specification is not None else ""


def _parent_jvm() -> int | None:
    """Return the JVM that started this worker, itself or by a daemon that forks workers."""
    parent = os.getppid()
    return (_parent_of(parent) or parent) if _main_program() == _DAEMON else parent


def _parent_of(process_id: int) -> int | None:
    parent = _stat(process_id).parent
    if parent is not None:
        return parent
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        command = ["ps", "-o", "ppid=", "-p", str(process_id)]
        return int(subprocess.run(command, capture_output=True, timeout=_PATIENCE_SECONDS, check=True).stdout)
    return None


def _is_java(process_id: int) -> bool:
    with suppress(OSError):
        return b"java" in (_PROC / str(process_id) / "cmdline").read_bytes().split(b"\0")[0]
    return False


def _active_jvm() -> int | None:
    """Return the JVM of this program's active SparkContext, by the name "ID@HOST" that JVMs give themselves."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if context is None:
        return None
    # Metrics stop no query, whatever a JVM answers.
    with suppress(Exception):
        name = context._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getName()
        return int(name.partition("@")[0])
    return None
