"""Failures of the disk itself: a write-ahead log must not make them worse than they are without it."""

import errno
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import File, Storage
from broker_core.server.disk import DiskFile, DiskStorage
from broker_core.simulation.disk import MemoryFile, MemoryStorage, Node
from broker_core.testing.snapshots import Snapshot
from tests.support.simulated.disk import SimulatedDisk
from tests.support.simulated.faults import FaultCounts

FILES = ("a-0/x.log", "a-0/y.log")
LOG = "write-ahead.log"


class FailingFile(MemoryFile):
    """A file whose syncs may fail."""

    def __init__(self, storage: "FailingStorage", node: Node, path: str) -> None:
        super().__init__(node)
        self._storage, self.path = storage, path

    def sync(self) -> None:
        self._storage.before_sync(self.path)
        if self.path not in self._storage.forgotten:
            super().sync()

    def begin_sync(self) -> Callable[[], None]:
        return self.sync


class FailingStorage(MemoryStorage):
    """A disk on which one sync of a file, or of a folder, fails.

    As on Linux, the writes are then forgotten if `forgets`: they stay visible, and later syncs succeed without them.
    """

    def __init__(self, *, forgets: bool = False) -> None:
        super().__init__()
        self.failing = ""
        self.forgets = forgets
        self.forgotten: set[str] = set()

    def open(self, path: str) -> MemoryFile:
        return FailingFile(self, super().open(path)._node, path)

    def sync_folder(self, path: str) -> None:
        self.before_sync(f"{path}/")
        super().sync_folder(path)

    def before_sync(self, path: str) -> None:
        if path == self.failing:
            self.failing = ""
            if self.forgets:
                self.forgotten.add(path)
            raise OSError(errno.EIO, "the disk failed")


def durable_files(storage: Storage) -> list[File]:
    files: list[File] = [storage.open(path) for path in FILES]
    for file in files:
        file.append(b"first,")
        file.sync()
    storage.sync_folder("a-0")
    storage.sync_folder("")
    return files


def step(storage: Storage, files: list[File], data: bytes) -> None:
    for file in files:
        file.append(data)
    assert storage.start_syncs(files, len(data) * len(files), lambda: None) is None


def contents(storage: Storage) -> list[bytes]:
    return [file.read(0, file.size()) for file in map(storage.open, FILES)]


