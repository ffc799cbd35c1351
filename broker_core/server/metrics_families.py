"""The table of metrics for Prometheus: one row per metric, with its name, type, help text and samples.

Kafka's metrics are named as in the JMX exporter's example configuration for Kafka (kafka-2_0_0.yml), so that Kafka
dashboards can show them. The names of the others begin with `broker_core_`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import Metric

from broker_core.broker.monitoring.metrics import (
    COUNTER,
    GAUGE,
    SUMMARY,
    BrokerMetrics,
    Durations,
    MetricRow,
    Samples,
    one,
)
from broker_core.installed import parts

# The quantiles of Kafka's histograms.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


def _each_partition(mark: str) -> Callable[[BrokerMetrics], Samples]:
    return lambda metrics: [
        ({"topic": each.topic, "partition": str(each.partition)}, getattr(marks, mark))
        for each, marks in metrics.partitions.items()
    ]


_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_LOADS: Final = "kafka_server_{}_coordinator_metrics_partition_load_time_{}"
_PARTITION: Final = ("topic", "partition")
ROWS: Final = (
    one(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        "Partitions whose oldest open transaction has had no append for transaction.max.timeout.ms and five minutes",
        "partitions_with_late_transactions",
    ),
    one(
        "kafka_server_replicamanager_produceridcount",
        GAUGE,
        "Live producer ids, one counted in each partition that knows it",
        "producer_id_count",
    ),
    MetricRow(
        "broker_core_producer_ids",
        GAUGE,
        "Live producer ids, each counted once",
        "producer_ids",
        lambda metrics: [({}, len(metrics.producer_ids))],
    ),
    MetricRow(
        "broker_core_transactional_ids",
        GAUGE,
        "Transactional ids that have not expired, by state",
        "transactional_ids",
        lambda metrics: [({"state": state}, count) for state, count in sorted(metrics.transactional_ids.items())],
        ("state",),
    ),
    MetricRow(
        "kafka_cluster_partition_laststableoffsetlag",
        GAUGE,
        "How far the last stable offset is behind the high watermark",
        "last_stable_offset_lag(partition)",
        _each_partition("last_stable_offset_lag"),
        _PARTITION,
    ),
    MetricRow(
        "broker_core_partition_last_stable_offset",
        GAUGE,
        "The offset below which every transaction is decided",
        "last_stable_offset(partition)",
        _each_partition("last_stable_offset"),
        _PARTITION,
    ),
    MetricRow(
        "kafka_log_log_logstartoffset",
        GAUGE,
        "The log start offset",
        "partitions[partition].log_start_offset",
        _each_partition("log_start_offset"),
        _PARTITION,
    ),
    MetricRow(
        "kafka_log_log_logendoffset",
        GAUGE,
        "The log end offset: the offset of the next record",
        "partitions[partition].log_end_offset",
        _each_partition("log_end_offset"),
        _PARTITION,
    ),
    one(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        SUMMARY,
        "Milliseconds until the transaction coordinator has answered a leader's request to verify or add partitions",
        "verification_time_ms",
    ),
    one(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
        COUNTER,
        "Partitions that the transaction coordinator did not confirm",
        "verification_failures",
    ),
    *(
        one(
            _LOADS.format(kind, what),
            GAUGE,
            f"Milliseconds the {kind} coordinator took to load a partition of its topic: the {word}",
            f"{kind}_load_time_ms.{attribute}",
        )
        for kind in ("transaction", "group", "share")
        for what, word, attribute in (("max", "longest", "max_ms"), ("avg", "mean", "mean_ms"))
    ),
    one(
        f"{_MARKERS}unknowndestinationqueuesize",
        GAUGE,
        "Transaction markers that wait because their partition cannot be found or has no leader",
        "unknown_destination_queue_size",
    ),
    one(
        f"{_MARKERS}logappendretryqueuesize",
        GAUGE,
        "Transactions with all markers written whose completion could not be recorded yet",
        "log_append_retry_queue_size",
    ),
    *(row for feature in parts("metrics") for row in feature.ROWS),
    MetricRow(
        "kafka_network_requestmetrics_requests",
        COUNTER,
        "Answered requests",
        "requests(api).by_version",
        lambda metrics: [
            ({"request": api, "version": str(version)}, count)
            for api, requests in metrics.by_api.items()
            for version, count in requests.by_version.items()
        ],
        ("request", "version"),
    ),
    MetricRow(
        "kafka_network_requestmetrics_errors",
        COUNTER,
        "Error codes in answers, NONE left out",
        "requests(api).errors",
        lambda metrics: [
            ({"request": api, "error": error}, count)
            for api, requests in metrics.by_api.items()
            for error, count in requests.errors.items()
        ],
        ("request", "error"),
    ),
    MetricRow(
        "kafka_network_requestmetrics_totaltimems",
        SUMMARY,
        "Milliseconds from taking up a request to its answer, waiting included",
        "requests(api).latency_ms",
        lambda metrics: [({"request": api}, requests.latency_ms) for api, requests in metrics.by_api.items()],
        ("request",),
    ),
)


def families(metrics: BrokerMetrics) -> Iterator[Metric]:
    """Yield every metric with its samples; quantiles are those of the latest 1,024 durations."""
    for row in ROWS:
        family = Metric(row.name, row.meaning, row.kind)
        for labels, value in row.samples(metrics):
            if isinstance(value, Durations):
                for share in _QUANTILES:
                    family.add_sample(row.name, {**labels, "quantile": str(share)}, value.quantile(share))
                family.add_sample(f"{row.name}_count", labels, value.count)
                family.add_sample(f"{row.name}_sum", labels, value.total_ms)
            else:
                family.add_sample(f"{row.name}_total" if row.kind == COUNTER else row.name, labels, value)
        yield family
