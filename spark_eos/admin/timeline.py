"""The picture of a partition's log: `eos-kafka timeline TOPIC --partition N --out timeline.html`.

It answers one question: what blocks the last stable offset? The offsets are requested first and the log is read up to
that high watermark, so a transaction that ends in the meantime is drawn as open, and named as ended.
"""

import argparse
from dataclasses import replace
from typing import Final, NamedTuple

from broker_core.types import IsolationLevel, TopicPartition, counted
from spark_eos.admin.output import TABLE, ExitCode, as_json, progress, say
from spark_eos.admin.parsers import options_of
from spark_eos.admin.timeline_page import LogReading, Timeline, document_of, page, summary_of
from spark_eos.client.fetch import Gone, OffsetsGoneError, RangeFetch
from spark_eos.client.inspection import list_by_broker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace, places_of
from spark_eos.client.producer_scan import ProducerScan, Report
from spark_eos.errors import AuthorizationError, BrokerError, OptionError, TopicError, UnsupportedError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import FetchLimits
from spark_eos.readable import printable
from spark_eos.runtime import now_ms
from spark_eos.transactions.findings import HangingFinding
from spark_eos.transactions.judge import judge, open_transactions
from spark_eos.transactions.standstills import ends

DEFAULT_LAST_OFFSETS: Final = 100_000
_LIMITS: Final = FetchLimits(max_bytes=52_428_800, partition_max_bytes=8_388_608)


def run(chosen: argparse.Namespace) -> int:
    _check_reach(chosen)
    if chosen.out is None and chosen.output == TABLE:
        raise OptionError("--out is missing", remedy="Give the file for the page, or --output json")
    with KafkaClient(options_of(chosen)) as client:
        place = _most_behind(client, chosen.topic, chosen.partition)
        with progress(f"Reading {place}", color=chosen.color) as report:
            timeline = take_timeline(client, place, from_offset=chosen.from_offset, last=chosen.last, report=report)
    summary = summary_of(timeline)
    if chosen.out is not None:
        try:
            chosen.out.write_text(page(timeline), encoding="utf-8")
        except OSError as error:
            raise OptionError(f"Cannot write the page: {error}", remedy="Give --out a path that is writable") from error
    if chosen.output == TABLE:
        print(printable(summary))
    else:
        print(as_json({**document_of(timeline), "summary": summary}))
    if chosen.out is not None:
        say(f"{counted(len(timeline.transactions), 'transaction')} drawn: {chosen.out}")
    return ExitCode.DONE


def _check_reach(chosen: argparse.Namespace) -> None:
    for name, value, least in (
        ("--partition", chosen.partition, 0),
        ("--last", chosen.last, 1),
        ("--from-offset", chosen.from_offset, 0),
    ):
        if value is not None and value < least:
            raise OptionError(f"{name} is {value}", remedy=f"Give a whole number of at least {least}")


def _most_behind(client: KafkaClient, topic: str, partition: int | None) -> TopicPartition:
    """Return the partition that was chosen, or else the one whose readers are behind by the most offsets."""
    if partition is not None:
        return TopicPartition(topic, partition)
    places = places_of(client.metadata([topic]).values())
    stable, high = ends(client, places, sorted(places)) if len(places) > 1 else ({}, {})
    lags = {each: (end or 0) - (stable.get(each) or 0) for each, end in high.items()}
    return max(sorted(lags), key=lags.__getitem__, default=TopicPartition(topic, 0))


