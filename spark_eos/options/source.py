"""The options of a reading query, parsed into `SourceOptions`.

Names, defaults and error texts are the same as in Spark's own Kafka source, so that changing `format("kafka")` to
`format("eos-kafka")` changes nothing else. One default differs on purpose: `isolation.level` is `read_committed`.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from broker_core.types import IsolationLevel
from spark_eos.errors import OptionError
from spark_eos.options.catalog import (
    DECLARED,
    SOURCE_OPTIONS,
    OptionDefinition,
    declared,
    declared_values,
    option_text,
    option_value,
    setting_value,
)
from spark_eos.options.client import (
    ClientOptions,
    client_options_from,
    kafka_settings,
    refuse_platform_options,
    refuse_similar,
    refuse_without_prefix,
)
from spark_eos.options.metrics import QUERY_OPTION, MetricsTargets, metrics_targets
from spark_eos.options.positions import (
    EARLIEST,
    LATEST,
    Edge,
    Offsets,
    Position,
    Subscribe,
    SubscribePattern,
    Subscription,
    Timestamp,
    Timestamps,
    parse_assign,
    parse_offsets,
    parse_pattern,
    parse_subscribe,
    parse_timestamp,
    parse_timestamps,
)

logger = logging.getLogger(__name__)

_SUBSCRIPTIONS: Final[Mapping[str, Callable[[str], Subscription]]] = {
    "subscribe": parse_subscribe,
    "subscribePattern": parse_pattern,
    "assign": parse_assign,
}
_KNOWN: Final = tuple(each.name for each in SOURCE_OPTIONS)
_ENDINGS: Final[Mapping[str, str]] = {
    "endingOffsets": "ending offset not valid in streaming queries",
    "endingOffsetsByTimestamp": "ending timestamp not valid in streaming queries",
    "endingTimestamp": "ending timestamp not valid in streaming queries",
}
# Kafka's default of five minutes would delay records of a new partition by as much; Spark's own source always asks.
_MAX_AGE_MS: Final = 1_000
_PATTERN_MAX_AGE_MS: Final = 5_000
_DURATION: Final = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")
_LONG: Final = OptionDefinition("", "", minimum=0, is_long=True)
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class NoMatch(Enum):
    """What to do if no record is as young as the starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class FetchLimits:
    """The limits of one fetch: its size, how long brokers may wait, how long there may be no progress; its checks."""

    max_bytes: int = declared("fetch.max.bytes")
    # Java's default is 1 MiB because it requests many partitions at once; a task requests one.
    partition_max_bytes: int = declared("max.partition.fetch.bytes")
    min_bytes: int = declared("fetch.min.bytes")
    max_wait_ms: int = declared("fetch.max.wait.ms")
    poll_timeout_ms: int = 60_000
    check_crcs: bool = declared("check.crcs")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The settings of one reading query; picklable, so it travels to executors."""

    client: ClientOptions
    subscription: Subscription
    isolation: IsolationLevel
    starting: Position
    starting_no_match: NoMatch
    ending: Position
    fetch: FetchLimits
    fail_on_data_loss: bool = declared("failOnDataLoss")
    offset_retries: int = declared("fetchOffset.numRetries")
    offset_retry_interval_ms: int = declared("fetchOffset.retryIntervalMs")
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool = declared("includeHeaders")
    commit_group_id: str | None
    lag_warning_after_ms: int
    outage_timeout_ms: int
    log_lag: bool = declared("logLag")
    metadata_max_age_ms: int
    metrics: MetricsTargets | None = None
    metrics_query: str = ""

    @property
    def subscription_name(self) -> str:
        if isinstance(self.subscription, SubscribePattern):
            return self.subscription.pattern
        if isinstance(self.subscription, Subscribe):
            return ",".join(self.subscription.topics)
        return ",".join(dict.fromkeys(each.topic for each in self.subscription.partitions))


def include_headers(options: Mapping[str, str]) -> bool:
    """Return whether the schema has a headers column; needed before all other options are parsed."""
    return bool(option_value(_lowered(options), "includeHeaders"))


def filter_pushdown(options: Mapping[str, str]) -> bool:
    """Return whether a batch query may use its filters to read less.

    Off by default: Spark keeps one plan for each load(), so a DataFrame that is used twice with different filters is
    read both times with the plan of one of them, and rows would be missing silently.
    """
    return bool(option_value(_lowered(options), "filterPushdown"))


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    lowered = _lowered(options)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in lowered:
            logger.warning("%s option ignored in batch queries", name)
    parsed = _parse(lowered, starting=Edge(EARLIEST))
    _refuse_edge(parsed.starting, LATEST, "starting offset can't be latest for batch queries on Kafka",
                 "startingOffsets for {} can't be latest for batch queries on Kafka")  # fmt: skip
    _refuse_edge(parsed.ending, EARLIEST, "ending offset can't be earliest for batch queries on Kafka",
                 "ending offset for {} can't be earliest for batch queries on Kafka")  # fmt: skip
    _refuse_start_after_end(parsed.starting, parsed.ending)
    return parsed


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    lowered = _lowered(options)
    for name, message in _ENDINGS.items():
        if name.lower() in lowered:
            raise OptionError(
                message,
                remedy=f"Remove option '{name}'; Trigger.AvailableNow stops at the offsets "
                "that exist when the query starts",
            )
    return _parse(lowered, starting=Edge(LATEST))


def _parse(options: Mapping[str, str], *, starting: Position) -> SourceOptions:
    subscription = _subscription(options)
    _refuse_near_misses(options)
    settings = kafka_settings(options)
    most = _positive(options, "maxOffsetsPerTrigger")
    least = _positive(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})")
    return SourceOptions(
        client=client_options_from(settings),
        subscription=subscription,
        isolation=_isolation(options, settings),
        starting=_position(options, "starting") or starting,
        starting_no_match=_no_match(options),
        ending=_position(options, "ending") or Edge(LATEST),
        fetch=FetchLimits(
            **declared_values(FetchLimits, settings),
            poll_timeout_ms=option_value(options, "kafkaConsumer.pollTimeoutMs"),
        ),
        **declared_values(SourceOptions, options, option_value),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay"),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        commit_group_id=_commit_group_id(options, settings, subscription),
        lag_warning_after_ms=_duration_ms(options, "lagWarningAfter"),
        outage_timeout_ms=_duration_ms(options, "outageTimeout"),
        metadata_max_age_ms=_metadata_max_age_ms(settings, subscription),
        metrics=metrics_targets(options),
        metrics_query=options.get(QUERY_OPTION.lower(), ""),
    )


def _refuse_start_after_end(starting: Position, ending: Position) -> None:
    """Refuse a start after the end, where both are offsets or both are times; the plan compares what else there is."""
    starts: Mapping[Any, int]
    ends: Mapping[Any, int]
    if isinstance(starting, Offsets) and isinstance(ending, Offsets):
        starts, ends = starting.offsets, ending.offsets
    elif isinstance(starting, Timestamps) and isinstance(ending, Timestamps):
        starts, ends = starting.timestamps_ms, ending.timestamps_ms
    elif isinstance(starting, Timestamp) and isinstance(ending, Timestamp):
        starts, ends = {"all partitions": starting.timestamp_ms}, {"all partitions": ending.timestamp_ms}
    else:
        return
    for place, start in starts.items():
        end = ends.get(place, LATEST)
        if 0 <= end < start:
            raise OptionError(
                f"The read starts at {start} and ends before that, at {end}",
                checked=f"The options for the start and the end of {place}",
                remedy="Choose a start that is not after the end",
            )


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    refuse_platform_options(options)
    return {name.lower(): value for name, value in options.items()}


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name.lower() in options]
    names = ", ".join(sorted(name.lower() for name in _SUBSCRIPTIONS))
    if not given:
        raise OptionError(
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign",
            remedy='Choose which topics to read, e.g. .option("subscribe", "topic"), or in SQL WITH (subscribe = '
            "'topic') after the table: a table does not keep OPTIONS",
        )
    if len(given) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}",
            checked=f"Given: {' and '.join(given)}",
        )
    return _SUBSCRIPTIONS[given[0]](options[given[0].lower()])


def _position(options: Mapping[str, str], side: str) -> Position | None:
    """Return where to start or end: one time takes precedence over times per partition, and those over offsets."""
    name = f"{side}Timestamp"
    if name.lower() in options:
        return parse_timestamp(name, options[name.lower()])
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        return parse_timestamps(name, options[name.lower()])
    name = f"{side}Offsets"
    text = options.get(name.lower())
    if text is None:
        return None
    edge = {"latest": LATEST, "earliest": EARLIEST}.get(text.strip().lower())
    return parse_offsets(name, text) if edge is None else Edge(edge)


def _refuse_edge(position: Position, edge: int, message: str, partition_message: str) -> None:
    if position == Edge(edge):
        raise OptionError(message)
    if isinstance(position, Offsets):
        for topic_partition, offset in position.offsets.items():
            if offset == edge:
                raise OptionError(partition_message.format(topic_partition))


def _commit_group_id(options: Mapping[str, str], settings: Mapping[str, str], subscription: Subscription) -> str | None:
    """Return the group for progress commits, or None; the query itself never reads it."""
    given, prefix = settings.get("group.id"), options.get("groupidprefix")
    if given:
        logger.warning(
            "Kafka option 'kafka.group.id' has been set on this query: use it with care. Queries and consumers that "
            "share the group '%s' overwrite each other's offsets. The query does not join the group, its offsets "
            "are in its checkpoint, and option 'groupIdPrefix' is ignored", given,
        )  # fmt: skip
    if not option_value(options, "commitOffsetsToGroup"):
        return None
    if not (given or prefix):
        raise OptionError(
            "Option 'commitOffsetsToGroup' is true, but no group is set",
            checked="Neither kafka.group.id nor groupIdPrefix is set",
            remedy="Set kafka.group.id to a group that no other application uses",
        )
    # A restarted query must find its group again, so the part after the prefix depends only on what is read.
    return given or f"{prefix}-{sha256(repr(subscription).encode()).hexdigest()[:12]}"


def _metadata_max_age_ms(settings: Mapping[str, str], subscription: Subscription) -> int:
    """Return how long topic metadata is used; a pattern makes brokers describe all topics."""
    default = _PATTERN_MAX_AGE_MS if isinstance(subscription, SubscribePattern) else _MAX_AGE_MS
    return int(setting_value({"metadata.max.age.ms": str(default), **settings}, "metadata.max.age.ms"))


def _no_match(options: Mapping[str, str]) -> NoMatch:
    name = "startingOffsetsByTimestampStrategy"
    text = option_text(options, name)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise OptionError(f"Unknown value for option '{name}': '{text}'", remedy="Use error or latest") from None


def _isolation(options: Mapping[str, str], settings: Mapping[str, str]) -> IsolationLevel:
    ours, clients = options.get("isolation.level"), settings.get("isolation.level")
    if ours is not None and clients is not None and ours.strip().lower() != clients.strip().lower():
        raise OptionError(
            f"Option 'isolation.level' is {ours} but 'kafka.isolation.level' is {clients}", remedy="Keep one of the two"
        )
    known = DECLARED["isolation.level"]
    return IsolationLevel[known.parse(ours or clients or known.default, "isolation.level").upper()]


def _refuse_near_misses(options: Mapping[str, str]) -> None:
    """Refuse names similar to an option's; Spark's own source ignores them silently and reads something else."""
    known = {name.lower(): name for name in _KNOWN}
    refuse_without_prefix(name for name in options if name not in known)
    for written in options:
        if written in known or written.startswith("kafka."):
            continue
        refuse_similar(written, known, cutoff=0.85)
        logger.warning("Option '%s' has no effect on the eos-kafka source and is ignored", written)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if number <= 0:
        raise OptionError(f"{name} must be positive", checked=f"It is '{text}'", remedy="Use a whole number above 0")
    return int(DECLARED[name].parse(text, name))


def _duration_ms(options: Mapping[str, str], name: str) -> int:
    text = option_text(options, name)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"Option '{name}' is '{text}'", remedy="Use a time such as 500ms, 30s, 15m or 1h")
    number, unit = int(_LONG.parse(found[1], name)), found[2] or "ms"
    return number // 1_000 if unit == "us" else number * _DURATION_MS[unit]
