"""The imports of each of Spark's short-lived Python processes, and those they never need."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_eos.source.schema import ARROW_HEADERS

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60

_BEGIN = """
import importlib.metadata, json, sys, types
archives = []
look = importlib.metadata.FastPath.zip_children
importlib.metadata.FastPath.zip_children = lambda path: archives.append(path.root) or look(path)
import pyspark.sql.datasource, pyspark.taskcontext
before, archives[:], path = set(sys.modules), [], list(sys.path)
stages = {}
def note(stage):
    stages[stage] = sorted(set(sys.modules) - before)
"""
_COMMIT = """
import spark_eos.datasource
note("lookup")
import spark_eos.sink.spark_writers
note("unpickled")
import spark_eos.sink.driver.preflight
note("planning")
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.decision_writer import _encode
from spark_eos.sink.factory import committer
from spark_eos.options.sink import sink_options
options = sink_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
committer(ProcessState(REAL), options, "q", "r")
list(_encode(types.SimpleNamespace(records=[(b"key", b"value"), (b"key", None)], now_ms=0)))
note("commit")
import spark_eos.source.spark_readers
"""
_TASK = """
from spark_eos.sink.spark_writers import Place
from spark_eos.options.sink import sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.factory import task_writer
options = sink_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
process, place = ProcessState(REAL), Place("q", "r", 0, 0)
task_writer(process, options, place, may_be_decided=False)
import pyarrow as pa
from spark_eos.sink.task.batching import BatchBuilder
cluster = types.SimpleNamespace(
    runtime=REAL,
    known_counts=lambda topics, micro_batch: dict.fromkeys(topics, 3),
    leaderless_partitions=lambda topics: {},
    batch_bytes=lambda topic, limit: limit,
)
builder = BatchBuilder(options, cluster, place)
# As a task gets them: pyarrow imports pandas to make an array of a list.
[rows] = pa.ipc.open_stream(bytes.fromhex("ROWS"))
batches = [batch for found in (builder.place(rows), builder.rest()) for _, batch in found.batches]
note("task")
"""
_READ = """
from broker_core.types import TopicPartition
from spark_eos.codec.decode import decode_slabs
from spark_eos.codec.encoded_batch import seal
from spark_eos.source.range_reader import _to_spark
from broker_core.records.header import iter_headers
for batch in batches:
    data = seal(batch, producer_id=1, producer_epoch=0, base_sequence=0)
    [columns] = decode_slabs(data, iter_headers(data), include_headers=True, first_offset=0, end_offset=9)
    _to_spark(columns, TopicPartition("t", 0), True)
note("read")
"""
_END = """
print(json.dumps({"stages": stages, "archives": archives, "path_is_as_it_was": sys.path == path}))
"""


def stages_of(program: str, *archives: Path) -> Any:
    """Run a process that imports in stages."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, archives), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", _BEGIN + program + _END], env=environment, capture_output=True,
                          text=True, timeout=DEADLINE_S, check=True)  # fmt: skip
    return json.loads(done.stdout)


def rows_of_a_task() -> str:
    """Return rows with every column of the sink as Arrow's stream, in hexadecimal digits."""
    rows = pa.record_batch(
        {
            "key": pa.array([b"a", None, b"b"]),
            "value": pa.array([b"1", b"2", None]),
            "partition": pa.array([None, 2, None], pa.int32()),
            "timestamp": pa.array([1, None, 2], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([None, [("h", b"x")], []], ARROW_HEADERS),
        }
    )
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    return stream.getvalue().to_pybytes().hex()


def packages(modules: list[str]) -> set[str]:
    """Name the modules and all packages that contain them."""
    return {".".join(name.split(".")[: depth + 1]) for name in modules for depth in range(name.count(".") + 1)}


def test_process_imports_only_what_its_role_needs(tmp_path: Path):
    archive = tmp_path / "spark-core.jar"
    with zipfile.ZipFile(archive, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")
    found = stages_of(_COMMIT, archive)
    assert found["stages"]["lookup"] == [
        "broker_core", "broker_core.errors_page", "broker_core.version", "spark_eos", "spark_eos.datasource",
        "spark_eos.errors", "spark_eos.message_first", "spark_eos.sent_to_tasks", "spark_eos.spark_api",
    ]  # fmt: skip
    # Each process of a write unpickles the writer.
    assert not packages(found["stages"]["unpickled"]) & {"kafka", "spark_eos.client", "spark_eos.sink.driver"}
    # Only tasks and the commit need the code that writes and ends transactions.
    assert not packages(found["stages"]["planning"]) & {
        "pyarrow.compute", "spark_eos.codec", "spark_eos.client.producer", "spark_eos.client.fetch",
        "spark_eos.sink.task", "spark_eos.sink.driver.committer", "spark_eos.sink.factory",
        "spark_eos.options.source", "prometheus_client",
    }  # fmt: skip
    commit = packages(found["stages"]["commit"])
    assert "spark_eos.sink.driver.committer" in commit
    assert not commit & {"pandas", "pyarrow.compute", "spark_eos.codec.encode", "spark_eos.sink.task"}
    # The directory of Spark's core jar, which is on each worker's path, is long.
    assert found["archives"] == [], "an import has looked for its version in an archive"
    assert found["path_is_as_it_was"]


def test_task_imports_no_commit_code():
    stages = stages_of(_TASK.replace("ROWS", rows_of_a_task()) + _READ)["stages"]
    task = packages(stages["task"])
    assert "spark_eos.sink.task.writer" in task
    assert not task & {
        "spark_eos.sink.driver.committer", "spark_eos.sink.protocol.ownership", "spark_eos.sink.protocol.verification",
        "spark_eos.sink.driver.preflight", "spark_eos.sink.protocol.decision_log", "spark_eos.codec.decode", "pandas",
    }  # fmt: skip
    assert "pandas" not in stages["read"]


def test_process_that_sweeps_after_a_driver_imports_no_pyspark():
    code = "import sys, spark_eos.sink.abort_sweep; print(sorted({'numpy', 'pyarrow', 'pyspark'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout == b"[]\n"


# Spark's search for data sources


def test_discovery_imports_no_heavy_modules() -> None:
    """Every Spark session imports the module, whether it reads Kafka or not."""
    code = "import sys, pyspark_eos_kafka; print([m for m in sys.modules if m in ('pyarrow', 'numpy', 'kafka')])"
    plain = subprocess.run(
        [sys.executable, "-c", f"import sys, pyspark.sql.datasource; before = set(sys.modules); {code}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    baseline = subprocess.run(
        [sys.executable, "-c", "import sys, pyspark.sql.datasource; "
         "print([m for m in sys.modules if m in ('pyarrow', 'numpy', 'kafka')])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert plain.stdout == baseline.stdout
