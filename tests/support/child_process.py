"""Processes that end with this one, so that a killed test run leaves no broker behind."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

_PR_SET_PDEATHSIG = 1


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start `command` as `subprocess.Popen` does; on Linux it is killed when this process ends.

    Linux kills the child with the *thread* that started it: a JVM that many tests share ended with the pool of the test
    that needed it first. So one thread, which lives as long as this process, starts every child.
    """
    if sys.platform != "linux":
        return subprocess.Popen(command, **options)
    options["preexec_fn"] = _die_with_parent
    return _starter(os.getpid()).submit(lambda: subprocess.Popen(command, **options)).result()


@cache
def _starter(process_id: int) -> ThreadPoolExecutor:
    """Return the thread of this process: a forked one has no thread of its parent."""
    return ThreadPoolExecutor(1, "start_child")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
