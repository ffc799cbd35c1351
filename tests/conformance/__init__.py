"""Ask the same questions of `broker_core` and of Apache Kafka, through a bootstrap address only."""
