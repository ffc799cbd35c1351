"""The same tests for `broker_core` and Apache Kafka, through a bootstrap address only."""
