"""Small syncs of several files are one sync of a write-ahead log; after a power loss its replay restores the files."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from broker_core.log.write_ahead import WriteAheadStorage, frames
from broker_core.ports import File
from broker_core.simulation.disk import MemoryFile, MemoryStorage
from tests.support.broker_core.write_ahead_world import FILES, LOG, World, written


class CountedFile(MemoryFile):
    """A file whose syncs and reads are counted."""

    __slots__ = ("counts", "path", "reads")

    def read(self, position: int, size_bytes: int) -> bytes:
        self.reads[self.path] += 1
        return super().read(position, size_bytes)

    def size(self) -> int:
        self.reads[self.path] += 1
        return super().size()

    def sync(self) -> None:
        self.counts[self.path] += 1
        super().sync()

    def begin_sync(self) -> Callable[[], None]:
        return partial(self._sync_counted, super().begin_sync())

    def _sync_counted(self, sync: Callable[[], None]) -> None:
        self.counts[self.path] += 1
        sync()


class CountingStorage(MemoryStorage):
    """A storage that counts the syncs and the reads of each file, with those of its size."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def open(self, path: str) -> MemoryFile:
        opened = super().open(path)
        file = CountedFile(opened._node)
        file.path, file.counts, file.reads = path, self.syncs, self.reads
        return file


def opened(storage: WriteAheadStorage, *paths: str) -> list[File]:
    """Return files whose names are durable and that have had their first sync."""
    files = [storage.open(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        file.append(b"first")
        file.sync()
        storage.sync_folder(path.rpartition("/")[0])
    storage.sync_folder("")
    step(storage, files, 0)
    return files


def step(storage: WriteAheadStorage, files: list[File], size_bytes: int = 4) -> None:
    assert storage.start_syncs(files, size_bytes, lambda: None) is None


def write_to(storage: WriteAheadStorage, files: list[File], data: bytes = b"data") -> None:
    """Append to each file, in one step."""
    for file in files:
        file.append(data)
    step(storage, files, len(data) * len(files))


def size_of_frames(storage: MemoryStorage) -> int:
    """Return where the newest frames end; each has a header of twelve bytes."""
    return sum(12 + len(frame) for frame in frames(dict(storage.files()).get(LOG, b"")))


# Steps.


@pytest.fixture
def disk() -> MemoryStorage:
    """Return the empty storage under the write-ahead log."""
    return MemoryStorage()


def test_a_step_is_one_sync() -> None:
    disk = CountingStorage()
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    disk.syncs.clear()
    for _ in range(5):
        write_to(storage, files)
    assert disk.syncs == {LOG: 5}


def test_a_step_reads_no_file() -> None:
    disk = CountingStorage()
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    disk.reads.clear()
    write_to(storage, files)
    assert size_of_frames(disk) > 0
    assert not disk.reads


def test_a_step_of_one_file_is_one_sync() -> None:
    disk = CountingStorage()
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    file, _ = opened(storage, "a/x", "a/y")
    for _ in range(5):
        disk.syncs.clear()
        file.append(b"data")
        step(storage, [file])
        assert disk.syncs.total() == 1


def test_a_checkpoint_is_one_sync_of_each_file() -> None:
    disk = CountingStorage()
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    for _ in range(5):
        write_to(storage, files)
    disk.syncs.clear()
    storage.checkpoint()
    assert {path: disk.syncs[path] for path in FILES} == dict.fromkeys(FILES, 1)
    assert disk.syncs[LOG] <= 2 and size_of_frames(disk) == 0


def test_a_large_write_ahead_log_causes_a_checkpoint(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=500)
    files = opened(storage, *FILES)
    sizes = []
    for _ in range(30):
        write_to(storage, files)
        sizes.append(size_of_frames(disk))
    assert 0 < max(sizes) < 700
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))


def test_a_write_ahead_log_seldom_grows(disk: MemoryStorage) -> None:
    """The sync of a file that has grown takes longer, because the file system has to write its new size too."""
    storage = WriteAheadStorage(disk, checkpoint_bytes=3_200)
    files = opened(storage, *FILES)
    sizes = set()
    for _ in range(200):
        write_to(storage, files)
        sizes.add(disk.open(LOG).size())
    assert len(sizes) <= 17
    assert max(sizes) < 3_200 + 200 + 100


