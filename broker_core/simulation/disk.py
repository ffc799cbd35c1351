"""Files in memory that track which bytes and names survive a crash.

The rules are the strictest of any file system. Bytes are durable after a sync of their file; a crash before it brings
back what they overwrote, or a part of it. The creation, renaming or deletion of a name is durable after a sync of its
folder. A folder survives only if its own name in its parent does.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

from broker_core.ports import File, Pending, Volume
from broker_core.simulation.disk_content import Folder, Node, copied
from broker_core.simulation.faults import FaultCounts, FaultKind

# The share of syncs that take no time, and the duration of the others.
_AT_ONCE = 0.5
_SYNC_US = (50, 5_000)

_Survivor = Callable[[str, int], int]


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    __slots__ = ("_node", "_storage")

    def __init__(self, storage: "MemoryStorage", node: Node) -> None:
        self._storage = storage
        self._node = node

    def size(self) -> int:
        return len(self._node.data)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._node.data += data
        self._storage.last_written = self._node

    def overwrite(self, position: int, data: bytes) -> None:
        self._node.overwrite(position, data)
        self._storage.last_written = self._node

    def read(self, position: int, size_bytes: int) -> bytes:
        with memoryview(self._node.data) as view:
            return bytes(view[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        self._node.truncate(size_bytes)

    def sync(self) -> None:
        self._node.durable_bytes = len(self._node.data)
        self._node.cut_tail = b""
        self._node.overwritten.clear()

    def begin_sync(self) -> Callable[[], None]:
        return partial(self._sync_up_to, len(self._node.data), list(self._node.overwritten))

    def _sync_up_to(self, size_bytes: int, overwritten: Sequence[tuple[int, bytes]]) -> None:
        node = self._node
        node.durable_bytes = max(node.durable_bytes, min(size_bytes, len(node.data)))
        node.cut_tail = b""
        begun = {id(each) for each in overwritten}
        node.overwritten = [each for each in node.overwritten if id(each) not in begun]

    def close(self) -> None:
        """Do nothing; there is no descriptor to release."""


class MemoryStorage:
    """Storage in memory; `crash` discards everything that is not durable."""

    def __init__(self) -> None:
        self._root = Folder()
        self.last_written: Node | None = None

    def open(self, path: str) -> MemoryFile:
        folder_path, _, name = path.rpartition("/")
        folder = self._make(folder_path)
        node = folder.entries.get(name)
        if node is None:
            node = Node()
            folder.put(name, node)
        if isinstance(node, Folder):
            raise IsADirectoryError(path)
        return self._file(node)

    def _file(self, node: Node) -> MemoryFile:
        return MemoryFile(self, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list_folder(self, path: str) -> list[str]:
        folder = self._find(path)
        return sorted(folder.entries) if isinstance(folder, Folder) else []

    def make_folder(self, path: str) -> None:
        self._make(path)

    def delete(self, path: str) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._find(folder_path, own=True)
        if isinstance(folder, Folder):
            folder.remove(name)

    def rename(self, old_path: str, new_path: str) -> None:
        folder_path, _, name = old_path.rpartition("/")
        folder = self._find(folder_path, own=True)
        entry = folder.own(name) if isinstance(folder, Folder) else None
        if not isinstance(folder, Folder) or entry is None:
            raise FileNotFoundError(old_path)
        new_folder_path, _, new_name = new_path.rpartition("/")
        folder.remove(name)
        self._make(new_folder_path).put(new_name, entry)

    def sync_folder(self, path: str) -> None:
        folder = self._find(path, own=True)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(path)
        folder.sync()

    def volume(self) -> Volume:
        """Return a made-up folder, whose size is unknown."""
        return Volume("/memory", -1, -1)

    def sync_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run the syncs one after another, so that the simulation stays deterministic."""
        for sync in syncs:
            sync()

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        self.sync_all([file.sync for file in files])
        return None

    def crash(self, *, torn_bytes: int = 0, survives: _Survivor | None = None, names_survive: bool = False) -> None:
        """Revert to the durable state, as after a power loss; open files must not be used afterwards.

        `torn_bytes` is the number of unsynced bytes that survive in the last written file. Alternatively
        `survives(path, unsynced_bytes)` returns this number for each file. `names_survive` keeps unsynced names.
        """
        last = self.last_written

        def surviving(path: str, node: Node, unsynced: int) -> int:
            wanted = survives(path, unsynced) if survives else torn_bytes if node is last else 0
            return max(0, min(wanted, unsynced))

        self._root = _after_crash(self._root, "", surviving, names_survive)
        self.last_written = None

    def copy(self) -> "MemoryStorage":
        found = MemoryStorage()
        found._root = copied(self._root)
        return found

    def replace(self, other: "MemoryStorage") -> None:
        """Replace all files by those of another storage, durably; files open in either must not be used afterwards.

        The storages share the folders at the root, and each copies a folder when it opens or changes a file there: a
        restore of a large snapshot copies what is used, not all there is.
        """
        for entry in other._root.entries.values():
            if isinstance(entry, Folder):
                entry.is_shared = True
        self._root = copied(other._root)
        self.last_written = None

    def files(self) -> Iterator[tuple[str, bytes]]:
        yield from _walk(self._root, "")

    def _find(self, path: str, *, own: bool = False) -> "Node | Folder | None":
        here: Node | Folder | None = self._root
        for part in path.split("/") if path else ():
            if not isinstance(here, Folder):
                return None
            here = here.own(part) if own else here.entries.get(part)
        return here

    def _make(self, path: str) -> Folder:
        here = self._root
        for part in path.split("/") if path else ():
            child = here.own(part)
            if child is None:
                child = Folder()
                here.put(part, child)
            if not isinstance(child, Folder):
                raise NotADirectoryError(path)
            here = child
        return here


