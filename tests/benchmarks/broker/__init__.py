"""The measurements of the broker beside Apache Kafka; `tests.benchmarks.bench_broker` runs them."""
