"""Storage on a real disk, under one root folder.

Thousands of partitions have more files than a process may keep open. Descriptors are therefore pooled: the pool closes
the one opened longest ago, and its file reopens when it is used again. A sync through a new descriptor also covers
earlier writes, because the kernel tracks dirty pages by file, not by descriptor.

Syncs of different files run in parallel threads, because a sync mostly waits for the disk and the kernel combines
concurrent writes. Otherwise a step that writes to fifty partitions would wait for fifty syncs in turn.
"""

import fcntl
import os
import resource
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from broker_core.errors import ConfigError
from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import File, Pending, Storage, Volume

# Apache Kafka's name for the same file.
_LOCK_FILE = ".lock"
_SYNC_THREADS = 8
# A sync of less takes about as long as passing it to a thread and back.
_MIN_OVERLAPPING_BYTES = 256 * 1024
_MAX_OPEN_FILES = 512

_sync_descriptor: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def _sync_and_close(descriptor: int) -> None:
    try:
        _sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _sync_each(syncs: Sequence[Callable[[], None]]) -> list[Exception]:
    failures: list[Exception] = []
    for sync in syncs:
        try:
            sync()
        except Exception as error:
            failures.append(error)
    return failures


class DiskFile:
    """A file of a `DiskStorage`."""

    __slots__ = ("_descriptor", "_overwriting", "_path", "_storage")

    def __init__(self, storage: "DiskStorage", path: str) -> None:
        self._storage = storage
        self._path = path
        self._descriptor = -1
        self._overwriting = -1

    def size(self) -> int:
        with self._storage.borrowing:
            return os.fstat(self._borrow()).st_size

    def append(self, data: bytes | bytearray | memoryview) -> None:
        descriptor = self._descriptor if self._descriptor >= 0 else self._borrow()
        written = os.write(descriptor, data)
        while written < len(data):
            # A full disk or a signal can cause a partial write. Writing the rest succeeds or raises the reason.
            written += os.write(descriptor, memoryview(data)[written:])

    def overwrite(self, position: int, data: bytes) -> None:
        self._borrow()
        if self._overwriting < 0:
            # The other descriptor appends: through it, Linux writes at the end whatever the position is.
            self._overwriting = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        written = os.pwrite(self._overwriting, data, position)
        while written < len(data):
            written += os.pwrite(self._overwriting, memoryview(data)[written:], position + written)

    def read(self, position: int, size_bytes: int) -> bytes:
        return os.pread(self._borrow(), size_bytes, position)

    def truncate(self, size_bytes: int) -> None:
        descriptor = self._borrow()
        if size_bytes < os.fstat(descriptor).st_size:
            os.ftruncate(descriptor, size_bytes)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        with self._storage.borrowing:
            # The file may be closed before the sync, and its descriptor then belongs to another one.
            descriptor = os.dup(self._borrow())
        return partial(_sync_and_close, descriptor)

    def close(self) -> None:
        """Return the descriptor to the pool; later use opens a new one."""
        self._storage.pool.pop(self, None)
        self.give_up()

    def give_up(self) -> None:
        """Close the descriptors; called by the storage when the pool is full."""
        for descriptor in (self._descriptor, self._overwriting):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._overwriting = -1

    def create(self) -> None:
        self._open(os.O_CREAT)

    def _borrow(self) -> int:
        if self._descriptor < 0:
            # A file that was removed while the broker runs is an error; a new one would be an empty log.
            self._open()
        return self._descriptor

    def _open(self, creating: int = 0) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | creating | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._storage.register(self)