def take_timeline(
    client: KafkaClient,
    topic_partition: TopicPartition,
    *,
    from_offset: int | None = None,
    last: int = DEFAULT_LAST_OFFSETS,
    report: Report | None = None,
) -> Timeline:
    """Read the log from `from_offset`, or the `last` offsets before the high watermark.

    `report` is called with the number of offsets that are read, and the number of all.

    Raises `TopicError` if the partition does not exist, and the client's errors if brokers do not respond.
    """
    bounds = bounds_of(client, topic_partition)
    wanted = bounds.high_watermark - last if from_offset is None else from_offset
    start = min(max(bounds.log_start, wanted), bounds.high_watermark)
    reading = _read(client, topic_partition, bounds, start, report)
    of_open, commands = _ask(client, topic_partition, reading, start), OperatorCommands.of(client.options)
    at_ms = now_ms(client.runtime.clock)
    return Timeline(topic_partition, at_ms, commands, start, *bounds[1:], reading.transactions, reading.plain, *of_open)


class Bounds(NamedTuple):
    """Where a partition is, and the offsets that bound its log, in the order of a `Timeline`."""

    place: PartitionPlace
    log_start: int
    last_stable_offset: int
    high_watermark: int


def bounds_of(client: KafkaClient, topic_partition: TopicPartition) -> Bounds:
    """Look up the bounds of a partition's log; raise `TopicError` if it does not exist."""
    lookup = OffsetLookup(client)
    place = lookup.places([topic_partition.topic]).get(topic_partition)
    if place is None:
        raise TopicError(
            f"Partition {topic_partition} does not exist",
            checked=f"Asked {','.join(client.options.bootstrap_servers)}",
            remedy="Check the topic name and the partition number",
        )

    def offset(wanted: int, level: IsolationLevel) -> int:
        found = lookup.offsets({topic_partition: wanted}, level).get(topic_partition)
        if found is None:
            raise TopicError(f"{topic_partition} was deleted while it was read", remedy="Try again")
        return found

    # The high watermark first: what is stable beyond it does not count as blocked.
    high_watermark = offset(LATEST, IsolationLevel.READ_UNCOMMITTED)
    stable = min(offset(LATEST, IsolationLevel.READ_COMMITTED), high_watermark)
    return Bounds(place, offset(EARLIEST, IsolationLevel.READ_UNCOMMITTED), stable, high_watermark)


def _read(
    client: KafkaClient, topic_partition: TopicPartition, bounds: Bounds, start: int, report: Report | None
) -> LogReading:
    end = bounds.high_watermark
    reading = LogReading()
    limits = replace(_LIMITS, poll_timeout_ms=client.options.api_timeout_ms)
    fetch = RangeFetch(client, topic_partition, bounds.place, IsolationLevel.READ_UNCOMMITTED, limits)
    try:
        for chunk in fetch.chunks(start, end):
            reading.take(chunk)
            if report is not None and chunk.batches:
                report(chunk.batches[-1][1].last_offset + 1 - start, end - start)
    except OffsetsGoneError as gone:
        known = gone.log_start_offset if gone.reason is Gone.BELOW_LOG_START else None
        raise BrokerError(
            f"Cannot read {topic_partition} from offset {gone.position}: {gone.reason.value}",
            checked="" if known is None else f"The log now starts at {known}",
            remedy="Try again; use a smaller --last if records are deleted while the command reads",
        ) from gone
    return reading


def _ask(
    client: KafkaClient, topic_partition: TopicPartition, reading: LogReading, start: int
) -> tuple[dict[int, str], dict[int, HangingFinding], str]:
    """Look up open transactions and names; for a principal that may not, and on old brokers, the picture has none."""
    findings: dict[int, HangingFinding] = {}
    try:
        opened = open_transactions(ProducerScan(client), [topic_partition])
        findings |= reading.add_open(topic_partition, opened, start)
        owners = {each.producer_id: each.transactional_id for each in list_by_broker(client, silent=set())}
        known = {bar.producer_id: bar.first_offset for bar in reading.open.values()}
        drawn = [each for each in opened if known.get(each.producer.producer_id) == each.producer.first_offset]
        findings |= {each.transaction.producer.producer_id: each for each in judge(client, drawn)}
    except (AuthorizationError, UnsupportedError) as error:
        return {}, findings, str(error)
    return owners, findings, ""
