"""The entry point for Spark, which imports every top-level module named `pyspark_*` to find data sources."""

from spark_eos.datasource import EosKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