def test_many_bytes_of_one_file_are_not_copied() -> None:
    disk = CountingStorage()
    storage = WriteAheadStorage(disk)
    file, _ = opened(storage, "a/x", "a/y")
    for size, syncs in ((64 * 1024, {LOG: 1}), (64 * 1024 + 1, {"a/x": 1})):
        disk.syncs.clear()
        file.append(bytes(size))
        step(storage, [file], size)
        assert disk.syncs == syncs


def test_a_step_may_name_a_file_twice() -> None:
    world = World()
    written(world, *FILES)
    world.append("a/x", 5)
    world.append("b/x", 5)
    world.step(["a/x", "b/x", "a/x"])
    world.open_again("a/x")
    written(world, "a/x", "a/x", "b/x")
    world.lose_power()
    world.open_after_power_loss()


def test_a_file_with_more_unsynced_bytes_than_a_frame_may_have_is_synced_itself(disk: MemoryStorage) -> None:
    """A log that is not flushed after each step may have any number of them."""
    storage = WriteAheadStorage(disk)
    files = opened(storage, *FILES)
    for _ in range(5):
        files[0].append(bytes(60_000))
    for _ in range(2):
        before = size_of_frames(disk)
        write_to(storage, files)
        frames_bytes = size_of_frames(disk) - before
        assert 0 < frames_bytes < 200
    disk.crash()
    WriteAheadStorage(disk)
    assert disk.open(FILES[0]).read(0, 400_000) == b"first" + bytes(300_000) + b"datadata"
    # The second frame has all three files again.
    assert frames_bytes == 12 + sum(14 + len(path) + 4 for path in FILES)


def test_a_step_during_the_sync_of_a_file_waits_for_no_byte_of_that_sync(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    files[0].append(b"before,")
    end = files[0].begin_sync()
    write_to(storage, files, b"meanwhile")
    disk.crash()
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert disk.open(FILES[0]).read(0, 99) == b"firstbefore,meanwhile"
    end()


def test_a_buffer_may_be_used_again_after_an_append(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    buffer = bytearray(b"data")
    for file in files:
        file.append(buffer)
    buffer[:] = b"used"
    step(storage, files, 12)
    disk.crash()
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert [disk.open(path).read(0, 99) for path in FILES] == [b"firstdata"] * 3


def test_large_steps_are_durable_too() -> None:
    world = World(checkpoint_bytes=10_000_000)
    written(world, *FILES)
    for path in FILES:
        world.append(path, 300_000)
    world.step(FILES)
    written(world, *FILES)
    world.finish()
    world.lose_power()
    world.open_after_power_loss()


# The write-ahead log's own file.


def with_a_frame(disk: MemoryStorage) -> WriteAheadStorage:
    """Return a storage whose files have a write that only the write-ahead log has made durable."""
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    write_to(storage, files)
    return storage


def test_the_write_ahead_log_is_not_listed(disk: MemoryStorage) -> None:
    storage = with_a_frame(disk)
    assert size_of_frames(disk) > 0
    assert storage.list_folder("") == ["a", "b"]


def test_closing_removes_the_write_ahead_log(disk: MemoryStorage) -> None:
    storage = with_a_frame(disk)
    storage.close()
    assert not disk.exists(LOG)
    # The name comes back, with a log that has no frame.
    disk.crash()
    WriteAheadStorage(disk)
    assert {path: data for path, data in disk.files() if data} == dict.fromkeys(FILES, b"firstdata")


def test_opening_a_storage_without_a_write_ahead_log_writes_nothing(disk: MemoryStorage) -> None:
    disk.open("a/x").append(b"data")
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert {path: data for path, data in disk.files() if path != LOG} == {"a/x": b"data"}
    assert size_of_frames(disk) == 0


def with_one_frame() -> tuple[World, dict[str, bytes]]:
    """Return a world whose write-ahead log has one frame, and the files as they were before it."""
    world = World()
    written(world, *FILES)
    before = world.files()
    world.storage.checkpoint()
    written(world, *FILES)
    return world, before


def test_each_changed_byte_ends_the_replay() -> None:
    world, before = with_one_frame()
    log = world.disk.open(LOG)
    frame = log.read(0, size_of_frames(world.disk))
    for position in range(len(frame)):
        world.disk.crash()
        log = world.disk.open(LOG)
        log.truncate(0)
        log.append(frame[:position] + bytes([frame[position] ^ 1]) + frame[position + 1 :])
        log.sync()
        WriteAheadStorage(world.disk, checkpoint_bytes=10_000)
        assert world.files() == before, position


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 5_000, b"\xff" * 100, bytes(range(256))])
def test_garbage_behind_the_last_frame_is_no_frame(garbage: bytes) -> None:
    world = World()
    written(world, *FILES)
    written(world, *FILES)
    world.lose_power()
    log = world.disk.open(LOG)
    log.overwrite(size_of_frames(world.disk), garbage)
    log.sync()
    world.open_after_power_loss()
    for _ in range(2):
        written(world, *FILES)
        written(world, *FILES)
        world.lose_power()
        world.open_after_power_loss()


