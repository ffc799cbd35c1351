"""The demo: it counts the identifiers of Python's standard library through Kafka and Spark, exactly once."""
