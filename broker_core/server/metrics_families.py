"""The table of metrics for Prometheus: one row for each, with its name, kind, meaning and samples.

Metrics that Kafka has are named as in the JMX exporter's example configuration for Kafka (kafka-2_0_0.yml), so that
dashboards made for Kafka find them. The names of the others begin with `broker_core_`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.core import Metric

from broker_core.broker.monitoring.metrics import BrokerMetrics, Durations

# Labels and value of each sample; a summary's value is its durations.
_Samples: TypeAlias = Iterable[tuple[dict[str, str], float | Durations]]
# As Kafka's histograms have them.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_GAUGE, _COUNTER, _SUMMARY = "gauge", "counter", "summary"


class _Row(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Callable[[BrokerMetrics], _Samples]


def _one(value: Callable[[BrokerMetrics], float | Durations]) -> Callable[[BrokerMetrics], _Samples]:
    return lambda metrics: [({}, value(metrics))]


def _each_partition(mark: str) -> Callable[[BrokerMetrics], _Samples]:
    return lambda metrics: [
        ({"topic": each.topic, "partition": str(each.partition)}, getattr(marks, mark))
        for each, marks in metrics.partitions.items()
    ]


def _states(metrics: BrokerMetrics) -> _Samples:
    return [({"state": state}, count) for state, count in sorted(metrics.transactional_ids.items())]


def _requests(metrics: BrokerMetrics) -> _Samples:
    return [
        ({"request": api, "version": str(version)}, count)
        for api, requests in metrics.by_api.items()
        for version, count in requests.by_version.items()
    ]


def _errors(metrics: BrokerMetrics) -> _Samples:
    return [
        ({"request": api, "error": error}, count)
        for api, requests in metrics.by_api.items()
        for error, count in requests.errors.items()
    ]


def _latencies(metrics: BrokerMetrics) -> _Samples:
    return [({"request": api}, requests.latency_ms) for api, requests in metrics.by_api.items()]


_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_LOADS: Final = "kafka_server_{}_coordinator_metrics_partition_load_time_{}"
_ROWS: Final = (
    _Row(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        _GAUGE,
        "Partitions whose oldest open transaction has had no append for transaction.max.timeout.ms and five minutes",
        _one(lambda metrics: metrics.partitions_with_late_transactions),
    ),
    _Row(
        "kafka_server_replicamanager_produceridcount",
        _GAUGE,
        "Live producer ids, counted once per partition",
        _one(lambda metrics: metrics.producer_id_count),
    ),
    _Row(
        "broker_core_producer_ids",
        _GAUGE,
        "Live producer ids, counted once per broker",
        _one(lambda metrics: len(metrics.producer_ids)),
    ),
    _Row("broker_core_transactional_ids", _GAUGE, "Transactional ids that have not expired, by state", _states),
    _Row(
        "kafka_cluster_partition_laststableoffsetlag",
        _GAUGE,
        "Records between the last stable offset and the high watermark",
        _each_partition("last_stable_offset_lag"),
    ),
    _Row(
        "broker_core_partition_last_stable_offset",
        _GAUGE,
        "The offset below which every transaction is decided",
        _each_partition("last_stable_offset"),
    ),
    _Row("kafka_log_log_logstartoffset", _GAUGE, "The log start offset", _each_partition("log_start_offset")),
    _Row("kafka_log_log_logendoffset", _GAUGE, "The log end offset", _each_partition("log_end_offset")),
    _Row(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        _SUMMARY,
        "Milliseconds until the transaction coordinator answers a partition leader's verification",
        _one(lambda metrics: metrics.verification_time_ms),
    ),
    _Row(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
        _COUNTER,
        "Partitions that the transaction coordinator did not confirm",
        _one(lambda metrics: metrics.verification_failures),
    ),
    *(
        _Row(
            _LOADS.format(kind, what),
            _GAUGE,
            f"Milliseconds the {kind} coordinator took to load a partition of its topic, {word}",
            _one(value),
        )
        for kind, what, word, value in (
            ("transaction", "max", "at the most", lambda metrics: metrics.transaction_load_time_ms.max_ms),
            ("transaction", "avg", "on average", lambda metrics: metrics.transaction_load_time_ms.mean_ms),
            ("group", "max", "at the most", lambda metrics: metrics.group_load_time_ms.max_ms),
            ("group", "avg", "on average", lambda metrics: metrics.group_load_time_ms.mean_ms),
        )
    ),
    _Row(
        f"{_MARKERS}unknowndestinationqueuesize",
        _GAUGE,
        "Transaction markers that wait because their partition has no known leader",
        _one(lambda metrics: metrics.unknown_destination_queue_size),
    ),
    _Row(
        f"{_MARKERS}logappendretryqueuesize",
        _GAUGE,
        "Transactions with all markers written whose completion could not be recorded yet",
        _one(lambda metrics: metrics.log_append_retry_queue_size),
    ),
    _Row("kafka_network_requestmetrics_requests", _COUNTER, "Answered requests", _requests),
    _Row("kafka_network_requestmetrics_errors", _COUNTER, "Error codes in responses, except NONE", _errors),
    _Row(
        "kafka_network_requestmetrics_totaltimems",
        _SUMMARY,
        "Milliseconds from receiving a request to its response, including waiting time",
        _latencies,
    ),
)


def families(metrics: BrokerMetrics) -> Iterator[Metric]:
    """Yield every metric with its samples; quantiles are those of the latest 1,024 durations."""
    for row in _ROWS:
        family = Metric(row.name, row.meaning, row.kind)
        for labels, value in row.samples(metrics):
            if isinstance(value, Durations):
                for share in _QUANTILES:
                    family.add_sample(row.name, {**labels, "quantile": str(share)}, value.quantile(share))
                family.add_sample(f"{row.name}_count", labels, value.count)
                family.add_sample(f"{row.name}_sum", labels, value.total_ms)
            else:
                family.add_sample(f"{row.name}_total" if row.kind == _COUNTER else row.name, labels, value)
        yield family
