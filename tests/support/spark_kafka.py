"""Give Spark its own Kafka source and sink, from jars that Maven fetches once."""

from pathlib import Path

from tests.support.apache_kafka import fetch_jars

POM = Path(__file__).with_name("spark-kafka-pom.xml")


def spark_kafka_settings() -> dict[str, str]:
    """Give the settings of a session that knows `format("kafka")`; raises `Unavailable` where it cannot be had."""
    return {"spark.jars": ",".join(map(str, sorted(fetch_jars(POM).glob("*.jar"))))}
