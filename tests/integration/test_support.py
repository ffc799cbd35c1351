"""The tests' own helpers, whose mistakes would hide others."""

import ast
import subprocess
from pathlib import Path
from threading import Thread, get_native_id
from types import SimpleNamespace

import pytest

from broker_core.server.listeners import started_line
from tests.support import class_archive
from tests.support.broker_processes import address_in
from tests.support.child_process import start_child
from tests.support.file_order import LONGEST, SESSIONS, TESTS, spread, unit_of
from tests.support.java import java_problem, parse_version
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_352"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_java_version_is_parsed_from_its_banner(banner: str, version: int | None):
    assert parse_version(banner) == version


def test_missing_java_is_reported(tmp_path):
    for environ in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(tmp_path)}):
        assert "Java is missing" in str(java_problem(environ))


def test_old_java_is_reported(tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0_352\"' >&2\n")
    java.chmod(0o755)
    assert "is version 8; install Java 17 or newer" in str(java_problem({"PATH": str(tmp_path)}))


def test_wait_timeout_names_the_condition():
    with pytest.raises(AssertionError, match="condition not met within 0 s: the moon"):
        wait_until(lambda: 0, "the moon", deadline_s=0)


@pytest.mark.parametrize("more", [{}, {"SASL_PLAINTEXT": "localhost:9093"}])
def test_address_is_read_from_what_the_broker_prints(more: dict[str, str]):
    printed = started_line({"PLAINTEXT": "localhost:9092", **more}, 2, None, {})
    assert address_in(printed) == "localhost:9092"


def test_the_longest_files_start_first_busy_ones_among_waiting_ones_and_short_ones_last():
    def item(path: str, name: str = "", spark: bool = False) -> SimpleNamespace:
        return SimpleNamespace(path=TESTS / path, name=name, get_closest_marker=lambda _: spark or None)

    waiting = [item(f"interop/test_{number}.py") for number in range(4)]
    busy = [item("crash/test_a.py", "no Spark"), item("crash/test_a.py", "first", True), item("simulation/test_b.py")]
    later = item("crash/test_a.py", "second", True)
    short, longest = item("unit/test_c.py"), [item(name) for name in LONGEST if not name.startswith("spark/")]
    shared = [item(f"spark/test_{name}.py") for name in ("admin", "metrics", "sink", "source_beside_sparks")]
    found = spread([short, *waiting, *busy, *shared, later, *reversed(longest)])
    assert sorted(found[: len(shared)], key=shared.index) == shared, "the sessions of Spark are first"
    assert found[len(shared) :] == [
        *longest, waiting[0], busy[0], busy[1], later, waiting[1], waiting[2], busy[2], waiting[3], short,
    ]  # fmt: skip


def test_two_processes_run_all_files_that_share_a_session_of_spark_and_no_others():
    files = {path.relative_to(TESTS.parent).as_posix() for path in TESTS.rglob("test_*.py")}
    shared = {file for file in files if unit_of(file) != file}
    assert len({unit_of(file) for file in shared}) == SESSIONS
    trees = {file: ast.parse((TESTS.parent / file).read_text(encoding="utf-8")) for file in files}
    assert shared == {
        file
        for file, tree in trees.items()
        if any(
            isinstance(each, ast.ImportFrom) and {"spark", "*"} & {name.name for name in each.names}
            for each in tree.body
        )
    }


def test_the_longest_files_exist():
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def test_a_jvm_gets_an_archive_of_classes_only_if_there_is_one(tmp_path):
    jars = tmp_path / "jars"
    jars.mkdir()
    archive = class_archive.archive_of(jars, tmp_path)
    if archive is None:
        pytest.skip("needs Java")
    assert class_archive.using(archive) == []
    fresh = archive.with_suffix(".fresh")
    assert f"-XX:ArchiveClassesAtExit={fresh}" in class_archive.writing(archive)
    old = tmp_path / "jars-of-another-java.jsa"
    for path in (old, fresh):
        path.touch()
    class_archive.keep(archive, jars)
    assert [path.name for path in tmp_path.glob("*.*")] == [archive.name], "the old one is gone"
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.using(archive)


def test_a_child_outlives_the_thread_that_asked_for_it():
    started = []

    def start() -> None:
        process = start_child(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append((process, get_native_id()))

    thread = Thread(target=start)
    thread.start()
    thread.join()
    [(child, thread_id)] = started
    wait_until(lambda: not Path(f"/proc/self/task/{thread_id}").exists(), "Linux has ended the thread")
    assert child.communicate("still here") == ("still here", None)
    assert child.returncode == 0
