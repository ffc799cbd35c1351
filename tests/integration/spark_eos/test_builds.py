"""Two builds of one version: what one of them pickles is not opened by the other, whose fields may differ."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark import cloudpickle

import spark_eos
from spark_eos import EosKafkaDataSource

PACKAGE = Path(spark_eos.__file__).parent
DEADLINE_S = 60
_OPEN = """
import pickle, sys
print(pickle.loads(bytes.fromhex(sys.argv[1]))._options.client)
"""
_REPLACED = """
import sys
from functools import partial
from pathlib import Path
from spark_eos.sink.detached_process import DetachedProcess
made = DetachedProcess()
made.hand_over(partial(Path.touch, Path("called")))
for file in sys.argv[1:]:
    Path(file).write_text(Path(file).read_text() + "# Another build.\\n")
made.close()
made._process.wait()
"""
_IMPORTED_LATE = """
import sys
from pathlib import Path
from pyspark.sql.types import StringType, StructField, StructType
import spark_eos
from spark_eos.sink.spark_writers import StreamWriter
from spark_eos.runtime import process_state
from spark_eos.worker_memory import loading_modules
for moment in sys.argv[1:]:
    if moment == "imported":
        with loading_modules(process_state()):
            import spark_eos.sink.factory
            from spark_eos.options.sink import sink_options
            from spark_eos.sink.abort_sweep import keep_sweeping
    if moment == "public":
        try:
            spark_eos.write
        except spark_eos.ClientStateError:
            spark_eos.write
    if moment == "aborted":
        options = {"topic": "t", "kafka.bootstrap.servers": "h:1", "checkpointLocation": "/none"}
        schema = StructType([StructField("value", StringType())])
        StreamWriter(options, schema, overwrite=False, plans=False).abort([None], 0)
    if moment == "swept":
        keep_sweeping(sink_options({"topic": "t", "kafka.bootstrap.servers": "h:1"}), "incarnation", 0)
    if moment == "missing":
        Path("spark_eos/sink/factory.py").unlink()
    if moment == "replaced":
        for file in ("cluster", "dataframe_writes"):
            with open(f"spark_eos/sink/{file}.py", "a") as module:
                module.write("# More.\\n")
    if moment == "written again":
        for file in Path("spark_eos").rglob("*.py"):
            file.write_text(file.read_text())
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Copy the packages, as another environment has it."""
    for package in ("spark_eos", "broker_core"):
        shutil.copytree(PACKAGE.parent / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(build: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(build), str(PACKAGE.parent)])
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=build, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip


def test_task_of_another_build_is_refused(build: Path) -> None:
    source = EosKafkaDataSource({"subscribe": "orders", "kafka.bootstrap.servers": "h:1", "kafka.client.id": "mine"})
    sent = bytes(cloudpickle.dumps(source.streamReader(source.schema()))).hex()
    assert "client_id='mine'" in run(build, _OPEN, sent).stdout
    options = build / "spark_eos" / "options" / "client.py"
    options.write_text(options.read_text().replace("    client_id: ", "    one_more: str = ''\n    client_id: "))
    answer = run(build, _OPEN, sent)
    number = r"version [\d.]+ \(build \w+\)"
    assert re.search(rf"The driver has {number} of eos-kafka, and a task has {number}", answer.stderr), answer


@pytest.mark.parametrize("file", ["spark_eos/options/client.py", "broker_core/types.py"])
def test_task_of_a_build_with_files_of_the_same_sizes_is_refused(build: Path, file: str) -> None:
    source = EosKafkaDataSource({"subscribe": "orders", "kafka.bootstrap.servers": "h:1"})
    sent = bytes(cloudpickle.dumps(source.streamReader(source.schema()))).hex()
    text = (build / file).read_text()
    (build / file).write_text(text.swapcase()[: text.index("\n")] + text[text.index("\n") :])
    assert "ClientStateError: The driver has version" in run(build, _OPEN, sent).stderr


def test_folders_that_are_no_packages_do_not_make_a_build(build: Path) -> None:
    source = EosKafkaDataSource({"subscribe": "orders", "kafka.bootstrap.servers": "h:1", "kafka.client.id": "mine"})
    for folder in (".ipynb_checkpoints", "notes"):
        (build / "spark_eos" / folder).mkdir()
        (build / "spark_eos" / folder / "client.py").touch()
    sent = bytes(cloudpickle.dumps(source.streamReader(source.schema()))).hex()
    assert "client_id='mine'" in run(build, _OPEN, sent).stdout


@pytest.mark.parametrize("is_replaced", [False, True])
def test_call_of_a_replaced_build_is_not_made(build: Path, is_replaced: bool) -> None:
    files = [str(build / "spark_eos" / "open_transaction.py")] if is_replaced else []
    answer = run(build, _REPLACED, *files)
    assert answer.returncode == 0, answer.stderr
    assert (build / "called").exists() is not is_replaced
    assert ("has left open is not ended here" in answer.stderr) is is_replaced


def test_process_that_has_imported_almost_nothing_refuses_another_build_of_anything(build: Path) -> None:
    program = """
import spark_eos.sent_to_tasks
from pathlib import Path
for file in Path("spark_eos").rglob("*.py"):
    file.write_text(file.read_text() + "# More.\\n")
import spark_eos.datasource
"""
    answer = run(build, program)
    assert "ClientStateError: The files of eos-kafka were replaced" in answer.stderr, answer


@pytest.mark.parametrize("replaced", ["replaced", "missing"])
def test_process_imports_nothing_of_another_build(build: Path, replaced: str) -> None:
    answer = run(build, _IMPORTED_LATE, replaced, "imported")
    number = r"version [\d.]+ \(build \w+\)"
    assert re.search(
        rf"replaced while a process used them: it has imported {number}, and build \w+ is there now", answer.stderr
    ), answer


def test_public_name_of_another_build_is_refused_each_time(build: Path) -> None:
    answer = run(build, _IMPORTED_LATE, "replaced", "public")
    assert answer.stderr.count("ClientStateError: The files of eos-kafka were replaced") == 2, answer


def test_abort_imports_nothing_of_another_build_and_does_not_raise(build: Path) -> None:
    answer = run(build, _IMPORTED_LATE, "replaced", "aborted")
    assert answer.returncode == 0, answer
    assert "micro-batch 0 could not be aborted" in answer.stderr and "were replaced" in answer.stderr


def test_sweep_that_another_build_would_not_make_is_warned_of(build: Path) -> None:
    answer = run(build, _IMPORTED_LATE, "imported", "replaced", "swept")
    assert answer.returncode == 0, answer
    assert "the abort sweep ends here" in answer.stderr and "were replaced" in answer.stderr


@pytest.mark.parametrize("moments", [("imported", "replaced", "imported"), ("written again", "imported", "public")])
def test_process_that_imports_nothing_else_goes_on(build: Path, moments: Sequence[str]) -> None:
    assert run(build, _IMPORTED_LATE, *moments).returncode == 0
