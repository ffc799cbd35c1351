"""The transactions in a section of a partition's log, and the page that shows them.

A producer has at most one open transaction in a partition, so its batches belong to the next marker with the same
producer id. The epoch is no criterion: under transactions V2 the marker has the next one (KIP-890).
"""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib import resources
from typing import Any, Final

from broker_core.records.control import ControlType, EndTxnMarker
from broker_core.records.header import BatchHeader
from broker_core.types import TopicPartition, counted
from spark_eos.client.fetch import FetchedChunk
from spark_eos.client.producer_scan import ActiveProducer
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.transactions.findings import HangingFinding, PartitionTransaction, ended_finding, possible_time


class TransactionOutcome(Enum):
    """How a transaction ended in this partition."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(slots=True)
class TransactionBar:
    """What the log shows of one transaction: the offsets from its first record to its marker.

    `first_offset` is None if only the marker was seen: the records are before the section, or there are none.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int | None = None
    last_offset: int | None = None
    record_count: int = 0
    batch_count: int = 0
    size_bytes: int = 0
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    marker_offset: int | None = None
    marker_timestamp_ms: int | None = None
    coordinator_epoch: int | None = None

    def extend(self, header: BatchHeader) -> None:
        if self.first_offset is None:
            self.first_offset, self.first_timestamp_ms = header.base_offset, header.base_timestamp
        self.last_offset, self.last_timestamp_ms = header.last_offset, header.max_timestamp
        self.record_count += header.record_count
        self.batch_count += 1
        self.size_bytes += header.size_bytes

    def transaction(self, topic_partition: TopicPartition) -> PartitionTransaction:
        at_ms, first_offset = self.last_timestamp_ms or -1, -1 if self.first_offset is None else self.first_offset
        return PartitionTransaction(
            topic_partition, ActiveProducer(self.producer_id, self.producer_epoch, -1, at_ms, -1, first_offset)
        )

    def end(self, header: BatchHeader, marker: EndTxnMarker) -> None:
        self.outcome = (
            TransactionOutcome.COMMITTED if marker.control_type is ControlType.COMMIT else TransactionOutcome.ABORTED
        )
        self.marker_offset, self.marker_timestamp_ms = header.last_offset, header.max_timestamp
        self.coordinator_epoch = marker.coordinator_epoch


@dataclass(slots=True)
class PlainStretch:
    """Adjacent batches that belong to no transaction."""

    first_offset: int
    last_offset: int
    record_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A section `[start, high_watermark)` of one partition's log, and what is known of its open ones.

    `owners` maps producer ids to transactional ids, `findings` has the open transactions by producer id; both lack what
    could not be queried, and `untold` has the reason.
    """

    topic_partition: TopicPartition
    taken_at_ms: int
    commands: OperatorCommands
    start: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    transactions: Sequence[TransactionBar]
    plain: Sequence[PlainStretch]
    owners: Mapping[int, str]
    findings: Mapping[int, HangingFinding]
    untold: str = ""


class LogReading:
    """A reading of the log, batch by batch in the order of offsets."""

    def __init__(self) -> None:
        self.transactions: list[TransactionBar] = []
        self.plain: list[PlainStretch] = []
        # The transactions without a marker so far, by producer id.
        self.open: dict[int, TransactionBar] = {}

    def add_open(
        self, topic_partition: TopicPartition, opened: Iterable[PartitionTransaction], start: int
    ) -> dict[int, HangingFinding]:
        """Record what began before the section; return findings for what has ended since the log was read."""
        left = set()
        for each in opened:
            producer = each.producer
            if producer.first_offset < start:
                self._bar(producer.producer_id, producer.producer_epoch).first_offset = producer.first_offset
            left.add((producer.producer_id, producer.first_offset))
        return {
            bar.producer_id: ended_finding(bar.transaction(topic_partition))
            for bar in self.open.values()
            if (bar.producer_id, bar.first_offset) not in left
        }

    def take(self, chunk: FetchedChunk) -> None:
        for position, header in chunk.batches:
            if not header.is_control:
                self.take_data(header)
            elif (marker := chunk.marker(position, header)) is not None:
                self.take_marker(header, marker)

    def take_data(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._bar(header.producer_id, header.producer_epoch).extend(header)
            return
        last = self.plain[-1] if self.plain else None
        if last is not None and last.last_offset + 1 == header.base_offset:
            last.last_offset = header.last_offset
            last.record_count += header.record_count
            last.last_timestamp_ms = max(last.last_timestamp_ms, header.max_timestamp)
        else:
            self.plain.append(
                PlainStretch(
                    header.base_offset,
                    header.last_offset,
                    header.record_count,
                    header.base_timestamp,
                    header.max_timestamp,
                )
            )

    def take_marker(self, header: BatchHeader, marker: EndTxnMarker) -> None:
        self._bar(header.producer_id, header.producer_epoch).end(header, marker)
        del self.open[header.producer_id]

    def _bar(self, producer_id: int, producer_epoch: int) -> TransactionBar:
        """Return the bar of the producer's open transaction; without one, it begins."""
        bar = self.open.get(producer_id)
        if bar is None:
            bar = self.open[producer_id] = TransactionBar(producer_id, producer_epoch)
            self.transactions.append(bar)
        return bar


