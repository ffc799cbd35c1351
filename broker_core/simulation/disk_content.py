"""The content of storages in memory: files and folders as they are, and what of them is durable."""

from collections.abc import Callable


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
