"""Files in memory that track which bytes and names survive a crash.

The rules are the strictest of any file system. Bytes are durable after a sync of their file; a crash before it brings
back what they overwrote, or a part of it. The creation, renaming or deletion of a name is durable after a sync of its
folder. A folder survives only if its own name in its parent does.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from broker_core.ports import File, Pending, Volume


class Node:
    """The content of a file, and its durable content."""

    __slots__ = ("cut_tail", "data", "durable_bytes", "overwritten")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self.durable_bytes = len(data)
        # Truncated bytes that were durable; a crash before the next sync restores them.
        self.cut_tail = b""
        # The positions of durable bytes that were overwritten since the last sync, and what they were.
        self.overwritten: list[tuple[int, bytes]] = []

    def overwrite(self, position: int, data: bytes) -> None:
        """Write at a position, and note the durable bytes that were there."""
        was = bytes(self.data[position : min(position + len(data), self.durable_bytes)])
        if was != data[: len(was)]:
            self.overwritten.append((position, was))
        self.data[position : position + len(data)] = data

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self.durable_bytes:
            durable = self._restored(bytes(self.data[: self.durable_bytes]), lambda _: 0)
            self.cut_tail = durable[size_bytes:] + self.cut_tail
            self.durable_bytes = size_bytes
            self.overwritten = [(at, was[: size_bytes - at]) for at, was in self.overwritten if at < size_bytes]
        del self.data[size_bytes:]

    def after_crash(self, surviving: Callable[[int], int]) -> "Node":
        """Return the file after a crash; `surviving(count)` returns how many of so many unsynced bytes survive."""
        surviving_bytes = surviving(len(self.data) - self.durable_bytes)
        kept = self._restored(bytes(self.data[: self.durable_bytes + surviving_bytes]), surviving)
        return Node(kept if surviving_bytes else kept + self.cut_tail)

    def _restored(self, data: bytes, surviving: Callable[[int], int]) -> bytes:
        """Return the data with the bytes that were overwritten, but for the surviving beginning of each range."""
        restored = bytearray(data)
        for position, was in reversed(self.overwritten):
            survived = surviving(len(was))
            restored[position + survived : position + len(was)] = was[survived:]
        return bytes(restored)


class Folder:
    """The names in a folder, and its durable names.

    A folder that storages share is durable and does not change: each replaces it by its own copy before it opens or
    changes a file there.
    """

    __slots__ = ("durable", "entries", "is_shared", "is_synced")

    def __init__(self) -> None:
        self.entries: dict[str, Node | Folder] = {}
        self.durable: dict[str, Node | Folder] = {}
        self.is_shared = False
        # Whether the durable names are the present ones. Each partition syncs the root, which has all their folders.
        self.is_synced = True

    def put(self, name: str, entry: "Node | Folder") -> None:
        self.entries[name] = entry
        self.is_synced = False

    def remove(self, name: str) -> None:
        self.entries.pop(name, None)
        self.is_synced = False

    def sync(self) -> None:
        if not self.is_synced:
            self.durable, self.is_synced = dict(self.entries), True

    def own(self, name: str) -> "Node | Folder | None":
        """Return the entry of that name, copied if it is a shared folder."""
        found = self.entries.get(name)
        if isinstance(found, Folder) and found.is_shared:
            copy = copied(found)
            if self.durable.get(name) is found:
                self.durable[name] = copy
            self.entries[name] = found = copy
        return found


def copied(folder: Folder) -> Folder:
    """Return a copy of a folder, all of it durable; folders that storages share are the same ones."""
    found = Folder()
    for name, entry in folder.entries.items():
        if not isinstance(entry, Folder):
            found.entries[name] = Node(entry.data)
        else:
            found.entries[name] = entry if entry.is_shared else copied(entry)
    found.durable = dict(found.entries)
    return found


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def size(self) -> int:
        return len(self._node.data)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._node.data += data

    def overwrite(self, position: int, data: bytes) -> None:
        self._node.overwrite(position, data)

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
        return MemoryFile(node)

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

    def crash(
        self, *, survives: Callable[[str, int], int] = lambda _path, _unsynced: 0, names_survive: bool = False
    ) -> None:
        """Revert to the durable state, as after a power loss; open files must not be used afterwards.

        `survives(path, unsynced_bytes)` returns how many of so many unsynced bytes of a file survive. `names_survive`
        keeps unsynced names.
        """
        self._root = _after_crash(self._root, "", survives, names_survive)

    def copy(self) -> "MemoryStorage":
        found = MemoryStorage()
        found._root = copied(self._root)
        return found

    def replace(self, other: "MemoryStorage") -> None:
        """Replace all files by another storage's, durably; files open in either must not be used afterwards.

        The storages share the folders at the root, and each copies a folder when it opens or changes a file there: a
        restore of a large snapshot copies what is used, not all there is.
        """
        for entry in other._root.entries.values():
            if isinstance(entry, Folder):
                entry.is_shared = True
        self._root = copied(other._root)

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


def _after_crash(folder: Folder, path: str, survives: Callable[[str, int], int], names_survive: bool) -> Folder:
    left = Folder()
    for name, entry in (folder.entries if names_survive else folder.durable).items():
        child = f"{path}/{name}" if path else name
        if isinstance(entry, Folder) and entry.is_shared:
            left.entries[name] = entry
        elif isinstance(entry, Folder):
            left.entries[name] = _after_crash(entry, child, survives, names_survive)
        else:
            left.entries[name] = entry.after_crash(partial(survives, child))
    left.durable = dict(left.entries)
    return left


def _walk(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    for name, entry in sorted(folder.entries.items()):
        child = f"{path}/{name}" if path else name
        if isinstance(entry, Folder):
            yield from _walk(entry, child)
        else:
            yield child, bytes(entry.data)
