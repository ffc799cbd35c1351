"""Spark's own Kafka source and sink, from jars that Maven fetches once."""

from pathlib import Path

from tests.support.apache_kafka import fetch_jars

POM = Path(__file__).with_name("spark-kafka-pom.xml")


def spark_kafka_settings() -> dict[str, str]:
    """Return the settings of a session with `format("kafka")`; raises `Unavailable` if the jars are missing."""
    return {"spark.jars": ",".join(map(str, sorted(fetch_jars(POM).glob("*.jar"))))}
