"""The Unix socket where processes of one driver find their exporter, and what they send to it.

It is in a folder that only their user can open, so what they send is pickled: the targets, and the changes of each
side. The answer is a JSON document. The driver is the process of Spark that this Python process belongs to.
"""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")


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
    return bool(found.started) and found.started == process.started and found.state not in ("Z", "X")


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
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _is_worker() -> bool:
    return _main_program().startswith("pyspark.")


def _main_program() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return specification.name if specification is not None else ""


def _parent_jvm() -> int | None:
    """Return the JVM that started this worker, itself or by a daemon that forks workers."""
    parent = os.getppid()
    return (_parent_of(parent) or parent) if _main_program() == "pyspark.daemon" else parent


def _parent_of(process_id: int) -> int | None:
    parent = _stat(process_id).parent
    if parent is not None:
        return parent
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        command = ["ps", "-o", "ppid=", "-p", str(process_id)]
        return int(subprocess.run(command, capture_output=True, timeout=5, check=True).stdout)
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


_SUFFIX: Final = ".sock"
# The path of a socket may have about a hundred bytes, and temporary folders of YARN have longer names.
_LONGEST_PATH: Final = 100
_LONGEST_NAME: Final = 45


def folder() -> Path:
    """Return the folder of this user's exporters, created if there is none; raise OSError if another user owns it."""
    name = f"eos-kafka-{os.getuid()}"
    places = [Path(tempfile.gettempdir()) / name, Path("/tmp") / name]
    path = next(each for each in (*places, places[-1]) if len(str(each)) + _LONGEST_NAME <= _LONGEST_PATH)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is no folder that only the user {os.getuid()} can open")
    return path


def socket_path(driver: DriverProcess) -> Path:
    return folder() / f"{driver.process_id}-{driver.started}{_SUFFIX}"


def connect(driver: DriverProcess, timeout_s: float) -> socket.socket:
    """Connect to the exporter; raise OSError if there is none."""
    with ExitStack() as failing:
        connection = failing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(timeout_s)
        connection.connect(str(socket_path(driver)))
        failing.pop_all()
        return connection


class MeetingPlace:
    """The listening socket of an exporter, which one exporter of a driver has at a time."""

    def __init__(self, driver: DriverProcess) -> None:
        """Listen; raise FileExistsError if the driver has an exporter."""
        self._path = socket_path(driver)
        own = self._path.with_name(f"{os.getpid()}.new")
        own.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(own))
        self.listener.listen(128)
        self._inode = own.lstat().st_ino
        try:
            # Links are created once; a name that is bound could have been unbound in between.
            os.link(own, self._path)
        except FileExistsError:
            if self._answers(driver):
                self.listener.close()
                raise
            # An exporter was killed.
            os.replace(own, self._path)
        finally:
            own.unlink(missing_ok=True)
        _sweep(self._path.parent)

    @property
    def is_mine(self) -> bool:
        """Return whether processes of the driver find this exporter here."""
        with suppress(OSError):
            return self._path.lstat().st_ino == self._inode
        return False

    def close(self) -> None:
        if self.is_mine:
            self._path.unlink(missing_ok=True)
        self.listener.close()

    def _answers(self, driver: DriverProcess) -> bool:
        with suppress(OSError):
            connect(driver, 5.0).close()
            return True
        return False


def _sweep(path: Path) -> None:
    """Remove the sockets of exporters that were killed, and whose drivers have ended."""
    for each in path.glob(f"*{_SUFFIX}"):
        process_id, _, started = each.name.removesuffix(_SUFFIX).partition("-")
        if process_id.isdigit() and not is_alive(DriverProcess(int(process_id), started)):
            each.unlink(missing_ok=True)


def receive(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as sent:
        return sent.read()
