"""The sockets between Spark's JVM and this Python process: their kind, and the delay of TCP acknowledgements.

Unless `spark.python.unix.domain.socket.enabled` is true, they are TCP on the loopback interface, and the JVM leaves
Nagle's algorithm on: it sends a task's settings, and delays the rows until those are acknowledged. Linux delays that
acknowledgement by 40 ms. docs/spark/latency.md has the figures.
"""

import logging
import os
import socket
import stat
from typing import Final

from spark_eos.runtime import ProcessState

logger = logging.getLogger(__name__)
SETTING: Final = "spark.python.unix.domain.socket.enabled"
# Spark sets these for its Python processes: the daemon that forks workers, and a worker that was started alone.
_ENABLED: Final = "PYTHON_UNIX_DOMAIN_ENABLED"
_PATH: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
_OPEN_FILES: Final = "/proc/self/fd"
_LOOPBACK: Final = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


def has_unix_sockets() -> bool:
    return os.environ.get(_ENABLED, "").lower() == "true" or _PATH in os.environ


def report_sockets(process: ProcessState) -> None:
    """Log once in a process that Unix domain sockets would deliver its rows sooner."""
    if not has_unix_sockets() and process.is_first("sockets"):
        logger.info(
            "Spark talks to its Python processes over TCP; with %s=true each micro-batch is faster, because it does "
            "not wait for TCP acknowledgements (see docs/spark/latency.md)",
            SETTING,
        )


def acknowledge_input() -> int:
    """Acknowledge input over TCP from this machine immediately, and count the sockets; on Linux only.

    Called when a task has its settings and waits for its rows, this avoids the delay described above. An early
    acknowledgement changes nothing else, so a broker's socket may be among them.
    """
    quick = getattr(socket, "TCP_QUICKACK", None)
    # With a default timeout, Python makes each socket object it creates non-blocking, for all users of the socket.
    if quick is None or has_unix_sockets() or socket.getdefaulttimeout() is not None:
        return 0
    try:
        names = os.listdir(_OPEN_FILES)
    except OSError:
        return 0
    return sum(_acknowledge(int(name), quick) for name in names)


def _acknowledge(file_descriptor: int, quick: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(file_descriptor).st_mode):
            return False
        # Another thread may close the file and open another one under the same number; a duplicate stays valid.
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