class PowerLoss(BaseException):
    """The end of the process by a power loss; a `BaseException`, so that error handlers do not catch it."""


class SimulatedFile(MemoryFile):
    """A file on a `SimulatedDisk`, whose operations fail if the disk is full or the power is lost."""

    __slots__ = ("_disk",)

    def __init__(self, disk: "SimulatedDisk", node: Node) -> None:
        super().__init__(disk, node)
        self._disk = disk

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; if the disk is full, write a part of the data and raise ENOSPC."""
        self._disk.use()
        if self._disk.is_full:
            super().append(bytes(data)[: self._disk.random.randrange(len(data) + 1)])
            self._disk.faults.record(FaultKind.DISK_FULL)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        super().append(data)

    def overwrite(self, position: int, data: bytes) -> None:
        """Write at `position`; if the disk is full and the file grows, raise ENOSPC."""
        self._disk.use()
        if self._disk.is_full and position + len(data) > self.size():
            self._disk.faults.record(FaultKind.DISK_FULL)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        super().overwrite(position, data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.use()
        super().truncate(size_bytes)

    def sync(self) -> None:
        if self._disk.use_for_sync():
            super().sync()

    def _sync_up_to(self, size_bytes: int, overwritten: Sequence[tuple[int, bytes]]) -> None:
        if self._disk.use_for_sync():
            super()._sync_up_to(size_bytes, overwritten)


class _SyncsInProgress:
    """Syncs that end after some time; what they sync is durable when the caller takes their result."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._is_done = False

    def end(self, ended: Callable[[], None]) -> None:
        self._is_done = True
        ended()

    def done(self) -> bool:
        return self._is_done

    def result(self) -> None:
        """Make the writes durable; raise the power loss or the disk's error."""
        self._run()


