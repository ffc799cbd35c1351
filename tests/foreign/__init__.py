"""Test suites and programs of others, fetched from registries and run against `broker_core` and Apache Kafka."""
