"""What each of Spark's short-lived Python processes has to import, and what it never needs."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60

_STAGES = """
import importlib.metadata, json, sys, types
archives = []
look = importlib.metadata.FastPath.zip_children
importlib.metadata.FastPath.zip_children = lambda path: archives.append(path.root) or look(path)
import pyspark.sql.datasource, pyspark.taskcontext
before, archives[:], path = set(sys.modules), [], list(sys.path)
stages = {}
import spark_eos.datasource
stages["lookup"] = sorted(set(sys.modules) - before)
import spark_eos.sink.spark_writers
stages["planning"] = sorted(set(sys.modules) - before)
import spark_eos.source.spark_readers
from spark_eos.sink.driver.decision_writer import _encode
list(_encode(types.SimpleNamespace(records=[(b"key", b"value"), (b"key", None)], now_ms=0)))
stages["commit"] = sorted(set(sys.modules) - before)
print(json.dumps({"stages": stages, "archives": archives, "path_is_as_it_was": sys.path == path}))
"""


def test_a_process_imports_what_its_part_of_a_write_needs(tmp_path: Path):
    archive = tmp_path / "spark-core.jar"
    with zipfile.ZipFile(archive, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(archive), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", _STAGES], env=environment, capture_output=True, text=True,
                          timeout=DEADLINE_S, check=True)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["stages"]["lookup"] == ["spark_eos", "spark_eos.datasource"]
    planning = set(found["stages"]["planning"])
    # What is written, and what becomes of it, is the business of tasks and of the commit.
    assert planning & {
        "pyarrow.compute", "spark_eos.codec", "spark_eos.client.producer", "spark_eos.client.fetch",
        "spark_eos.sink.task.writer", "spark_eos.sink.driver.committer", "spark_eos.sink.factory",
        "spark_eos.options.source", "prometheus_client",
    } == set()  # fmt: skip
    assert "spark_eos.sink.driver.preflight" in planning
    assert "pandas" not in found["stages"]["commit"]
    # The directory of Spark's core jar, which each worker has on its path, is long.
    assert found["archives"] == [], "an import has looked for its version in an archive"
    assert found["path_is_as_it_was"]