CHANGES: dict[str, Callable[[WriteAheadStorage, list[File]], object]] = {
    "truncate": lambda _, files: files[0].truncate(3),
    "delete": lambda storage, _: storage.delete("a-0"),
    "rename": lambda storage, _: storage.rename("a-0", "b-0"),
    "step": lambda storage, files: step(storage, files, b"third,"),
    "sync of files": lambda storage, files: storage.sync_all([file.sync for file in files]),
    "sync of nothing": lambda storage, _: storage.sync_all([]),
    "sync of a folder": lambda storage, _: storage.sync_folder("a-0"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("frames_before", [0, 1])
@pytest.mark.parametrize("failing", [LOG, FILES[0], "a-0/"])
def test_nothing_is_changed_after_a_failed_sync(failing: str, frames_before: int, change: str) -> None:
    """The write-ahead log may have a frame that was not acknowledged; a replay writes it to the files as they were."""
    disk = FailingStorage()
    storage = WriteAheadStorage(disk)
    files = durable_files(storage)
    for _ in range(frames_before):
        step(storage, files, b"second,")
    disk.failing = failing
    with pytest.raises(OSError, match="the disk failed"):
        if failing == LOG:
            step(storage, files, b"refused")
        elif failing == FILES[0]:
            storage.sync_all([file.sync for file in files])
        else:
            storage.sync_folder("a-0")
    written = contents(disk)
    with pytest.raises(OSError, match=r"a sync failed: .*the disk failed; check the disk"):
        CHANGES[change](storage, files)
    storage.close()
    disk.crash()
    for kept, whole in zip(contents(WriteAheadStorage(disk)), written, strict=True):
        assert whole.startswith(kept)
        assert kept.startswith(b"first," + b"second," * frames_before)


def test_folder_that_is_missing_is_no_failed_sync() -> None:
    storage = WriteAheadStorage(MemoryStorage())
    files = durable_files(storage)
    with pytest.raises(FileNotFoundError):
        storage.sync_folder("missing")
    step(storage, files, b"second,")


def test_file_that_is_missing_is_a_failed_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person removes the folder of the logs of a running broker."""
    storage = WriteAheadStorage(MemoryStorage())
    files = durable_files(storage)

    def missing(_: MemoryFile) -> Callable[[], None]:
        def sync() -> None:
            raise FileNotFoundError(errno.ENOENT, "no such file")

        return sync

    with monkeypatch.context() as removed:
        removed.setattr(MemoryFile, "begin_sync", missing)
        with pytest.raises(FileNotFoundError):
            files[0].sync()
    with pytest.raises(OSError, match="a sync failed: .*no such file"):
        step(storage, files, b"second,")


def test_nothing_is_changed_after_a_checkpoint_that_could_not_empty_the_write_ahead_log() -> None:
    disk = FailingStorage()
    storage = WriteAheadStorage(disk)
    files = durable_files(storage)
    step(storage, files, b"second,")
    disk.failing = LOG
    with pytest.raises(OSError, match="the disk failed"):
        storage.checkpoint()
    with pytest.raises(OSError, match=r"a sync failed: .*the disk failed; check the disk"):
        step(storage, files, b"third,")


def test_closing_after_a_failed_checkpoint_keeps_the_write_ahead_log() -> None:
    """The kernel forgets pages that it could not write, so the next sync of the file says nothing about them."""
    disk = FailingStorage(forgets=True)
    storage = WriteAheadStorage(disk)
    files = durable_files(storage)
    step(storage, files, b"acknowledged")
    disk.failing = FILES[1]
    with pytest.raises(OSError):
        storage.checkpoint()
    storage.close()
    disk.crash()
    disk.forgotten.clear()
    assert contents(WriteAheadStorage(disk)) == [b"first,acknowledged"] * 2


def test_a_step_succeeds_on_a_full_disk_if_its_files_can_be_synced() -> None:
    disk = SimulatedDisk(Random(1), FaultCounts())
    storage = WriteAheadStorage(disk)
    files = durable_files(storage)
    for file in files:
        file.append(b"second,")
    # The last blocks were taken by these writes. Without a write-ahead log the step needs no more.
    disk.is_full = True
    assert storage.start_syncs(files, 14, lambda: None) is None
    disk.crash()
    disk.is_full = False
    assert contents(WriteAheadStorage(disk)) == [b"first,second,"] * 2


def test_an_append_after_one_that_failed_halfway_is_recovered_where_it_was_written() -> None:
    disk = SimulatedDisk(Random(1), FaultCounts())
    storage = WriteAheadStorage(disk)
    files = durable_files(storage)
    step(storage, files, b"second,")
    disk.is_full = True
    while dict(disk.files())[FILES[0]] == b"first,second,":
        with pytest.raises(OSError):
            files[0].append(b"third,third,third,")
    disk.is_full = False
    step(storage, files, b"fourth,")
    written = contents(disk)
    disk.crash()
    assert contents(WriteAheadStorage(disk)) == written


def test_a_write_ahead_log_that_cannot_grow_leaves_the_space_to_the_files() -> None:
    for seed in range(10):
        disk = SimulatedDisk(Random(seed), FaultCounts())
        storage = WriteAheadStorage(disk)
        files = durable_files(storage)
        for file in files:
            file.append(b"second,")
        disk.is_full = True
        assert storage.start_syncs(files, 14, lambda: None) is None
        assert dict(disk.files())[LOG] == b""


@pytest.mark.parametrize("entry", ["sync_all", "first step", "checkpoint"])
def test_threads_borrow_descriptors_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """Without the lock another thread may close the descriptor meanwhile, and the size is another file's."""
    disk = DiskStorage(tmp_path, max_open_files=2)
    storage = WriteAheadStorage(disk)
    files: list[File] = [storage.open(f"a-{number}/x.log") for number in range(20)]
    for file in files:
        file.append(b"first")
    if entry == "checkpoint":
        storage.sync_all([file.sync for file in files])
        step(storage, files, b"second")
    unlocked: list[str] = []
    borrow = DiskFile._borrow

    def watched(self: DiskFile) -> int:
        if threading.current_thread() is not threading.main_thread() and not disk.borrowing.locked():
            unlocked.append(self._path)
        return borrow(self)

    monkeypatch.setattr(DiskFile, "_borrow", watched)
    run = {
        "sync_all": lambda: storage.sync_all([file.sync for file in files]),
        "first step": partial(storage.start_syncs, files, 100, lambda: None),
        "checkpoint": storage.checkpoint,
    }[entry]
    try:
        run()
    finally:
        disk.close()
    assert not unlocked


def test_reading_a_snapshot_changes_nothing_in_the_folder_of_a_killed_broker(tmp_path: Path) -> None:
    disk = DiskStorage(tmp_path)
    storage = WriteAheadStorage(disk)
    step(storage, durable_files(storage), b"second,")
    disk.open(FILES[0]).truncate(6)
    disk.close()

    def found() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = found()
    snapshot = Snapshot.read(tmp_path)
    assert dict(snapshot.to_memory().files()) == dict.fromkeys(FILES, b"first,second,")
    assert found() == before


def test_a_restored_snapshot_survives_a_power_loss_with_what_is_acknowledged_after_it() -> None:
    disk = MemoryStorage()
    storage = WriteAheadStorage(disk)
    step(storage, durable_files(storage), b"old,")
    before = MemoryStorage()
    durable_files(before)
    Snapshot(before).to_storage(storage)
    files: list[File] = [storage.open(path) for path in FILES]
    # As LogManager does for logs that were opened with batches in them: their names count as durable.
    for data in (b"own,", b"frame"):
        step(storage, files, data)
    disk.crash()
    assert contents(WriteAheadStorage(disk)) == [b"first,own,frame"] * 2
