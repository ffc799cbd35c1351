"""Storages in memory that share the folders of snapshots have the same files as storages with copies of them."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.simulation.disk import MemoryStorage
from tests.support.examples import examples

STORAGES = 2
FILES = ["a/x", "a/y", "b/x", "x", "a/deep/x"]
NAMES = ["a", "b", "a/deep", *FILES]
RENAMES = [("a", "b"), ("a", "c"), ("a/x", "b"), ("a/x", "a/y"), ("a/deep", "b"), ("x", "c")]
# How often each is drawn. A snapshot is made by a copy, or by writing its files, as when it is read from a folder.
KINDS = {
    "append": 6,
    "overwrite": 2,
    "truncate": 2,
    "sync": 2,
    "sync_folder": 3,
    "delete": 3,
    "rename": 3,
    "crash": 1,
    "copy": 2,
    "write": 1,
    "restore": 6,
}
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from([kind for kind, share in KINDS.items() for _ in range(share)]),
        st.integers(0, STORAGES - 1),
        st.integers(0, 11),
    ),
    # Not fewer: what goes wrong takes some files, a snapshot, a restore and changes after it.
    min_size=20,
    max_size=40,
)


def with_all_of(source: MemoryStorage) -> MemoryStorage:
    """Return a storage with the same files, none of them synced."""
    found = MemoryStorage()
    for path, data in source.files():
        found.open(path).append(data)
    return found


def share(storages: list[MemoryStorage], which: int, snapshot: MemoryStorage) -> None:
    storages[which].replace(snapshot)


def copy(storages: list[MemoryStorage], which: int, snapshot: MemoryStorage) -> None:
    storages[which] = snapshot.copy()


class World:
    """Some storages, their open files, and the snapshots of them."""

    def __init__(self, restore: Callable[[list[MemoryStorage], int, MemoryStorage], None]) -> None:
        self.restore = restore
        self.storages = [MemoryStorage() for _ in range(STORAGES)]
        self.open_files: list[dict[str, Any]] = [{} for _ in range(STORAGES)]
        first = MemoryStorage()
        for path in FILES:
            first.open(path).append(path.encode())
        self.snapshots = [first]
        for which in range(STORAGES):
            restore(self.storages, which, first)

    def apply(self, number: int, kind: str, which: int, draw: int) -> None:
        """Do one operation; one that fails changes nothing."""
        storage = self.storages[which]
        if kind in ("restore", "crash", "delete", "rename"):
            self.open_files[which].clear()
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            match kind:
                case "copy" | "write":
                    self.snapshots.append(storage.copy() if kind == "copy" else with_all_of(storage))
                case "restore":
                    self.restore(self.storages, which, self.snapshots[draw % len(self.snapshots)])
                case "crash":
                    storage.crash(names_survive=draw % 2 == 0)
                case "delete":
                    storage.delete(NAMES[draw % len(NAMES)])
                case "rename":
                    storage.rename(*RENAMES[draw % len(RENAMES)])
                case "sync_folder":
                    storage.sync_folder(["", *NAMES][draw % 4])
                case _:
                    self.change(number, kind, which, FILES[draw % len(FILES)])

    def change(self, number: int, kind: str, which: int, path: str) -> None:
        """Change or sync a file, which stays open."""
        files = self.open_files[which]
        file = files.get(path) or files.setdefault(path, self.storages[which].open(path))
        data = f"{number}.".encode()
        match kind:
            case "append":
                file.append(data)
            case "overwrite":
                file.overwrite(file.size() // 2, data)
            case "truncate":
                file.truncate(file.size() // 2)
            case "sync":
                file.sync()

    def files(self) -> list[dict[str, bytes]]:
        """Return the content of each storage and snapshot."""
        return [dict(storage.files()) for storage in (*self.storages, *self.snapshots)]


@given(OPERATIONS)
# A rename that a loss of power reverts: the folder has the changes that were made under its new name.
@example([("rename", 0, 0), ("append", 0, 2), ("sync", 0, 2), ("crash", 0, 1)])
@examples(400)
def test_shared_folders_are_like_copies(operations: list[tuple[str, int, int]]) -> None:
    shared, copied = World(share), World(copy)
    for number, operation in enumerate(operations):
        for world in (shared, copied):
            world.apply(number, *operation)
        assert shared.files() == copied.files(), (number, operation)
    for which in range(STORAGES):
        for world in (shared, copied):
            world.apply(0, "crash", which, 1)
    assert shared.files() == copied.files()
