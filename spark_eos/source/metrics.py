"""Count what the source does on the driver, for Prometheus; its log tells the lags."""

from collections.abc import Mapping
from typing import Final

from broker_core.types import TopicPartition
from spark_eos.metrics import Metrics

METRICS: Final = Metrics()
PREFIX: Final = "eos_kafka_source"


def set_for_partitions(name: str, values: Mapping[TopicPartition, int]) -> None:
    """Set a gauge for each partition."""
    METRICS.set_each(
        name, {(("topic", tp.topic), ("partition", str(tp.partition))): value for tp, value in sorted(values.items())}
    )
