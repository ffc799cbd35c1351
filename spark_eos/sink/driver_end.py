"""The end of a driver, whatever ends it: what another process may do then, and what no process may do any more.

SIGTERM, Ctrl-C, `spark.stop()` and the end of the program do not make Spark call `abort`, and what tasks have prepared
would block readers. But Spark then deletes the temporary directory that the processes of one driver share (see
`incarnation`). So a process that waits for that sweeps afterwards.

It must not abort what is decided at that very moment: a process that commits may outlive the JVM for a while. The two
exclude each other with a lock on a file beside that directory, which commits share. The sweep waits until it has the
lock alone, which the system releases when a process dies, and marks the file: a commit that begins later is refused.
The file is deleted after the directory, never before: another process may wait too, and a new file of this name would
be another lock. So where the directory is and no file is, no process waits.

The process that waits imports only this module, so this module imports nothing of this package.
"""

import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_LOCK: Final = ".eos-kafka"
_ENDED: Final = b"ended"
_POLL_SECONDS: Final = 0.1
# A JVM deletes its directory before it ends; one that was killed does not.
_GRACE_SECONDS: Final = 10.0


def create_lock(folder: str) -> None:
    """Create the lock file of a driver, whose commits take it from then on."""
    os.close(os.open(folder + _LOCK, os.O_CREAT | os.O_RDWR, 0o600))


@contextmanager
def before_driver_ends(folder: str | None, refuse: Callable[[], BaseException]) -> Iterator[None]:
    """Commit while nothing sweeps the driver's transactions; raise what `refuse` returns if the driver has ended."""
    if folder is None:
        yield
        return
    try:
        lock = os.open(folder + _LOCK, os.O_RDONLY)
    except OSError:
        if not os.path.isdir(folder):
            raise refuse() from None
        yield
        return
    try:
        _lock(lock, alone=False)
        if os.read(lock, 1):
            raise refuse()
        yield
    finally:
        os.close(lock)


def after_driver_ends(folder: str, parent_id: int, call: bytes) -> None:
    """Wait until a driver has ended and none of its processes commits, then make a pickled call.

    Nothing is called if the parent of the driver's Python processes ends and the directory stays: the JVM was killed.
    """
    try:
        lock = os.open(folder + _LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        gone_at: float | None = None
        while os.path.isdir(folder):
            if gone_at is None and not _exists(parent_id):
                gone_at = time.monotonic()
            if gone_at is not None and time.monotonic() >= gone_at + _GRACE_SECONDS:
                return
            time.sleep(_POLL_SECONDS)
        # Raises on a file system without locks.
        _lock(lock, alone=True)
        os.write(lock, _ENDED)
    finally:
        os.close(lock)
        if not os.path.isdir(folder):
            with suppress(OSError):
                os.unlink(folder + _LOCK)
    pickle.loads(call)()


def _lock(descriptor: int, *, alone: bool) -> None:
    # Not on Windows, where nothing waits for a driver's end either.
    import fcntl

    if alone:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except OSError:
        return False
    return True
