"""The process that metrics end with: the JVM of Spark's workers, or the user's program without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_eos.metrics_export import meeting_place
from spark_eos.metrics_export.meeting_place import DriverProcess, _stat, is_alive

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60
_ANSWER = "import os, sys; sys.path.insert(0, {root!r}); from spark_eos.metrics_export.meeting_place import driver_process; print(*driver_process(), os.getpid(), flush=True)"  # noqa: E501
_DAEMON = "import os\nif os.fork() == 0:\n    {answer}\n    os._exit(0)\nos.wait()\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with programs under the names of Spark's daemon and of one of its workers."""
    answer = _ANSWER.format(root=str(ROOT))
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("")
    (tmp_path / "pyspark" / "worker.py").write_text(answer)
    (tmp_path / "pyspark" / "daemon.py").write_text(_DAEMON.format(answer=answer))
    (tmp_path / "program.py").write_text(answer)
    return tmp_path


@pytest.mark.parametrize(("program", "is_of_parent"), [("pyspark.worker", 1), ("pyspark.daemon", 1), ("program", 0)])
def test_worker_belongs_to_the_process_that_started_it_or_its_daemon(
    programs: Path, program: str, is_of_parent: int
) -> None:
    # A Spark session of another test has set where Python finds modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-m", program], cwd=programs, env=environment, capture_output=True,
                          text=True, timeout=DEADLINE_S, check=True)  # fmt: skip
    process_id, started, own = done.stdout.split()
    assert process_id == (str(os.getpid()) if is_of_parent else own)
    assert not is_of_parent or DriverProcess(int(process_id), started) == DriverProcess(
        os.getpid(), _stat(os.getpid()).started
    )


def test_worker_without_its_jvm_does_not_belong_to_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting_place, "_is_worker", lambda: True)
    monkeypatch.setattr(meeting_place, "_parent_jvm", lambda: 1)
    monkeypatch.setattr(meeting_place, "_is_java", lambda _: False)
    assert meeting_place.driver_process().process_id == os.getpid()


def test_process_has_ended_when_its_id_belongs_to_another_or_it_is_not_waited_for() -> None:
    process = subprocess.Popen(["sleep", "600"])
    identity = DriverProcess(process.pid, _stat(process.pid).started)
    assert is_alive(identity)
    assert not is_alive(DriverProcess(process.pid, "1"))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity)
    process.wait()
    assert not is_alive(identity)


def test_process_is_found_without_the_files_of_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parent = meeting_place._parent_of(os.getpid())
    monkeypatch.setattr(meeting_place, "_PROC", tmp_path)
    assert parent == os.getppid() == meeting_place._parent_of(os.getpid())
    process = subprocess.Popen(["sleep", "600"])
    assert is_alive(DriverProcess(process.pid, ""))
    process.kill()
    process.wait()
    assert not is_alive(DriverProcess(process.pid, ""))


# The objects excluded from garbage collection, in a process of their own because they stay excluded


_PROGRAM = """
import gc
from spark_eos.runtime import process_state
from spark_eos.worker_memory import spare_modules

spare_modules(process_state())
first = gc.get_freeze_count()
again = [object(), []]
spare_modules(process_state())
second = gc.get_freeze_count()
import decimal, csv
spare_modules(process_state())
print(first > 1_000, second <= first, gc.get_freeze_count() > second)
"""


@pytest.mark.parametrize(
    ("kept", "expected"), [({"SPARK_REUSE_WORKER": "1"}, "True True True"), ({}, "False True False")]
)
def test_modules_are_frozen_once_in_a_reused_worker(kept: dict[str, str], expected: str) -> None:
    command = [sys.executable, "-c", _PROGRAM]
    found = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected


_LOADING = """
import gc
from spark_eos.runtime import process_state
from spark_eos.worker_memory import loading_modules

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
with loading_modules(process_state()):
    import kafka.protocol.admin, asyncio
    kept = [[] for _ in range(100_000)]
during, frozen = len(collections), gc.get_freeze_count()
gc.disable()
with loading_modules(process_state()):
    pass
print(during, frozen > 100_000, gc.isenabled())
"""


def test_garbage_collection_is_disabled_while_modules_are_imported() -> None:
    command = [sys.executable, "-c", _LOADING]
    environment = os.environ | {"SPARK_REUSE_WORKER": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0 True False"
