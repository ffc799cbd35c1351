"""Let Spark find `eos-kafka` without registration: it imports every top-level module named `pyspark_*`."""

from spark_eos.datasource import EosKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
