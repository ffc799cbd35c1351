"""A simulated disk fills up, loses power during a write, and loses data in ways that a seed decides."""

import errno
from random import Random

import pytest

from tests.support.simulated.disk import PowerLoss, SimulatedDisk
from tests.support.simulated.faults import FaultCounts, FaultKind


def disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(Random(seed), FaultCounts())


def durable_file(storage: SimulatedDisk, data: bytes):  # type: ignore[no-untyped-def]
    file = storage.open("folder/file")
    file.append(data)
    file.sync()
    storage.sync_folder("folder")
    storage.sync_folder("")
    return file


def test_full_disk_writes_a_part_and_refuses_the_rest() -> None:
    storage = disk()
    file = durable_file(storage, b"before")
    storage.is_full = True
    with pytest.raises(OSError) as caught:
        file.append(b"x" * 100)
    assert caught.value.errno == errno.ENOSPC
    assert 6 <= file.size() <= 106
    assert storage.faults.by_kind[FaultKind.DISK_FULL] == 1
    storage.is_full = False
    file.append(b"after")
    assert file.read(0, 200).endswith(b"after")


@pytest.mark.parametrize("begins_earlier", [False, True])
def test_failed_sync_is_reported_once_and_later_ones_make_nothing_durable(begins_earlier: bool) -> None:
    storage = disk()
    file = durable_file(storage, b"durable")
    storage.syncs_until_failure = 1
    file.append(b",synced")
    file.sync()
    file.append(b",failed")
    sync = file.begin_sync() if begins_earlier else file.sync
    with pytest.raises(OSError) as caught:
        sync()
    assert caught.value.errno == errno.EIO
    file.append(b",later")
    file.sync()
    storage.open("unnamed").sync()
    storage.sync_folder("")
    assert file.read(0, 100) == b"durable,synced,failed,later"
    storage.crash()
    assert dict(storage.files()) == {"folder/file": b"durable,synced"}


def test_process_after_a_failed_sync_may_find_the_writes_forgotten() -> None:
    found = set()
    for seed in range(50):
        storage = disk(seed)
        file = durable_file(storage, b"durable")
        file.append(b",failed")
        storage.syncs_until_failure = 0
        with pytest.raises(OSError):
            file.sync()
        storage.lose_process()
        found.add(dict(storage.files())["folder/file"])
        file = storage.open("folder/file")
        file.append(b",next")
        file.sync()
        storage.crash()
        assert dict(storage.files())["folder/file"].endswith(b",next")
    assert b"durable" in found
    assert len(found) > 1


def test_power_loss_countdown_counts_operations_that_change_the_disk() -> None:
    storage = disk()
    file = durable_file(storage, b"a")
    storage.fuse = 2
    file.append(b"b")
    assert file.read(0, 10) == b"ab"
    file.sync()
    with pytest.raises(PowerLoss):
        file.append(b"c")
    assert storage.fuse is None
    assert file.read(0, 10) == b"ab", "the operation that finds the fuse at zero does not happen"


def test_power_loss_leaves_a_prefix_of_unsynced_data() -> None:
    lengths = set()
    for seed in range(200):
        storage = disk(seed)
        file = durable_file(storage, b"durable")
        file.append(b"0123456789")
        storage.lose_power()
        found = dict(storage.files())["folder/file"]
        assert b"durable0123456789".startswith(found)
        lengths.add(len(found))
    assert {7, 17} <= lengths
    assert len(lengths) > 4, "torn writes come in all lengths"


def test_unsynced_files_survive_in_any_combination() -> None:
    seen = set()
    for seed in range(200):
        storage = disk(seed)
        for name in ("first", "second"):
            storage.open(name).sync()
        storage.sync_folder("")
        for name in ("first", "second"):
            storage.open(name).append(b"x" * 10)
        storage.lose_power()
        left = dict(storage.files())
        seen.add((len(left["first"]) == 10, len(left["second"]) == 10))
    assert (False, True) in seen, "what was written later may survive alone"


def test_killed_process_loses_nothing_and_syncs_nothing() -> None:
    storage = disk()
    file = durable_file(storage, b"durable")
    file.append(b"more")
    storage.lose_process()
    assert dict(storage.files())["folder/file"] == b"durablemore"
    storage.crash()
    assert dict(storage.files())["folder/file"] == b"durable"
