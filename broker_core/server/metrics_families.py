"""The table of metrics for Prometheus: one row per metric, with its name, type, help text and samples.

Kafka's metrics are named as in the JMX exporter's example configuration for Kafka (kafka-2_0_0.yml), so that Kafka
dashboards can show them. The names of the others begin with `broker_core_`.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.core import Metric

from broker_core.broker.monitoring.metrics import BrokerMetrics, Durations
from broker_core.broker.monitoring.share_metrics import SharePartitionId

# Labels and value of each sample; the value of a summary is a `Durations`.
_Samples: TypeAlias = Iterable[tuple[dict[str, str], float | Durations]]
# The quantiles of Kafka's histograms.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_GAUGE, _COUNTER, _SUMMARY = "gauge", "counter", "summary"


class MetricRow(NamedTuple):
    """One metric; `attribute` is the attribute of `BrokerMetrics` with the same value."""

    name: str
    kind: str
    meaning: str
    attribute: str
    samples: Callable[[BrokerMetrics], _Samples]
    labels: tuple[str, ...] = ()


def _one(name: str, kind: str, meaning: str, attribute: str) -> MetricRow:
    """Return the row of a metric without labels, whose value is an attribute of `BrokerMetrics`."""
    value = attrgetter(attribute)
    return MetricRow(name, kind, meaning, attribute, lambda metrics: [({}, value(metrics))])


def _each_partition(mark: str) -> Callable[[BrokerMetrics], _Samples]:
    return lambda metrics: [
        ({"topic": each.topic, "partition": str(each.partition)}, getattr(marks, mark))
        for each, marks in metrics.partitions.items()
    ]


def _share_labels(each: SharePartitionId) -> dict[str, str]:
    return {"group": each.group, "topic": each.topic, "partition": str(each.partition)}


def _each_share_partition(attribute: str) -> Callable[[BrokerMetrics], _Samples]:
    return lambda metrics: [
        (_share_labels(each), getattr(counts, attribute)) for each, counts in metrics.shares.partitions.items()
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
_PARTITION: Final = ("topic", "partition")
_SHARES: Final = "kafka_server_sharepartitionmetrics_"
_SHARE_PARTITION: Final = ("group", "topic", "partition")
ROWS: Final = (
    _one(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        _GAUGE,
        "Partitions whose oldest open transaction has had no append for transaction.max.timeout.ms and five minutes",
        "partitions_with_late_transactions",
    ),
    _one(
        "kafka_server_replicamanager_produceridcount",
        _GAUGE,
        "Live producer ids, one counted in each partition that knows it",
        "producer_id_count",
    ),
    MetricRow(
        "broker_core_producer_ids",
        _GAUGE,
        "Live producer ids, each counted once",
        "producer_ids",
        lambda metrics: [({}, len(metrics.producer_ids))],
    ),
    MetricRow(
        "broker_core_transactional_ids",
        _GAUGE,
        "Transactional ids that have not expired, by state",
        "transactional_ids",
        _states,
        ("state",),
    ),
    MetricRow(
        "kafka_cluster_partition_laststableoffsetlag",
        _GAUGE,
        "How far the last stable offset is behind the high watermark",
        "last_stable_offset_lag(partition)",
        _each_partition("last_stable_offset_lag"),
        _PARTITION,
    ),
    MetricRow(
        "broker_core_partition_last_stable_offset",
        _GAUGE,
        "The offset below which every transaction is decided",
        "last_stable_offset(partition)",
        _each_partition("last_stable_offset"),
        _PARTITION,
    ),
    MetricRow(
        "kafka_log_log_logstartoffset",
        _GAUGE,
        "The log start offset",
        "partitions[partition].log_start_offset",
        _each_partition("log_start_offset"),
        _PARTITION,
    ),
    MetricRow(
        "kafka_log_log_logendoffset",
        _GAUGE,
        "The log end offset: the offset of the next record",
        "partitions[partition].log_end_offset",
        _each_partition("log_end_offset"),
        _PARTITION,
    ),
    _one(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        _SUMMARY,
        "Milliseconds until the transaction coordinator has answered a leader's request to verify or add partitions",
        "verification_time_ms",
    ),
    _one(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
        _COUNTER,
        "Partitions that the transaction coordinator did not confirm",
        "verification_failures",
    ),
    *(
        _one(
            _LOADS.format(kind, what),
            _GAUGE,
            f"Milliseconds the {kind} coordinator took to load a partition of its topic: the {word}",
            f"{kind}_load_time_ms.{attribute}",
        )
        for kind in ("transaction", "group", "share")
        for what, word, attribute in (("max", "longest", "max_ms"), ("avg", "mean", "mean_ms"))
    ),
    _one(
        f"{_MARKERS}unknowndestinationqueuesize",
        _GAUGE,
        "Transaction markers that wait because their partition cannot be found or has no leader",
        "unknown_destination_queue_size",
    ),
    _one(
        f"{_MARKERS}logappendretryqueuesize",
        _GAUGE,
        "Transactions with all markers written whose completion could not be recorded yet",
        "log_append_retry_queue_size",
    ),
    MetricRow(
        "kafka_server_group_coordinator_metrics_share_group_count",
        _GAUGE,
        "Share groups by state",
        "shares.groups",
        lambda metrics: [({"state": state}, count) for state, count in sorted(metrics.shares.groups.items())],
        ("state",),
    ),
    *(
        MetricRow(name, _GAUGE, meaning, "shares.partitions", _each_share_partition(attribute), _SHARE_PARTITION)
        for name, attribute, meaning in (
            (
                f"{_SHARES}inflightmessagecount",
                "in_flight",
                "Offsets from a share group's first record that is not done to the last that a member has acquired",
            ),
            (f"{_SHARES}inflightbatchcount", "batches", "The ranges that these offsets are kept in"),
            ("broker_core_share_acquired_records", "acquired", "Records that members of a share group have acquired"),
        )
    ),
    MetricRow(
        f"{_SHARES}acquisitionlocktimeout",
        _COUNTER,
        "Records that a member of a share group did not acknowledge in time",
        "shares.lock_timeouts",
        lambda metrics: [(_share_labels(each), count) for each, count in metrics.shares.lock_timeouts.items()],
        _SHARE_PARTITION,
    ),
    MetricRow(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        _COUNTER,
        "Records that members of share groups have acknowledged, by type: Accept, Release, Reject, Renew",
        "shares.acknowledgments",
        lambda metrics: [({"ackType": kind}, count) for kind, count in metrics.shares.acknowledgments.items()],
        ("ackType",),
    ),
    MetricRow(
        "kafka_network_requestmetrics_requests",
        _COUNTER,
        "Answered requests",
        "requests(api).by_version",
        _requests,
        ("request", "version"),
    ),
    MetricRow(
        "kafka_network_requestmetrics_errors",
        _COUNTER,
        "Error codes in answers, NONE left out",
        "requests(api).errors",
        _errors,
        ("request", "error"),
    ),
    MetricRow(
        "kafka_network_requestmetrics_totaltimems",
        _SUMMARY,
        "Milliseconds from taking up a request to its answer, waiting included",
        "requests(api).latency_ms",
        _latencies,
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
                family.add_sample(f"{row.name}_total" if row.kind == _COUNTER else row.name, labels, value)
        yield family
