"""Count the identifiers of Python's standard library through Kafka and Spark, exactly once, killed on the way."""
