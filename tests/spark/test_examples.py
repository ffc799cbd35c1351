"""Every example runs and ends with its result; those with Spark share one session."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.spark_eos.spark_session import LEAN, PRELOAD, lean_jvm, worker_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem != "__init__"}
WITH_SPARK = [name for name, path in EXAMPLES.items() if "pyspark" in path.read_text()]
MOST_LINES = 75
DEADLINE_S = 250


def test_every_promised_example_exists():
    assert set(EXAMPLES) == {
        "exactly_once_stream",
        "idempotent_batch",
        "foreach_batch",
        "isolation_levels",
        "hanging_transaction",
        "fault_injection",
        "virtual_time",
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_documents_how_to_run_it(name):
    text = EXAMPLES[name].read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert f"python -m examples.{name}`" in text


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in WITH_SPARK])
def test_example_ends_with_its_verification(name, capsys):
    import_module(f"examples.{name}").main()
    assert capsys.readouterr().out.splitlines()[-1].startswith("PROVEN: ")


@pytest.mark.spark
def test_spark_examples_verify_their_result(tmp_path):
    code = "".join(f"import examples.{name} as each; each.main(); print('done: {name}')\n" for name in WITH_SPARK)
    # Spark's Python processes find the format in the working directory only, as for a reader who has installed nothing.
    environment = {
        "PYTHONPATH": str(PRELOAD),
        "SPARK_CONF_DIR": str(ROOT / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        # What `conf` does not say: a JVM and a session for a short life.
        "SPARK_SUBMIT_OPTS": " ".join([lean_jvm(), *(f"-D{name}={value}" for name, value in LEAN.items())]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ | worker_environment() | environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    lines = done.stdout.splitlines()
    for name in WITH_SPARK:
        assert lines[lines.index(f"done: {name}") - 1].startswith("PROVEN: ")
