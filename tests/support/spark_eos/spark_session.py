"""A local Spark session for tests, with Python workers that see this repository, and failpoints that tests arm."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.apache_kafka import Unavailable
from tests.support.java import SHORT_LIFE, temporary_files
from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME
from tests.support.spark_home import archive_options, lean_spark_home
from tests.support.spark_kafka import spark_kafka_settings

ROOT = Path(__file__).parents[3]
# Makes Spark's worker daemons import once what every worker needs.
PRELOAD = ROOT / "tests" / "support" / "preload"
# Two threads for two cores, and three attempts for a task: a killed worker must not end its job.
MASTER = "local[2,3]"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
# Settings that save processor time outside of the connector. The demo and tests/compatibility run without.
LEAN = {
    # For a few rows a task, the interpreter is faster than compiling code.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Hadoop starts processes to read links and permissions, some 130 in the life of a query.
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def lean_jvm() -> str:
    """Return the options of a JVM of Spark for a short run; SPARK_SUBMIT_OPTS gives them to a program's own session."""
    return " ".join([*SHORT_LIFE, temporary_files(), archive_options()])


def worker_environment() -> dict[str, str]:
    """Return the environment with which Spark's Python workers run this interpreter on this repository."""
    paths = [str(PRELOAD), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    python = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": os.environ.get("SPARK_HOME") or lean_spark_home(),
    }
    return python | {"PYTHONPATH": os.pathsep.join(paths)}


def build_session(name: str, more_settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a small session."""
    builder = SparkSession.builder.master(MASTER).appName(name).config("spark.ui.enabled", "false")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": lean_jvm(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # A JVM that pauses for longer than this loses its block manager, and with it the logs of Python workers.
        "spark.network.timeout": "24h",
    }
    for key, value in (settings | LEAN | dict(more_settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def failpoints_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file from which the session's workers read their failpoints at every visit.

    Its name is constant within a test run: modules that import this share the session, and so its environment.
    """
    return tmp_path_factory.getbasetemp() / "failpoints"


@pytest.fixture(scope="session")
def spark(failpoints_file: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return the session; workers inherit the environment as it is when the JVM starts.

    With --apache the session also has Spark's own `format("kafka")`, if its jars are available.
    """
    try:
        sparks_own = spark_kafka_settings() if request.config.getoption("--apache") else {}
    except Unavailable:
        sparks_own = {}
    before = dict(os.environ)
    os.environ.update(worker_environment() | {ENVIRONMENT_NAME: f"@{failpoints_file}"})
    session = build_session("tests", {**sparks_own, "spark.local.dir": str(failpoints_file.parent / "spark")})
    # Not at the end: what other tests of this process start would run the preload too.
    os.environ.clear()
    os.environ.update(before)
    yield session
    session.stop()
