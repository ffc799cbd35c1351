"""A `WriteAheadStorage` on a simulated disk, with a model of what each file may contain after a power loss."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import File, Pending
from broker_core.simulation.disk import Folder, MemoryStorage
from tests.support.simulated.disk import PowerLoss, SimulatedDisk
from tests.support.simulated.faults import FaultCounts

LOG = "write-ahead.log"
FILES = ("a/x", "a/y", "b/x")
# How many of a file's unsynced bytes survive a power loss.
Survivors = Callable[[str, int], int]


class PowerLossKind(NamedTuple):
    """What survives a power loss."""

    survivors: Survivors
    names_survive: bool = False


NOTHING = PowerLossKind(lambda _path, _unsynced: 0)
EVERYTHING = PowerLossKind(lambda _path, unsynced: unsynced, names_survive=True)
KINDS = {
    "nothing": NOTHING,
    "names": PowerLossKind(NOTHING.survivors, names_survive=True),
    "everything": EVERYTHING,
    "bytes": PowerLossKind(EVERYTHING.survivors),
    "halves": PowerLossKind(lambda _path, unsynced: unsynced // 2),
    "the write-ahead log": PowerLossKind(lambda path, unsynced: unsynced if path == LOG else 0),
    "the write-ahead log without its last byte": PowerLossKind(
        lambda path, unsynced: max(unsynced - 1, 0) if path == LOG else 0
    ),
    "the files": PowerLossKind(lambda path, unsynced: 0 if path == LOG else unsynced, names_survive=True),
}


def random_parts(seed: int) -> PowerLossKind:
    """Return a power loss that leaves a random part of each file."""
    random = Random(seed)
    return PowerLossKind(lambda _path, unsynced: random.randint(0, unsynced), random.random() < 0.5)


class _Version(NamedTuple):
    """What was written to a file, and how much of it is acknowledged."""

    data: bytes
    acknowledged: int

    def allows(self, content: bytes) -> bool:
        return self.data.startswith(content) and len(content) >= self.acknowledged


class _History:
    """The versions of a file that a power loss may leave: the last one, and those before truncations without a sync."""

    def __init__(self, data: bytes = b"") -> None:
        self.versions = [_Version(data, len(data))]
        self.truncations = 0

    @property
    def data(self) -> bytes:
        return self.versions[-1].data

    def unsynced(self) -> int:
        return len(self.data) - self.versions[-1].acknowledged

    def append(self, data: bytes) -> None:
        self.versions[-1] = self.versions[-1]._replace(data=self.data + data)

    def truncate(self, size_bytes: int) -> None:
        last = self.versions[-1]
        if size_bytes < len(last.data):
            self.truncations += 1
            self.versions.append(_Version(last.data[:size_bytes], min(size_bytes, last.acknowledged)))

    def acknowledge(self, size_bytes: int) -> None:
        last = self.versions[-1]
        self.versions = [last._replace(acknowledged=max(last.acknowledged, size_bytes))]

    def allows(self, content: bytes) -> bool:
        return any(version.allows(content) for version in self.versions)


class _InProgress(NamedTuple):
    """A step that is in progress: the files, their truncations and their sizes when it began."""

    pending: Pending
    files: list[tuple[_History, int, int]]


def _twin(storage: MemoryStorage) -> MemoryStorage:
    """Return a copy that has the same unsynced bytes and names."""
    known: dict[int, Any] = {}
    found = MemoryStorage()
    found._root = _twin_of(storage._root, known)
    return found


def _twin_of(entry: Any, known: dict[int, Any]) -> Any:
    if id(entry) in known:
        return known[id(entry)]
    # `copy.copy` takes four times as long, and the tests copy millions of entries.
    found = known[id(entry)] = type(entry)()
    for name in entry.__slots__:
        setattr(found, name, getattr(entry, name))
    if isinstance(entry, Folder):
        found.entries = {name: _twin_of(child, known) for name, child in entry.entries.items()}
        found.durable = {name: _twin_of(child, known) for name, child in entry.durable.items()}
    else:
        found.data, found.overwritten = bytearray(entry.data), list(entry.overwritten)
    return found


class World:
    """The storage under test, used as the broker uses one, and the model.

    `names` is a storage whose files contain numbers of histories: so it is the model of the names.
    """

    def __init__(self, checkpoint_bytes: int = 10_000) -> None:
        self.checkpoint_bytes = checkpoint_bytes
        self.disk = SimulatedDisk(Random(1), FaultCounts())
        self.names = MemoryStorage()
        self.names_before = self.names
        self.histories: list[_History] = []
        self.handles: dict[str, File] = {}
        self.dirty_folders: dict[str, None] = {}
        self.in_progress: list[_InProgress] = []
        self.serial = itertools.count(1)
        self.storage = self._open_storage()

    def _open_storage(self) -> WriteAheadStorage:
        return WriteAheadStorage(self.disk, checkpoint_bytes=self.checkpoint_bytes)

    def after_end(self) -> "World":
        """Return a copy of the disk and the model, without a storage: as a dead process leaves them."""
        found = copy.copy(self)
        found.handles, found.in_progress, found.dirty_folders = {}, [], {}
        found.serial = itertools.count(next(self.serial))
        found.disk = SimulatedDisk(Random(1), FaultCounts())
        found.disk._root = _twin(self.disk)._root
        found.names, found.names_before = _twin(self.names), _twin(self.names_before)
        found.histories = [copy.copy(history) for history in self.histories]
        for history in found.histories:
            history.versions = list(history.versions)
        if self.names_before is self.names:
            found.names_before = found.names
        return found

    # What callers do.

    def history(self, path: str) -> _History:
        """Return the history of the file that has the name."""
        return self.histories[int(self.names.open(path).read(0, 10))]

    def paths(self) -> list[str]:
        """Return the names of all files."""
        return [path for path, _ in self.names.files()]

    def _name(self, change: Callable[[MemoryStorage], Any], *folders: str) -> None:
        self.names_before = _twin(self.names)
        change(self.names)
        change(self.storage)  # type: ignore[arg-type]
        self.names_before = self.names
        self.dirty_folders |= dict.fromkeys(folders)

    def sync_names(self) -> None:
        """Make all changes of names durable."""
        for folder in list(self.dirty_folders):
            if self.storage.exists(folder) or not folder:
                self._name(lambda storage, folder=folder: storage.sync_folder(folder))
        self.dirty_folders.clear()

    def file(self, path: str) -> File:
        """Return the open file; create it as callers do: its content is durable, then its name."""
        if path in self.handles:
            return self.handles[path]
        is_new = not self.names.exists(path)
        if is_new:
            model = self.names.open(path)
            model.append(b"%010d" % len(self.histories))
            model.sync()
            self.histories.append(_History())
        file = self.handles[path] = self.storage.open(path)
        if is_new:
            file.sync()
            self.dirty_folders |= dict.fromkeys((path.rpartition("/")[0], ""))
            self.sync_names()
        return file

    def append(self, path: str, count: int) -> None:
        """Append bytes that were never written before."""
        file, history = self.file(path), self.history(path)
        data = b"".join(b"%06d" % next(self.serial) for _ in range(count // 6 + 1))[:count]
        size = len(history.data)
        try:
            file.append(data)
        finally:
            # A full disk takes a part of the data, and a power loss may come before the append.
            history.append(data[: file.size() - size])

    def step(self, paths: Iterable[str]) -> None:
        """Make files durable with `start_syncs`."""
        self.sync_names()
        files = [self.file(path) for path in paths]
        histories = [self.history(path) for path in paths]
        size = sum(history.unsynced() for history in histories)
        pending = self.storage.start_syncs(files, size, lambda: None)
        begun = [(history, history.truncations, len(history.data)) for history in histories]
        if pending is None:
            self._acknowledge(begun)
        else:
            self.in_progress.append(_InProgress(pending, begun))

    @staticmethod
    def _acknowledge(begun: Sequence[tuple[_History, int, int]]) -> None:
        for history, truncations, size_bytes in begun:
            if history.truncations == truncations:
                history.acknowledge(size_bytes)

    def finish(self) -> None:
        """Wait for the steps that are in progress."""
        while self.in_progress:
            step = self.in_progress.pop(0)
            step.pending.result()
            self._acknowledge(step.files)

    def sync(self, path: str) -> None:
        """Sync one file."""
        self.file(path).sync()
        self.history(path).acknowledge(len(self.history(path).data))

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file."""
        self.finish()
        file, history = self.file(path), self.history(path)
        history.truncate(size_bytes)
        file.truncate(size_bytes)

    def _forget(self, path: str) -> None:
        for name in [name for name in self.handles if f"{name}/".startswith(f"{path}/")]:
            self.handles.pop(name).close()

    def delete(self, path: str) -> None:
        """Delete a file or folder."""
        self._forget(path)
        self._name(lambda storage: storage.delete(path), path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder."""
        if not self.names.exists(old) or old == new:
            return
        self.finish()
        self._forget(old)
        self._forget(new)
        self._name(lambda storage: storage.rename(old, new), new.rpartition("/")[0], old.rpartition("/")[0])

    def open_again(self, path: str) -> None:
        """Use another object for the file from now on."""
        if path in self.handles:
            self.handles[path] = self.storage.open(path)

    def checkpoint(self) -> None:
        """Empty the write-ahead log."""
        self.storage.checkpoint()

    def close_and_open(self) -> None:
        """Close the storage, and open it again."""
        self.finish()
        for path in list(self.handles):
            self._forget(path)
        self.storage.close()
        assert not self.disk.exists(LOG)
        self.check_unharmed()
        self.storage = self._open_storage()

    def die(self) -> None:
        """End the process, and start one on the same disk: nothing may change."""
        self.handles.clear()
        self.in_progress.clear()
        self.storage = self._open_storage()
        self.check_unharmed()

    # Power losses.

    def lose_power(self, kind: PowerLossKind = NOTHING) -> None:
        """Discard what the kind of power loss does not leave."""
        self.disk.fuse = None
        self.disk.is_full = False
        self.disk.crash(survives=kind.survivors, names_survive=kind.names_survive)

    def open_after_power_loss(self, fuses: Iterable[int] = (), kind: PowerLossKind = NOTHING) -> None:
        """Open the storage, at first with further power losses; check all files, and go on with what is there."""
        self.handles.clear()
        self.in_progress.clear()
        self.dirty_folders.clear()
        for fuse in fuses:
            self.disk.fuse = fuse
            with contextlib.suppress(PowerLoss):
                self._open_storage()
            self.lose_power(kind)
        self.storage = self._open_storage()
        self.check_survivors()
        self._adopt()

    def check_unharmed(self) -> None:
        """Check that all files have all that was written to them."""
        found = self.files()
        assert found == {path: self.history(path).data for path in self.paths()}

    def files(self) -> dict[str, bytes]:
        """Return the content of the files, without the write-ahead log."""
        return {path: data for path, data in self.disk.files() if path != LOG}

    def check_survivors(self) -> None:
        """Check that a state is left that the same writes and power loss could leave without the write-ahead log."""
        found = self.files()
        problems = []
        for names in self._surviving_names():
            wrong = {
                path: (found.get(path), self.histories[names[path]].versions if path in names else "no such file")
                for path in sorted(found.keys() | names)
                if path not in found or path not in names or not self.histories[names[path]].allows(found[path])
            }
            if not wrong:
                return
            problems.append(wrong)
        raise AssertionError(problems)

    def _surviving_names(self) -> Iterator[dict[str, int]]:
        for names in (self.names,) if self.names_before is self.names else (self.names, self.names_before):
            for survive, root in ((True, False), (False, False), (False, True)):
                left = _twin(names)
                if root:
                    left.sync_folder("")
                left.crash(names_survive=survive)
                yield {path: int(number) for path, number in left.files()}

    def _adopt(self) -> None:
        self.names = self.names_before = MemoryStorage()
        self.histories = []
        for path, data in self.files().items():
            model = self.names.open(path)
            model.append(b"%010d" % len(self.histories))
            self.histories.append(_History(data))
        self.names = self.names_before = self.names.copy()


def written(world: World, *paths: str) -> None:
    """Write a bit to each file, as one step."""
    for path in paths:
        world.append(path, 7)
    world.step(paths)