class SimulatedDisk(MemoryStorage):
    """A disk that can be full, can fail to sync, and can lose power between any two operations.

    `after_us` runs an action later in virtual time. With it some syncs take time, while the disk is used.
    `fuse` is the number of operations before the power loss. The operation after them raises `PowerLoss`; `lose_power`
    then draws how many unsynced bytes of each file survive.

    `syncs_until_failure` is the number of syncs before the one that fails. Linux reports a failed sync once, and may
    forget the writes: the process still reads them, and a later sync succeeds without them. So after the failure all
    syncs succeed and make nothing durable, until the process has ended and `lose_power` or `lose_process` is called.
    """

    def __init__(self, random: Random, faults: FaultCounts) -> None:
        super().__init__()
        self.random = random
        self.faults = faults
        self.is_full = False
        self.after_us: Callable[[int, Callable[[], None]], object] | None = None
        self.fuse: int | None = None
        self.syncs_until_failure: int | None = None
        self.has_failed_sync = False

    def use(self) -> None:
        """Count one operation; raise `PowerLoss` if the fuse is at zero."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise PowerLoss

    def use_for_sync(self) -> bool:
        """Count one operation and one sync; return whether it makes writes durable. Raise EIO if it fails."""
        self.use()
        if self.syncs_until_failure is not None:
            self.syncs_until_failure -= 1
            if self.syncs_until_failure < 0:
                self.syncs_until_failure = None
                self.has_failed_sync = True
                self.faults.record(FaultKind.SYNC_FAILED)
                raise OSError(errno.EIO, "a sync of the simulated disk failed")
        return not self.has_failed_sync

    def _file(self, node: Node) -> MemoryFile:
        return SimulatedFile(self, node)

    def delete(self, path: str) -> None:
        self.use()
        super().delete(path)

    def rename(self, old_path: str, new_path: str) -> None:
        self.use()
        super().rename(old_path, new_path)

    def sync_folder(self, path: str) -> None:
        if self.use_for_sync():
            super().sync_folder(path)

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        """Run the syncs at once, or start them: some take longer than a request."""
        if self.after_us is None or not files or self.random.random() < _AT_ONCE:
            return super().start_syncs(files, size_bytes, ended)
        pending = _SyncsInProgress(partial(self.sync_all, [file.begin_sync() for file in files]))
        self.after_us(self.random.randint(*_SYNC_US), partial(pending.end, ended))
        return pending

    def lose_power(self) -> None:
        """Discard unsynced writes; a random part of them survives in each file, independently of other files."""
        self.fuse = None
        self.has_failed_sync = False
        keep = self.random.choice((0.0, 0.3, 1.0))
        self.crash(
            survives=lambda _path, unsynced: self._survived(unsynced, keep), names_survive=self.random.random() < keep
        )

    def lose_process(self) -> None:
        """Keep all writes, as when only the process dies and not the machine; unsynced ones do not become durable.

        After a failed sync the next process may find that the system has forgotten them.
        """
        if self.has_failed_sync:
            self.lose_power()
        self.fuse = None

    def _survived(self, unsynced_bytes: int, keep: float) -> int:
        if not unsynced_bytes:
            return 0
        if self.random.random() >= keep:
            self.faults.record(FaultKind.FORGOTTEN_WRITE)
            return 0
        self.faults.record(FaultKind.TORN_WRITE)
        return self.random.randrange(unsynced_bytes + 1)


def _after_crash(folder: Folder, path: str, surviving: Callable[[str, Node, int], int], names_survive: bool) -> Folder:
    left = Folder()
    for name, entry in (folder.entries if names_survive else folder.durable).items():
        child = f"{path}/{name}" if path else name
        if isinstance(entry, Folder) and entry.is_shared:
            left.entries[name] = entry
        elif isinstance(entry, Folder):
            left.entries[name] = _after_crash(entry, child, surviving, names_survive)
        else:
            left.entries[name] = entry.after_crash(partial(surviving, child, entry))
    left.durable = dict(left.entries)
    return left


def _walk(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    for name, entry in sorted(folder.entries.items()):
        child = f"{path}/{name}" if path else name
        if isinstance(entry, Folder):
            yield from _walk(entry, child)
        else:
            yield child, bytes(entry.data)
