"""The data source under the name that Spark looks up."""

from pyspark.sql.datasource import DataSource

import pyspark_eos_kafka
from spark_eos import EosKafkaDataSource


def test_datasource_module_exports_the_class_spark_imports() -> None:
    assert pyspark_eos_kafka.DefaultSource is EosKafkaDataSource
    assert issubclass(EosKafkaDataSource, DataSource)
    assert EosKafkaDataSource.name() == "eos-kafka"
