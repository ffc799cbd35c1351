"""The sockets over which Spark's JVM talks to this Python process: which kind they are, and what makes them wait.

Unless `spark.python.unix.domain.socket.enabled` is true, they are TCP on the loopback interface, and the JVM leaves
Nagle's algorithm on: it sends a task's settings, and holds the rows back until those are acknowledged. Linux delays
that acknowledgement by 40 ms. docs/spark/latency.md has the figures.
"""

import logging
import os
import socket
import stat
from typing import Final

from spark_eos.runtime import ProcessState, Runtime

logger = logging.getLogger(__name__)
SETTING: Final = "spark.python.unix.domain.socket.enabled"
# Spark tells its Python processes by these: the daemon that forks workers, and a worker that was started alone.
_ENABLED: Final = "PYTHON_UNIX_DOMAIN_ENABLED"
_PATH: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
_OPEN_FILES: Final = "/proc/self/fd"
_LOOPBACK: Final = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


def has_unix_sockets() -> bool:
    """Say whether Spark talks to this process over Unix domain sockets."""
    return os.environ.get(_ENABLED, "").lower() == "true" or _PATH in os.environ


class _Report:
    """Whether a process has reported its sockets."""

    def __init__(self, _runtime: Runtime) -> None:
        self.is_made = False


def report_sockets(process: ProcessState) -> None:
    """Log once in a process that it would get its rows sooner over Unix domain sockets."""
    report = process.part(_Report)
    if has_unix_sockets() or report.is_made:
        return
    report.is_made = True
    logger.info(
        "Spark talks to its Python processes over TCP here; with %s=true each micro-batch is faster by the time that "
        "TCP's acknowledgements wait, see docs/spark/latency.md",
        SETTING,
    )


def acknowledge_input() -> int:
    """Acknowledge now what has come over TCP from this machine, and count the sockets; nothing beyond Linux.

    Called when a task has its settings and waits for its rows, this saves the wait described above. An acknowledgement
    that is sent early changes nothing else, so it does not matter that a broker's socket may be among them.
    """
    quick = getattr(socket, "TCP_QUICKACK", None)
    # With a default timeout, Python makes each socket that it is shown non-blocking, for all its users.
    if quick is None or has_unix_sockets() or socket.getdefaulttimeout() is not None:
        return 0
    return sum(_acknowledge(int(name), quick) for name in _open_files())


def _open_files() -> list[str]:
    try:
        return os.listdir(_OPEN_FILES)
    except OSError:
        return []


def _acknowledge(file_descriptor: int, quick: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(file_descriptor).st_mode):
            return False
        # The number may belong to another file by now, when another thread opens and closes some: a copy stays.
        copy = os.dup(file_descriptor)
    except OSError:
        return False
    try:
        with socket.socket(fileno=copy) as found:
            copy = -1
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getpeername()[0] not in _LOOPBACK:
                return False
            found.setsockopt(socket.IPPROTO_TCP, quick, 1)
            return True
    except OSError:
        return False
    finally:
        if copy >= 0:
            os.close(copy)
