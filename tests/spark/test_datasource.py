"""Spark finds `eos-kafka` by itself, wherever the packages are, and its classes have Spark's interface."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_eos.datasource
from tests.support.spark_eos.spark_session import failpoints_file, lean_jvm, spark
from tests.support.spark_home import lean_spark_home

__all__ = ["failpoints_file", "spark"]

REPOSITORY = Path(__file__).parents[2]

_ASK_FOR_SCHEMAS = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for reader in (spark.read, spark.readStream):
    frame = reader.format("eos-kafka").option("subscribe", "t").option("kafka.bootstrap.servers", "h:1").load()
    print("found", frame.columns)
"""


@pytest.mark.spark
@pytest.mark.parametrize("where", ["in the working directory", "on the python path"])
def test_spark_finds_the_format_without_registration(where: str, tmp_path: Path) -> None:
    """`pip install .` puts the module on the path; the examples have it in the working directory."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # The archive of classes belongs to this home.
    environment |= {"SPARK_HOME": environment.get("SPARK_HOME") or lean_spark_home(), "SPARK_SUBMIT_OPTS": lean_jvm()}
    folder = REPOSITORY
    if where == "on the python path":
        environment["PYTHONPATH"] = str(REPOSITORY)
        folder = tmp_path
    answer = subprocess.run(
        [sys.executable, "-c", _ASK_FOR_SCHEMAS],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert answer.stdout.splitlines() == [f"found {columns}"] * 2


@pytest.mark.spark
def test_manual_verification_examples_run(spark: SparkSession) -> None:
    result = doctest.testmod(spark_eos.datasource, extraglobs={"spark": spark})
    assert result.failed == 0 and result.attempted > 10
