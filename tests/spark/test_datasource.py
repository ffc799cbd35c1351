"""The examples in the docstrings of what users call in Spark run, in a session that finds `eos-kafka` by itself."""

import doctest
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from spark_eos import datasource, progress_listener
from spark_eos.sink import dataframe_writes, task_placement
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("module", "fewest"),
    [(datasource, 11), (dataframe_writes, 1), (task_placement, 1), (progress_listener, 1)],
    ids=["datasource", "dataframe_writes", "task_placement", "progress_listener"],
)
def test_examples_of_docstrings_run(spark: SparkSession, module: ModuleType, fewest: int) -> None:
    result = doctest.testmod(module, extraglobs={"spark": spark})
    assert result.failed == 0 and result.attempted >= fewest
