"""A write-ahead log, which makes the small writes of one step durable with one sync.

A transaction writes to the journal of its coordinator and to each of its partitions. The transactions that a hundred
producers end at the same time are in about fifty files, and fifty syncs take ten times as long as the rest of the step.
Here the step writes a copy of what it wrote to one file, as one *frame*, and syncs that file alone. The other files
are synced later, all together, when the write-ahead log is large: a *checkpoint*. After a crash, `WriteAheadStorage`
writes the frames again.

These rules keep the files equal to what was acknowledged, whatever a loss of power leaves of unsynced bytes:

1. The first sync of an opened or truncated file is its own, so that all bytes below a frame's position are durable.
2. The next range of a file begins where its last frame, or its last own sync, ended.
3. A file with frames is synced, and the write-ahead log is emptied durably, before its bytes are truncated or its name
   is changed. Otherwise a replay would write old batches to another file with that name.
4. A frame with a wrong checksum ends the replay. Its step was not acknowledged. So does a frame of another generation,
   which a checkpoint has left there: each checkpoint begins a new one.
5. After a failed sync, nothing says which bytes are durable. The storage then refuses all changes, and the write-ahead
   log stays for the next start. A replay writes all bytes again, because a failed sync lets the system forget that they
   are not on the disk.

When a file grows, its sync also makes the new size durable, which takes twice as long, and longer when the processors
are busy. So the file is filled with zeros before it is used, and each *generation* of frames begins at its start and
overwrites the one before.

Names are not in the frames: a partition log syncs the names of its files itself.
"""

import logging
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from broker_core.ports import File, Pending, Storage, Volume

# The size of the content that follows, the generation, and the CRC of the content, which begins with the generation.
_HEADER: Final = struct.Struct(">III")


