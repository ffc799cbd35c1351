"""The metrics of share groups (KIP-932, KIP-1103): groups by state, records in flight, acknowledgments, ended locks.

They are the attribute `shares` of `BrokerMetrics`, and have rows for Prometheus.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from broker_core.broker.cluster import Cluster
from broker_core.broker.monitoring.metrics import COUNTER, GAUGE, BrokerMetrics, MetricRow, Samples
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.groups.group import SHARE_GROUP_TYPE
from broker_core.features.share_groups.partitions.share_partitions import ShareCounts
from broker_core.types import TopicPartition

NAME: Final = "shares"
# By the type in requests; 0 stands for offsets without a record, which Kafka does not count.
_TYPES: Final[Mapping[int, str]] = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}


class SharePartitionId(NamedTuple):
    """A partition as one share group reads it."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class SharePartitionMetrics:
    """The records of a partition that are in flight for a share group.

    As in Kafka, `in_flight` counts offsets from the first record that is not done to the last acquired record, and
    `batches` the ranges in which they are kept. `acquired` counts the offsets that a member has at this moment.
    """

    in_flight: int = 0
    batches: int = 0
    acquired: int = 0


@dataclass(frozen=True, slots=True)
class ShareMetrics:
    """The metrics of all share groups.

    `groups` counts groups by state (Empty, Stable). `partitions` has the partitions that a broker has in memory: a
    member has fetched them since their leader was elected. `acknowledgments` counts records by type (Accept, Release,
    Reject, Renew), `lock_timeouts` records that were not acknowledged in time. Both begin at 0 when the brokers start.
    """

    groups: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[SharePartitionId, SharePartitionMetrics] = field(default_factory=dict)
    acknowledgments: Mapping[str, int] = field(default_factory=dict)
    lock_timeouts: Mapping[SharePartitionId, int] = field(default_factory=dict)


def take(cluster: Cluster) -> ShareMetrics:
    brokers, counts = cluster.brokers.values(), cluster.meters.states.of(ShareCounts)
    found = [partition for broker in brokers for partition in share_broker(broker).partitions.current()]
    return ShareMetrics(
        groups=Counter(
            group.state.value for broker in brokers for group in broker.groups.groups_of_type(SHARE_GROUP_TYPE)
        ),
        partitions={
            _id(each.key.group_id, each.topic_partition): SharePartitionMetrics(
                each.in_flight_count, len(each.batches), each.acquired_count
            )
            for each in found
        },
        acknowledgments={name: counts.acknowledgments[kind] for kind, name in _TYPES.items()},
        lock_timeouts={_id(*place): count for place, count in counts.lock_timeouts.items()},
    )


def _id(group_id: str, topic_partition: TopicPartition) -> SharePartitionId:
    return SharePartitionId(group_id, topic_partition.topic, topic_partition.partition)


_SHARES: Final = "kafka_server_sharepartitionmetrics_"
_SHARE_PARTITION: Final = ("group", "topic", "partition")


def _of(metrics: BrokerMetrics) -> ShareMetrics:
    return cast(ShareMetrics, metrics.of_features[NAME])


def _each(found: Mapping[SharePartitionId, float]) -> Samples:
    return [({**each._asdict(), "partition": str(each.partition)}, count) for each, count in found.items()]


def _each_share_partition(attribute: str) -> Callable[[BrokerMetrics], Samples]:
    return lambda metrics: _each({each: getattr(found, attribute) for each, found in _of(metrics).partitions.items()})


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
        lambda metrics: _each(_of(metrics).lock_timeouts),
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
