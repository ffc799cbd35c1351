"""The brokers that conformance tests ask, and their settings."""

from dataclasses import dataclass

BROKERS = ("broker_core", "apache")
# Few partitions make a quick start; scans run and consumer groups' members report often, so that no test has to wait.
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "5000",
}
# The broker that is restarted also compacts without delay.
DURABLE_SETTINGS = SETTINGS | {"log.cleaner.backoff.ms": "100"}


@dataclass(frozen=True)
class Kafka:
    """Hold all that a conformance test may know of the broker it asks."""

    bootstrap_servers: str
    name: str = "broker_core"