def test_a_full_disk_in_the_middle_of_a_frame_harms_nothing() -> None:
    for seed in range(30):
        world = World()
        world.disk.random.seed(seed)
        written(world, *FILES)
        written(world, *FILES)
        for path in FILES:
            world.append(path, 30)
        world.disk.is_full = True
        with contextlib.suppress(OSError):
            world.step(FILES)
        world.disk.is_full = False
        written(world, *FILES)
        written(world, *FILES)
        world.lose_power()
        world.open_after_power_loss()


def test_deleting_is_possible_on_a_full_disk() -> None:
    world = World()
    written(world, *FILES)
    written(world, *FILES)
    world.disk.is_full = True
    world.delete("a/x")
    world.truncate("a/y", 3)
    world.rename("b", "c")
    world.sync_names()
    world.check_unharmed()


def test_a_file_may_be_cut_while_its_sync_is_in_progress(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    file, other = opened(storage, "a/x", "a/y")
    file.append(b"will be cut")
    end = file.begin_sync()
    file.truncate(5)
    end()
    file.append(b", and this is more than was cut")
    other.append(b"data")
    step(storage, [file, other])
    expected = dict(disk.files())
    disk.crash()
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert disk.open("a/x").read(0, 99) == expected["a/x"] == b"first, and this is more than was cut"


def test_a_replay_keeps_the_bytes_behind_a_range_that_was_lost(disk: MemoryStorage) -> None:
    with_a_frame(disk)
    # A file system may write later blocks first, and leave zeros in earlier ones.
    lost = disk.open("a/x")
    lost.truncate(5)
    lost.append(b"\0\0\0\0behind")
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert disk.open("a/x").read(0, 99) == b"firstdatabehind"


def test_bytes_written_while_a_sync_is_in_progress_are_not_part_of_it(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, "a/x", "a/y")
    files[0].append(b"before,")
    end = files[0].begin_sync()
    files[0].append(b"meanwhile")
    end()
    files[1].append(b"data")
    step(storage, files)
    disk.crash()
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert disk.open("a/x").read(0, 99) == b"firstbefore,meanwhile"


def test_no_byte_is_in_two_frames(disk: MemoryStorage) -> None:
    storage = WriteAheadStorage(disk, checkpoint_bytes=10_000)
    files = opened(storage, *FILES)
    sizes = [size_of_frames(disk)]
    for _ in range(4):
        write_to(storage, files)
        sizes.append(size_of_frames(disk))
    assert len({later - earlier for earlier, later in itertools.pairwise(sizes)}) == 1


def test_a_replay_creates_no_file(disk: MemoryStorage) -> None:
    with_a_frame(disk)
    disk.delete("a")
    WriteAheadStorage(disk, checkpoint_bytes=10_000)
    assert {path: data for path, data in disk.files() if path != LOG} == {"b/x": b"firstdata"}
