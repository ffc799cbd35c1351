"""Versions of PySpark and Apache Kafka, each tried with the same jobs: `python -m tests.compatibility`."""
