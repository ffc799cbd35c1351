"""The metrics of a cluster: gauges, computed when they are read, and the counters of `Meters`.

Requests do not update gauges. A reading is a consistent snapshot.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.broker.apis import check_api
from broker_core.broker.cluster import Cluster
from broker_core.broker.meters import RequestMeter, Timing
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.installed import parts
from broker_core.log.partition_log import PartitionLog
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire.api_names import ApiName


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations of one operation, in milliseconds; quantiles are of the latest 1,024 durations."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    recent_ms: tuple[float, ...] = ()

    @property
    def mean_ms(self) -> float:
        """Return the mean of all durations, 0 if there is none."""
        return self.total_ms / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the smallest recent duration no shorter than this share (0 to 1) of them; 0 if there is none."""
        if not self.recent_ms:
            return 0.0
        return self.recent_ms[max(0, math.ceil(share * len(self.recent_ms)) - 1)]


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The requests of one API and their outcomes; `errors` counts codes other than NONE, by Kafka's names.

    One response may contain several codes, one for each partition.
    """

    by_version: Mapping[int, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    latency_ms: Durations = field(default_factory=Durations)

    @property
    def count(self) -> int:
        """Return the number of requests answered."""
        return sum(self.by_version.values())


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """The offsets of one partition."""

    log_start_offset: int = 0
    last_stable_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0
    has_late_transaction: bool = False

    @property
    def last_stable_offset_lag(self) -> int:
        """Return how far the last stable offset is behind the high watermark."""
        return self.high_watermark - self.last_stable_offset


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The metrics of a cluster at one moment, all its brokers together.

    `producer_ids` are the distinct live ones; `producer_id_count` counts one for each partition that knows it, as
    Kafka's ProducerIdCount does. `transactional_ids` counts those the coordinators know, by the state of their
    transaction as Kafka writes it (Empty, Ongoing, PrepareCommit, ...). `unknown_destination_queue_size` counts
    markers that wait because their partition cannot be found or has no leader, `log_append_retry_queue_size`
    transactions whose markers are all written and whose completion could not be recorded yet. A load is that of a
    single partition of a coordinator's internal topic. `of_features` has the metrics of features, which are attributes
    as well, such as `shares` for share groups.

    >>> from broker_core import EmbeddedBroker
    >>> with EmbeddedBroker(topics={"t": 1}) as kafka:  # doctest: +SKIP
    ...     metrics = kafka.metrics
    >>> metrics.last_stable_offset_lag(("t", 0)), metrics.requests("Produce").errors  # doctest: +SKIP
    (0, {})
    """

    producer_ids: frozenset[int]
    producer_id_count: int
    transactional_ids: Mapping[str, int]
    partitions: Mapping[TopicPartition, PartitionMetrics]
    unknown_destination_queue_size: int
    log_append_retry_queue_size: int
    verification_time_ms: Durations
    verification_failures: int
    transaction_load_time_ms: Durations
    group_load_time_ms: Durations
    share_load_time_ms: Durations
    by_api: Mapping[str, RequestMetrics]
    of_features: Mapping[str, object]

    def __getattr__(self, name: str) -> Any:
        """Return the metrics of a feature; the type is the feature's own."""
        # Not a field, which a copy in the making may not have yet.
        if name not in _FIELDS and name in self.of_features:
            return self.of_features[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def active_transactional_ids(self) -> int:
        """Return the number of transactional ids that the coordinators know: used, and not expired."""
        return sum(self.transactional_ids.values())

    @property
    def partitions_with_late_transactions(self) -> int:
        """Return the number of partitions with a transaction idle for over the maximum timeout plus five minutes."""
        return sum(partition.has_late_transaction for partition in self.partitions.values())

    def last_stable_offset(self, topic_partition: tuple[str, int]) -> int:
        """Return the partition's last stable offset; KeyError if there is no such partition."""
        return self.partitions[TopicPartition(*topic_partition)].last_stable_offset

    def last_stable_offset_lag(self, topic_partition: tuple[str, int]) -> int:
        """Return how far the last stable offset is behind the high watermark; KeyError for an unknown partition."""
        return self.partitions[TopicPartition(*topic_partition)].last_stable_offset_lag

    def requests(self, api: ApiName) -> RequestMetrics:
        """Return the metrics of an API's requests, by Kafka's name, such as Produce; zeros if there was none.

        Raises ValueError for an API that is not served.
        """
        check_api(api)
        return self.by_api.get(api, RequestMetrics())


_FIELDS = frozenset(each.name for each in fields(BrokerMetrics))


def take_metrics(cluster: Cluster, now_ms: int) -> BrokerMetrics:
    """Return the metrics at this moment.

    Logs not used since the start are opened: one of them may have a hanging transaction.
    """
    meters = cluster.meters
    logs = dict(_logs(cluster, now_ms))
    live = [entry.producer_id for log in logs.values() if log is not None for entry in log.producer_state.entries]
    backlogs = [broker.transactions.completion.backlog() for broker in cluster.brokers.values()]
    return BrokerMetrics(
        producer_ids=frozenset(live),
        producer_id_count=len(live),
        transactional_ids=Counter(
            image.state.label for broker in cluster.brokers.values() for image in broker.transactions.images().values()
        ),
        partitions={each: _partition(cluster, log, now_ms) for each, log in logs.items()},
        unknown_destination_queue_size=sum(
            not _has_leader(cluster, each) for backlog in backlogs for each in backlog.markers
        ),
        log_append_retry_queue_size=sum(backlog.completions for backlog in backlogs),
        verification_time_ms=_durations(meters.verification),
        verification_failures=meters.verification_failures,
        transaction_load_time_ms=_durations(meters.loads.get(TRANSACTION_STATE_TOPIC, Timing())),
        group_load_time_ms=_durations(meters.loads.get(CONSUMER_OFFSETS_TOPIC, Timing())),
        share_load_time_ms=_durations(meters.loads.get(SHARE_GROUP_STATE_TOPIC, Timing())),
        by_api={api: _request(meter) for api, meter in sorted(meters.requests.items())},
        of_features={each.NAME: each.take(cluster) for each in parts("metrics")},
    )


def _has_leader(cluster: Cluster, topic_partition: TopicPartition) -> bool:
    return cluster.metadata.has_partition(topic_partition) and cluster.controller.leader_of(topic_partition) is not None


def _logs(cluster: Cluster, now_ms: int) -> Iterator[tuple[TopicPartition, PartitionLog | None]]:
    """Yield each partition with its log, None if nothing was ever written; unreadable logs are left out."""
    for topic in list(cluster.metadata.topics.values()):
        for topic_partition in topic.topic_partitions():
            if cluster.logs.is_untouched(topic_partition):
                yield topic_partition, None
                continue
            try:
                yield topic_partition, cluster.logs.get(topic_partition, now_ms)
            except (DamageError, KafkaError):
                # A request that needs this log gets the error; the metrics of all other logs are still available.
                continue


def _partition(cluster: Cluster, log: PartitionLog | None, now_ms: int) -> PartitionMetrics:
    if log is None:
        return PartitionMetrics()
    return PartitionMetrics(
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
        log.producer_state.has_late_transaction(now_ms, cluster.config.transaction_max_timeout_ms),
    )


def _durations(timing: Timing) -> Durations:
    return Durations(timing.count, timing.total_ms, timing.max_ms, tuple(sorted(timing.recent_ms)))


def _request(meter: RequestMeter) -> RequestMetrics:
    return RequestMetrics(
        dict(sorted(meter.by_version.items())),
        {_name(code): count for code, count in sorted(meter.errors.items())},
        _durations(meter.latency),
    )


def _name(code: int) -> str:
    return ErrorCode(code).name if code in tuple(ErrorCode) else str(code)


# Labels and value of each sample; the value of a summary is a `Durations`.
Samples: TypeAlias = Iterable[tuple[dict[str, str], float | Durations]]
GAUGE: Final = "gauge"
COUNTER: Final = "counter"


class MetricRow(NamedTuple):
    """One metric; `attribute` is the attribute of `BrokerMetrics` with the same value."""

    name: str
    kind: str
    meaning: str
    attribute: str
    samples: Callable[[BrokerMetrics], Samples]
    labels: tuple[str, ...] = ()


def one(name: str, kind: str, meaning: str, attribute: str) -> MetricRow:
    """Return the row of a metric without labels, whose value is an attribute of `BrokerMetrics`."""
    value = attrgetter(attribute)
    return MetricRow(name, kind, meaning, attribute, lambda metrics: [({}, value(metrics))])
