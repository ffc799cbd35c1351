"""Temporary files of tests are in memory if there is enough of it, and where a user wants them otherwise."""

import os
from pathlib import Path

import pytest

from tests.support.memory_files import own_folder, use_memory


@pytest.mark.parametrize(
    ("environ", "available_kib", "needed_bytes", "is_used"),
    [
        ({}, 1_000_000, 1, True),
        ({"TMPDIR": "/elsewhere"}, 1_000_000, 1, False),
        ({}, 1_000, 1_024_001, False),
        ({}, 1_000_000, 1 << 62, False),
    ],
    ids=["enough", "the user's own", "too little memory", "too small a folder"],
)
def test_files_are_in_memory_if_there_is_enough(
    environ: dict[str, str], available_kib: int, needed_bytes: int, is_used: bool, tmp_path: Path
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal:  9999999 kB\nMemAvailable:  {available_kib} kB\n")
    before = dict(environ)
    use_memory(environ, folder=tmp_path, needed_bytes=needed_bytes, memory=memory)
    assert environ == ({"TMPDIR": str(tmp_path)} if is_used else before)


def test_files_stay_on_a_disk_where_memory_is_no_folder(tmp_path: Path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal:  9999999 kB\n")
    for folder in (tmp_path / "missing", tmp_path):
        environ: dict[str, str] = {}
        use_memory(environ, folder=folder, needed_bytes=1, memory=memory)
        use_memory(environ, folder=folder, needed_bytes=1, memory=tmp_path / "missing")
        assert environ == {}


def test_folders_of_killed_runs_are_removed(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("k-old", "k-new", "old"))
    for each in (old, new, other):
        (each / "inner").mkdir(parents=True)
    for each in (old, other):
        os.utime(each, (0, 0))
    mine = Path(own_folder(tmp_path))
    assert set(tmp_path.iterdir()) == {new, other, mine}