class FrameLog:
    """Frames in a new file of the storage, which is made larger by at least `growth_bytes` at a time."""

    def __init__(self, storage: Storage, path: str, growth_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._generation = 1
        self._allocated_bytes = 0
        self._file = storage.open(path)
        storage.sync_folder(path.rpartition("/")[0])
        # The end of the last frame.
        self.size_bytes = 0

    def append(self, content: bytes) -> None:
        """Write a frame, durable after `sync`; raise `OSError` if the disk is full, and go on from the frame before."""
        header = _HEADER.pack(len(content), self._generation, zlib.crc32(content, self._generation))
        end = self.size_bytes + len(header) + len(content)
        if end > self._allocated_bytes:
            self._grow(max(end - self._allocated_bytes, self._growth_bytes))
        self._file.overwrite(self.size_bytes, header + content)
        self.size_bytes = end

    def sync(self) -> None:
        self._file.sync()

    def begin_again(self) -> None:
        self._file.overwrite(0, bytes(_HEADER.size))
        self._file.sync()
        self.size_bytes = 0
        self._generation += 1

    def close(self) -> None:
        self._file.close()

    def _grow(self, growth_bytes: int) -> None:
        try:
            self._file.append(bytes(growth_bytes))
        except OSError:
            # A part of the zeros may be there, and other files need the space more.
            self._file.truncate(self._allocated_bytes)
            raise
        self._allocated_bytes += growth_bytes


def frames(data: bytes) -> Iterator[bytes]:
    """Yield the contents of the frames of the newest generation, up to the first that is not whole."""
    start, generation = 0, None
    while start + _HEADER.size <= len(data):
        size_bytes, its_generation, crc = _HEADER.unpack_from(data, start)
        start += _HEADER.size
        content = data[start : start + size_bytes]
        generation = generation or its_generation
        # Zeros have the right CRC.
        if not content or len(content) < size_bytes or zlib.crc32(content, generation) != crc:
            return
        yield content
        start += size_bytes


logger = logging.getLogger(__name__)

WRITE_AHEAD_FILE: Final = "write-ahead.log"
CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
# Above these, the copies take longer than the syncs that they replace.
_MAX_FRAME_BYTES: Final = 256 * 1024
_MAX_BYTES_PER_FILE: Final = 64 * 1024
# The log grows by this share of the size that causes a checkpoint.
_GROWTH_SHARE: Final = 16
# The size of the path, the position in the file, and the size of the data; path and data follow.
_ENTRY: Final = struct.Struct(">HQI")


class _Tail:
    """What was appended to a file since its last sync or frame, in memory, for the next frame.

    `start` is the end of the durable bytes, in the file or in a frame, when `is_ready`: at the end of the file's sync.
    """

    __slots__ = ("chunks", "is_ready", "size_bytes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.is_ready = False
        self.size_bytes = 0
        self.chunks: list[bytes] = []

    @property
    def fits(self) -> bool:
        return self.is_ready and self.size_bytes <= _MAX_FRAME_BYTES

    def advance(self) -> None:
        """Begin again after what is kept, which is in a frame now."""
        self.start += self.size_bytes
        self.size_bytes = 0
        self.chunks.clear()


class WriteAheadFile:
    """A file of a `WriteAheadStorage`."""

    __slots__ = ("_append", "_file", "_storage", "close", "name", "overwrite", "path", "read", "size", "tail")

    def __init__(self, storage: "WriteAheadStorage", path: str, file: File) -> None:
        self._storage = storage
        self._file = file
        self.path = path
        self.name: Final = path.encode()
        # None until the file's own first sync begins.
        self.tail: _Tail | None = None
        self._append: Callable[[bytes | bytearray | memoryview], None] = file.append
        self.overwrite: Callable[[int, bytes], None] = file.overwrite
        self.read: Callable[[int, int], bytes] = file.read
        self.size: Callable[[], int] = file.size
        self.close: Callable[[], None] = file.close

    def append(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._append(data)
        except OSError:
            # A part of the data may be in the file, and the tail would begin at a wrong position.
            self.tail = None
            raise
        tail = self.tail
        if tail is not None:
            tail.size_bytes += len(data)
            # A frame cannot have more.
            if tail.size_bytes <= _MAX_FRAME_BYTES:
                tail.chunks.append(bytes(data))

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self.size():
            self._storage.checkpoint_of(self.path)
            # A sync that is in progress in a thread has the one before.
            self.tail = None
            self._file.truncate(size_bytes)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        sync = self._file.begin_sync()
        tail = self.tail = _Tail(self.size())

        def end() -> None:
            with self._storage.failing():
                sync()
            tail.is_ready = True

        return end


class WriteAheadStorage:
    """Another storage, with a write-ahead log at its root; opening it writes again what a crash has left there.

    A step that writes to at least `min_files` files makes a frame. `checkpoint_bytes` is the size of the frames that
    causes a checkpoint. Only one may use the storage.
    """

    def __init__(self, storage: Storage, *, checkpoint_bytes: int = CHECKPOINT_BYTES, min_files: int = 1) -> None:
        self._storage = storage
        self.exists: Callable[[str], bool] = storage.exists
        self.make_folder: Callable[[str], None] = storage.make_folder
        self.volume: Callable[[], Volume] = storage.volume
        self._min_files = min_files
        self._checkpoint_bytes = checkpoint_bytes
        self._log: FrameLog | None = None
        # The files with frames, and the folders that they are in.
        self._ahead: dict[str, WriteAheadFile] = {}
        self._folders: set[str] = set()
        self._failure: OSError | None = None
        if storage.exists(WRITE_AHEAD_FILE):
            self._replay()

    def open(self, path: str) -> WriteAheadFile:
        return WriteAheadFile(self, path, self._storage.open(path))

    def list_folder(self, path: str) -> list[str]:
        """Return the names directly in the folder, sorted; the write-ahead log is not among them."""
        names = self._storage.list_folder(path)
        return names if path else [name for name in names if name != WRITE_AHEAD_FILE]

    def delete(self, path: str) -> None:
        self.checkpoint_of(path)
        self._storage.delete(path)

    def rename(self, old_path: str, new_path: str) -> None:
        self.checkpoint_of(old_path)
        self.checkpoint_of(new_path)
        self._storage.rename(old_path, new_path)

    def sync_folder(self, path: str) -> None:
        self._check()
        # A folder that is missing has nothing to sync.
        with self.failing(harmless=FileNotFoundError):
            self._storage.sync_folder(path)

    def sync_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run syncs of different files; raise a failure when all have ended, or if a sync has failed before."""
        self._check()
        self._storage.sync_all(syncs)

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        """Make the files durable, by one frame if they have small writes; return None if that is done.

        The caller takes the writes for durable from now on, so any failure is one of a sync: where a file cannot be
        opened for its sync, for example.
        """
        self._check()
        try:
            limit_bytes = min(_MAX_FRAME_BYTES, _MAX_BYTES_PER_FILE * len(files))
            if len(files) < self._min_files or size_bytes > limit_bytes:
                return self._storage.start_syncs(files, size_bytes, ended)
            written: list[tuple[WriteAheadFile, _Tail]] = []
            own_syncs: list[Callable[[], None]] = []
            for file in files:
                if isinstance(file, WriteAheadFile) and file.tail is not None and file.tail.fits:
                    written.append((file, file.tail))
                else:
                    own_syncs.append(file.sync)
            self._storage.sync_all(own_syncs)
            if written:
                self._write_frame(written)
        except OSError as error:
            self._failure = error
            raise
        return None

    def checkpoint(self) -> None:
        """Make all files durable themselves, and empty the write-ahead log."""
        if self._log is None or not self._log.size_bytes:
            return
        self._storage.sync_all([file.sync for file in self._ahead.values()])
        with self.failing():
            # Before any name changes, see the rules above.
            self._log.begin_again()
        self._ahead.clear()
        self._folders.clear()

    def checkpoint_of(self, path: str) -> None:
        """Make a checkpoint if the write-ahead log has frames of this file, or of one in this folder."""
        self._check()
        if path in self._ahead or path in self._folders:
            self.checkpoint()

    def close(self) -> None:
        """Make a checkpoint and remove the write-ahead log; after a failed sync it stays for the next start."""
        if self._failure is None:
            self.checkpoint()
        if self._log is not None:
            self._log.close()
            self._log = None
            if self._failure is None:
                self._storage.delete(WRITE_AHEAD_FILE)

    @contextmanager
    def failing(self, harmless: type[OSError] | tuple[()] = ()) -> Iterator[None]:
        """Note an `OSError` of a sync, unless it is harmless; after it the storage is not changed any more."""
        try:
            yield
        except harmless:
            raise
        except OSError as error:
            self._failure = error
            raise

    def _check(self) -> None:
        if self._failure is not None:
            raise OSError(
                f"{self._storage.volume().folder} is not changed any more, because a sync failed: {self._failure}; "
                "check the disk, then start the broker again"
            )

    def _write_frame(self, written: Sequence[tuple[WriteAheadFile, _Tail]]) -> None:
        if self._log is None:
            self._log = FrameLog(self._storage, WRITE_AHEAD_FILE, self._checkpoint_bytes // _GROWTH_SHARE)
        parts: list[bytes] = []
        for file, tail in written:
            parts += (_ENTRY.pack(len(file.name), tail.start, tail.size_bytes), file.name, *tail.chunks)
        try:
            self._log.append(b"".join(parts))
        except OSError:
            # The disk is full. Syncs of the files need no space.
            self._storage.sync_all([file.sync for file, _ in written])
            return
        with self.failing():
            self._log.sync()
        for file, tail in written:
            tail.advance()
            if file.path not in self._ahead:
                self._folders.update(_folders_above(file.path))
            self._ahead[file.path] = file
        if self._log.size_bytes >= self._checkpoint_bytes:
            self.checkpoint()

    def _replay(self) -> None:
        """Write the frames to their files again, sync these, and remove the log."""
        log = self._storage.open(WRITE_AHEAD_FILE)
        found: dict[str, File] = {}
        for path, position, data in _entries(log.read(0, log.size())):
            if path not in found:
                if not self._storage.exists(path):
                    logger.warning("%s is missing: its acknowledged writes are not recovered", path)
                    continue
                found[path] = self._storage.open(path)
            _write_again(found[path], path, position, data)
        self._storage.sync_all([file.sync for file in found.values()])
        for file in (log, *found.values()):
            file.close()
        self._storage.delete(WRITE_AHEAD_FILE)
        # Before any name changes, see the rules above.
        self._storage.sync_folder("")


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _entries(log: bytes) -> Iterator[tuple[str, int, bytes]]:
    for frame in frames(log):
        start = 0
        while start < len(frame):
            path_size, position, data_size = _ENTRY.unpack_from(frame, start)
            start += _ENTRY.size
            path = frame[start : start + path_size].decode()
            start += path_size
            yield path, position, frame[start : start + data_size]
            start += data_size


def _write_again(file: File, path: str, position: int, data: bytes) -> None:
    size_bytes = file.size()
    if size_bytes < position:
        logger.warning(
            "%s has %d bytes, and an acknowledged write of %d bytes at %d is not recovered: the file was cut",
            path,
            size_bytes,
            len(data),
            position,
        )
        return
    file.overwrite(position, data)
