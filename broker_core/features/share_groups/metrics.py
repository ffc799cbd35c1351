"""The metrics of share groups: the attribute `shares` of `BrokerMetrics`, and their rows for Prometheus."""

from collections.abc import Callable
from typing import Final, cast

from broker_core.broker.monitoring.metric_rows import COUNTER, GAUGE, MetricRow, Samples
from broker_core.broker.monitoring.metrics import BrokerMetrics
from broker_core.features.share_groups.share_metrics import ShareMetrics, SharePartitionId, take_share_metrics

NAME: Final = "shares"
take = take_share_metrics
_SHARES: Final = "kafka_server_sharepartitionmetrics_"
_SHARE_PARTITION: Final = ("group", "topic", "partition")


def _of(metrics: BrokerMetrics) -> ShareMetrics:
    return cast(ShareMetrics, metrics.of_features[NAME])


def _share_labels(each: SharePartitionId) -> dict[str, str]:
    return {"group": each.group, "topic": each.topic, "partition": str(each.partition)}


def _each_share_partition(attribute: str) -> Callable[[BrokerMetrics], Samples]:
    return lambda metrics: [
        (_share_labels(each), getattr(counts, attribute)) for each, counts in _of(metrics).partitions.items()
    ]


ROWS: Final = (
    MetricRow(
        "kafka_server_group_coordinator_metrics_share_group_count",
        GAUGE,
        "Share groups by state",
        "shares.groups",
        lambda metrics: [({"state": state}, count) for state, count in sorted(_of(metrics).groups.items())],
        ("state",),
    ),
    *(
        MetricRow(name, GAUGE, meaning, "shares.partitions", _each_share_partition(attribute), _SHARE_PARTITION)
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
        COUNTER,
        "Records that a member of a share group did not acknowledge in time",
        "shares.lock_timeouts",
        lambda metrics: [(_share_labels(each), count) for each, count in _of(metrics).lock_timeouts.items()],
        _SHARE_PARTITION,
    ),
    MetricRow(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        COUNTER,
        "Records that members of share groups have acknowledged, by type: Accept, Release, Reject, Renew",
        "shares.acknowledgments",
        lambda metrics: [({"ackType": kind}, count) for kind, count in _of(metrics).acknowledgments.items()],
        ("ackType",),
    ),
)
