"""Read and write Kafka from PySpark exactly once, as the data source `eos-kafka`.

Owns: the floors of the data source; its public names are the format `eos-kafka` and `spark_eos.errors`.
Asks: `broker_core` for its vocabulary and the record batch format; `kafka.net` and `kafka.protocol` for the wire.
Never: imports anything heavy here: every Spark session that looks for data sources runs this file.
"""
