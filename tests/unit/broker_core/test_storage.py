"""Memory and disk storage behave the same; memory storage can simulate a crash."""

import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import File, Storage
from broker_core.server.disk import DiskStorage
from broker_core.simulation.disk import MemoryStorage


@pytest.fixture(
    params=[
        "memory",
        "disk",
        "disk with two descriptors",
        "write-ahead log in memory",
        "write-ahead log on disk",
        "write-ahead log on disk with two descriptors",
    ]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return each storage; the one with two descriptors reopens files all the time."""
    if "memory" in request.param:
        plain: Storage = MemoryStorage()
    else:
        plain = DiskStorage(tmp_path / "root", max_open_files=2 if "two" in request.param else 512)
    return WriteAheadStorage(plain, checkpoint_bytes=1_000) if "write-ahead" in request.param else plain


def test_appended_bytes_are_read_back(storage: Storage) -> None:
    file = storage.open("a/b.log")
    file.append(b"hello")
    file.append(bytearray(b" wor"))
    file.append(memoryview(b"xldx")[1:3])
    assert file.size() == 11
    assert file.read(0, 100) == b"hello world"
    assert file.read(6, 3) == b"wor"
    assert file.read(11, 5) == b""
    assert file.read(50, 5) == b""


def test_reopening_shows_the_same_bytes(storage: Storage) -> None:
    storage.open("f").append(b"abc")
    other = storage.open("f")
    other.append(b"d")
    assert storage.open("f").read(0, 10) == b"abcd"


def test_truncate_cuts_and_appends_continue_there(storage: Storage) -> None:
    file = storage.open("f")
    file.append(b"abcdef")
    file.truncate(2)
    file.append(b"X")
    assert file.read(0, 10) == b"abX"
    file.truncate(10)
    assert file.size() == 3


def test_overwritten_bytes_are_read_back(storage: Storage) -> None:
    file, other = storage.open("f"), storage.open("g")
    for each in (file, other):
        each.append(b"abcdef")
    file.overwrite(1, b"XY")
    other.overwrite(4, b"longer")
    for each in (file, other):
        each.append(b"!")
    assert file.read(0, 20) == b"aXYdef!"
    assert other.read(0, 20) == b"abcdlonger!"
    assert other.size() == 11


def test_many_files_are_usable(storage: Storage) -> None:
    files = [storage.open(f"many/{i}") for i in range(10)]
    for round_number in range(3):
        for file in files:
            file.append(b"%d" % round_number)
            file.sync()
    assert [file.read(0, 9) for file in files] == [b"012"] * 10
    for file in files:
        file.close()


def test_names_are_listed(storage: Storage) -> None:
    assert storage.list_folder("nowhere") == []
    storage.make_folder("x/y")
    storage.open("x/b").append(b"1")
    storage.open("x/a")
    assert storage.list_folder("x") == ["a", "b", "y"]
    assert storage.exists("x/y") and storage.exists("x/a") and not storage.exists("x/c")
    assert storage.list_folder("x/b") == []
    assert "x" in storage.list_folder("")
    storage.delete("x/a")
    storage.delete("x/a")
    assert storage.list_folder("x") == ["b", "y"]
    storage.delete("x")
    assert not storage.exists("x/b")
    storage.delete("x/b/c")


def test_rename_replaces_a_file(storage: Storage) -> None:
    for name, content in (("new.tmp", b"new"), ("old", b"old")):
        file = storage.open(name)
        file.append(content)
        file.close()
    storage.rename("new.tmp", "old")
    assert not storage.exists("new.tmp")
    assert storage.open("old").read(0, 9) == b"new"


def test_rename_moves_a_directory(storage: Storage) -> None:
    file = storage.open("t-0/x.log")
    file.append(b"z")
    file.close()
    storage.rename("t-0", "bin/t-0.deleted")
    assert storage.list_folder("bin/t-0.deleted") == ["x.log"]
    assert not storage.exists("t-0")


def test_renaming_a_missing_file_fails(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.rename("nothing", "something")


def test_sync_directory_makes_names_durable(storage: Storage) -> None:
    storage.open("q/f").sync()
    storage.sync_folder("q")
    storage.sync_folder("")
    with pytest.raises(FileNotFoundError):
        storage.sync_folder("nowhere")


def test_directory_is_not_a_file(storage: Storage) -> None:
    storage.make_folder("d")
    with pytest.raises(IsADirectoryError):
        storage.open("d")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//b", "."])
def test_path_outside_the_root_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        DiskStorage(tmp_path).open(path)


def test_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    storage = DiskStorage(tmp_path, max_open_files=3)
    for i in range(9):
        storage.open(str(i)).append(b"x")
    assert len(storage.pool) == 3
    storage.close()
    assert not storage.pool


@pytest.mark.parametrize(("limit", "kept"), [(10, 5), (12, 6), (resource.RLIM_INFINITY, 9)])
def test_half_of_the_descriptors_of_a_process_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    storage = DiskStorage(tmp_path)
    for i in range(9):
        storage.open(str(i)).append(b"x")
    assert len(storage.pool) == kept
    storage.close()


def test_file_that_was_removed_is_not_created_again(tmp_path: Path) -> None:
    storage = DiskStorage(tmp_path, max_open_files=1)
    file = storage.open("folder/file")
    file.append(b"x")
    storage.open("other")
    (tmp_path / "folder" / "file").unlink()
    for use in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.append(b"y")):
        with pytest.raises(FileNotFoundError, match="folder/file"):
            use()
    assert storage.list_folder("folder") == []


def test_close_ends_the_sync_threads(tmp_path: Path) -> None:
    storage = DiskStorage(tmp_path)

    def syncing() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("sync")}

    others = syncing()
    files = [storage.open(name) for name in ("a", "b")]
    for _ in range(2):
        storage.sync_all([file.sync for file in files])
        assert syncing() - others
        storage.close()
        assert not syncing() - others


def durable_file(storage: MemoryStorage, path: str, content: bytes) -> None:
    file = storage.open(path)
    file.append(content)
    file.sync()
    folder = path.rpartition("/")[0]
    storage.sync_folder(folder)
    if folder:
        storage.sync_folder("")


UNSYNCED_CHANGES: dict[str, list[Callable[[File], None]]] = {
    "truncations": [lambda f: f.truncate(4), lambda f: f.append(b"XYZ"), lambda f: f.truncate(3)],
    "overwrites": [lambda f: f.overwrite(1, b"XXXX"), lambda f: f.overwrite(3, b"YYYYYY")],
    "an overwrite and a truncation": [lambda f: f.overwrite(1, b"XXXX"), lambda f: f.truncate(3)],
}


@pytest.mark.parametrize("changes", UNSYNCED_CHANGES.values(), ids=UNSYNCED_CHANGES)
def test_crash_undoes_unsynced_changes(changes: list[Callable[[File], None]]) -> None:
    storage = MemoryStorage()
    durable_file(storage, "t/f", b"abcdef")
    file = storage.open("t/f")
    for change in changes:
        change(file)
    storage.crash()
    assert dict(storage.files()) == {"t/f": b"abcdef"}


def appended(storage: MemoryStorage) -> None:
    storage.open("t/f").append(b"gone")
    storage.open("t/g").append(b"torn")


def truncated(storage: MemoryStorage) -> None:
    file = storage.open("t/f")
    file.truncate(4)
    file.sync()


def synced_in_part(storage: MemoryStorage) -> None:
    file = storage.open("t/f")
    file.overwrite(0, b"X")
    end = file.begin_sync()
    file.overwrite(1, b"Y")
    end()


@pytest.mark.parametrize(
    ("change", "crash", "left"),
    [
        (appended, {}, {"t/f": b"abcdef"}),
        (appended, {"survives": lambda path, unsynced: min(2, unsynced) if path == "t/g" else 0}, {"t/g": b"to"}),
        (appended, {"survives": lambda path, unsynced: max(unsynced - 1, 0) if path == "t/g" else 0}, {"t/g": b"tor"}),
        (
            lambda storage: storage.open("t/f").overwrite(1, b"XXXX"),
            {"survives": lambda _, unsynced: min(3, unsynced)},
            {"t/f": b"aXXXef"},
        ),
        (truncated, {}, {"t/f": b"abcd"}),
        (synced_in_part, {}, {"t/f": b"Xbcdef"}),
    ],
    ids=["appends", "torn append", "part of an append", "torn overwrite", "synced truncation", "synced overwrite"],
)
def test_crash_keeps_what_is_synced_and_may_keep_a_part_of_the_rest(
    change: Callable[[MemoryStorage], None], crash: dict[str, Any], left: dict[str, bytes]
) -> None:
    storage = MemoryStorage()
    for path, content in (("t/f", b"abcdef"), ("t/g", b"")):
        durable_file(storage, path, content)
    change(storage)
    storage.crash(**crash)
    assert dict(storage.files()) == {"t/f": b"abcdef", "t/g": b""} | left


def test_crash_drops_unsynced_names() -> None:
    storage = MemoryStorage()
    durable_file(storage, "t/a", b"a")
    storage.open("t/b").sync()
    storage.delete("t/a")
    storage.crash()
    assert dict(storage.files()) == {"t/a": b"a"}
    storage.open("u/c").sync()
    storage.sync_folder("u")
    storage.crash()
    assert not storage.exists("u")


def test_crash_can_keep_unsynced_names() -> None:
    storage = MemoryStorage()
    durable_file(storage, "t/a", b"a")
    storage.rename("t/a", "t/b")
    storage.crash(names_survive=True)
    assert dict(storage.files()) == {"t/b": b"a"}


def test_file_opened_before_a_crash_is_unusable() -> None:
    storage = MemoryStorage()
    durable_file(storage, "f", b"a")
    before = storage.open("f")
    storage.crash()
    before.append(b"b")
    assert storage.open("f").read(0, 9) == b"a"