_PLACEHOLDER: Final = re.compile("@(TITLE|SUMMARY|HANG|DATA|STYLE|PICTURE|SCRIPT)@")

_CARD: Final = """<section class="findings"><p class="lead">It hangs: {why}</p><p class="label">To end it:</p>
<div class="command">{shown}<button type="button" data-copy="{command}">Copy</button></div></section>
"""


def page(timeline: Timeline) -> str:
    summary, hang = summary_of(timeline), _hanging(timeline)
    # A card says why it hangs, with the command to copy.
    shown = summary if hang is None else f"{summary.partition(', and it hangs: ')[0]}."
    parts = {
        "TITLE": html.escape(str(timeline.topic_partition)),
        "SUMMARY": re.sub("`([^`]+)`", lambda found: _code(found[1]), html.escape(shown)),
        "HANG": "" if hang is None else _card(timeline, hang),
        "DATA": json_for_html(document_of(timeline)),
        "STYLE": asset("timeline.css"),
        "PICTURE": asset("timeline_picture.html"),
        "SCRIPT": asset("timeline.js"),
    }
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], asset("timeline.html"))


def asset(name: str) -> str:
    return resources.files("spark_eos.admin").joinpath(name).read_text(encoding="utf-8")


def blocking(timeline: Timeline) -> TransactionBar | None:
    if timeline.last_stable_offset >= timeline.high_watermark:
        return None
    opened = [each for each in timeline.transactions if each.outcome is TransactionOutcome.OPEN]
    return min(
        (each for each in opened if each.first_offset is not None), key=lambda bar: bar.first_offset or 0, default=None
    )


def _hanging(timeline: Timeline) -> HangingFinding | None:
    bar = blocking(timeline)
    finding = None if bar is None else timeline.findings.get(bar.producer_id)
    return finding if finding is not None and finding.hangs else None


def _card(timeline: Timeline, finding: HangingFinding) -> str:
    command = html.escape(finding.command(timeline.commands) or "")
    return _CARD.format(why=html.escape(finding.why), command=command, shown=_code(command))


def _code(command: str) -> str:
    """Return a command as HTML: a browser breaks its lines between words, and not at the hyphens of options."""
    return f"<code>{' '.join(f'<span>{word}</span>' for word in command.split(' '))}</code>"


def summary_of(timeline: Timeline) -> str:
    stable, high_watermark = timeline.last_stable_offset, timeline.high_watermark
    if stable >= high_watermark:
        return (
            f"No transaction blocks the last stable offset of {timeline.topic_partition}: it has reached the high "
            f"watermark, {high_watermark}."
        )
    waiting = (
        f"The last stable offset of {timeline.topic_partition} is {stable}, "
        f"{counted(high_watermark - stable, 'offset')} below the high watermark {high_watermark}."
    )
    bar = blocking(timeline)
    if bar is None:
        return f"{waiting} The blocking transaction ended while the log was read."
    since = f"{waiting} The blocking transaction has been open since offset {bar.first_offset}."
    finding = timeline.findings.get(bar.producer_id)
    if finding is None:
        return f"{since} Its coordinator could not be queried: {timeline.untold}"
    return f"{since} {finding.sentence(timeline.commands, timeline.taken_at_ms)}"


def document_of(timeline: Timeline) -> dict[str, Any]:
    """Return what the drawing needs, with the names of every JSON of the command."""
    bar = blocking(timeline)
    return {
        "topic": timeline.topic_partition.topic,
        "partition": timeline.topic_partition.partition,
        "taken_at_ms": timeline.taken_at_ms,
        "start": timeline.start,
        "log_start_offset": timeline.log_start_offset,
        "last_stable_offset": timeline.last_stable_offset,
        "high_watermark": timeline.high_watermark,
        "transactions": [_bar(timeline, each, each is bar) for each in timeline.transactions],
        "plain": [asdict(each) for each in timeline.plain],
    }


def json_for_html(document: object) -> str:
    """Format data as JSON that cannot end the script element it is in."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _bar(timeline: Timeline, bar: TransactionBar, is_blocking: bool) -> dict[str, Any]:
    finding = timeline.findings.get(bar.producer_id) if bar.outcome is TransactionOutcome.OPEN else None
    owner = None if finding is None else finding.owner
    return {
        **asdict(bar),
        "outcome": bar.outcome.value,
        "transactional_id": timeline.owners.get(bar.producer_id),
        "coordinator_state": owner.description.state if owner and owner.description.exists else None,
        "verdict": None if finding is None else finding.verdict.value,
        "is_blocking": is_blocking,
        **_began_at(timeline, bar),
    }


def _began_at(timeline: Timeline, bar: TransactionBar) -> dict[str, Any]:
    """Return where the drawing begins: when the coordinator has begun it, or where its first record is dated."""
    finding = timeline.findings.get(bar.producer_id) if bar.outcome is TransactionOutcome.OPEN else None
    began_ms = None if finding is None else finding.began_at_ms(timeline.taken_at_ms)
    latest_ms = bar.marker_timestamp_ms or timeline.taken_at_ms
    dated_ms = possible_time(bar.first_timestamp_ms or -1, latest_ms) if began_ms is None else None
    return {"began_at_ms": began_ms or dated_ms, "is_dated": dated_ms is not None}