def _open_files() -> int:
    """Return how many files to keep open: at most half of the process's limit, as clients need descriptors too."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_OPEN_FILES if limit == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, limit // 2)


class DiskStorage:
    """Files below the folder `root`, of which at most `max_open_files` are kept open."""

    def __init__(self, root: str | os.PathLike[str], *, max_open_files: int | None = None) -> None:
        self._root = os.path.abspath(root)
        self._max_open_files = max(1, _open_files() if max_open_files is None else max_open_files)
        self.pool: OrderedDict[DiskFile, None] = OrderedDict()
        # Protects a descriptor from being closed by the pool while a syncing thread duplicates it.
        self.borrowing = threading.Lock()
        self._syncing: ThreadPoolExecutor | None = None
        self._lock_descriptor = -1
        os.makedirs(self._root, exist_ok=True)

    def lock(self) -> None:
        """Keep other brokers out of the folder until `close`; raise `ConfigError` if one uses it."""
        self._lock(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)

    def lock_to_read(self) -> None:
        """Keep brokers out until `close`, as `lock` does, without a change of the folder: readers share it."""
        # A folder that a broker has never used has no such file, and some file systems have no locks.
        with suppress(OSError):
            self._lock(os.O_RDONLY, fcntl.LOCK_SH)

    def _lock(self, flags: int, kind: int) -> None:
        descriptor = os.open(os.path.join(self._root, _LOCK_FILE), flags | os.O_CLOEXEC, 0o644)
        try:
            # The system removes the lock when the process ends, however it ends.
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise ConfigError(
                f"another broker uses {self._root}, or makes a copy of it, in this process or in another one: stop it, "
                "or give another folder"
            ) from None
        self._lock_descriptor = descriptor

    def open(self, path: str) -> DiskFile:
        full_path = self._place(path)
        file = DiskFile(self, full_path)
        try:
            file.create()
        except FileNotFoundError:
            os.makedirs(os.path.dirname(full_path), exist_ok=True)
            file.create()
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(self._place(path))

    def list_folder(self, path: str) -> list[str]:
        try:
            names = os.listdir(self._place(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if path or name != _LOCK_FILE)

    def make_folder(self, path: str) -> None:
        os.makedirs(self._place(path), exist_ok=True)

    def delete(self, path: str) -> None:
        full_path = self._place(path)
        if os.path.isdir(full_path) and not os.path.islink(full_path):
            shutil.rmtree(full_path)
            return
        try:
            os.unlink(full_path)
        except FileNotFoundError:
            return

    def rename(self, old_path: str, new_path: str) -> None:
        target = self._place(new_path)
        try:
            os.replace(self._place(old_path), target)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(target)):
                raise
            os.makedirs(os.path.dirname(target))
            os.replace(self._place(old_path), target)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(self._place(path), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def volume(self) -> Volume:
        usage = shutil.disk_usage(self._root)
        return Volume(self._root, usage.total, usage.free)

    def sync_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run syncs of different files in parallel; if any failed, raise the error after all have ended."""
        if len(syncs) <= 1:
            # A thread has no benefit for a single sync; often there is none.
            for sync in syncs:
                sync()
            return
        # The caller syncs a share of the files itself and passes one to each thread, because a hand-over takes time:
        # with 100 transactional producers a transaction takes 660 µs of processor time, and 754 with one for each file.
        own, *others = [syncs[start::_SYNC_THREADS] for start in range(min(len(syncs), _SYNC_THREADS))]
        pending = [self._threads().submit(_sync_each, share) for share in others]
        failures = _sync_each(own)
        for each in pending:
            failures += each.result()
        if failures:
            raise failures[0]

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        """Sync a few bytes, or many files, at once, others in threads; return None if that is done."""
        # A sync that has begun has a descriptor in addition to the pool's.
        if size_bytes < _MIN_OVERLAPPING_BYTES or len(files) > self._max_open_files // 8:
            self.sync_all([file.sync for file in files])
            return None
        pending = self._threads().submit(self.sync_all, [file.begin_sync() for file in files])
        pending.add_done_callback(lambda _: ended())
        return pending

    def _threads(self) -> ThreadPoolExecutor:
        if self._syncing is None:
            self._syncing = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="sync")
        return self._syncing

    def close(self) -> None:
        """Close every descriptor, end the syncing threads and remove the lock; later use opens new descriptors."""
        if self._syncing is not None:
            self._syncing.shutdown()
            self._syncing = None
        while self.pool:
            self.pool.popitem()[0].give_up()
        if self._lock_descriptor >= 0:
            # Otherwise the copy of a process that was forked meanwhile would keep the lock.
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def register(self, file: DiskFile) -> None:
        """Add the descriptor of `file` to the pool; if the pool is full, close the one opened longest ago."""
        self.pool[file] = None
        if len(self.pool) > self._max_open_files:
            self.pool.popitem(last=False)[0].give_up()

    def _place(self, path: str) -> str:
        parts = path.split("/") if path else []
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path!r} is not a path inside the storage: parts must not be empty, . or ..")
        return os.path.join(self._root, *parts)


def open_data_folder(folder: str | os.PathLike[str], at_end: Callable[[Callable[[], None]], object]) -> Storage:
    """Lock the folder, recover what a crash has left, and return its files; `at_end` takes what closes them.

    What `at_end` takes last must be called first, as `ExitStack.callback` does. Raises `ConfigError` if another broker
    uses the folder, or it cannot be created or written.
    """
    try:
        disk = DiskStorage(folder)
    except FileExistsError:
        raise ConfigError(f"{folder} is not a folder: give a folder for the logs, which is created if needed") from None
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder {folder} for the logs: {error.strerror}; give another folder"
        ) from error
    at_end(disk.close)
    try:
        disk.lock()
    except OSError as error:
        # Permissions, a read-only file system, or a network file system without locks.
        raise ConfigError(
            f"cannot write and lock files in {folder}, the folder of the logs: {error.strerror}; give another folder"
        ) from error
    storage = WriteAheadStorage(disk)
    at_end(storage.close)
    return storage
