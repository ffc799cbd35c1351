"""Count what the sink does in this process, for its log and for Prometheus."""

from typing import Final

from spark_eos.metrics import Metrics

METRICS: Final = Metrics()
PREFIX: Final = "eos_kafka_sink"
