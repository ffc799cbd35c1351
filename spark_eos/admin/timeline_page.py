"""A timeline as one self-contained page."""

import html
import json
import re
from dataclasses import asdict
from importlib import resources
from typing import Any, Final, NamedTuple

from broker_core.types import counted
from spark_eos.admin.terminal import one_line
from spark_eos.admin.timeline_log import Timeline, TransactionBar, TransactionOutcome
from spark_eos.admin.transaction_age import began_at
from spark_eos.client.inspection import LOST_ITS_MARKER

_TEMPLATE: Final = "timeline.html"
_PLACEHOLDER: Final = re.compile("@(TITLE|SUMMARY|HANG|DATA|STYLE|PICTURE|SCRIPT)@")

_CARD: Final = """<section class="findings"><p class="lead">It hangs: {why}</p><p class="label">To end it:</p>
<div class="command"><code>{command}</code><button type="button" data-copy="{command}">Copy</button></div></section>
"""


class Page(NamedTuple):
    """The page, and its summary as plain text."""

    html: str
    summary: str


class Hang(NamedTuple):
    """Why the blocking transaction hangs, and the command that ends it."""

    why: str
    command: str


def page(timeline: Timeline) -> Page:
    """Draw the page; it loads nothing from elsewhere."""
    summary, hang = summary_of(timeline), hang_of(timeline)
    shown = summary if hang is None else summary.removesuffix(f" {_words(hang)}")
    parts = {
        "TITLE": html.escape(str(timeline.topic_partition)),
        "SUMMARY": html.escape(shown),
        "HANG": "" if hang is None else _CARD.format(why=html.escape(hang.why), command=html.escape(hang.command)),
        "DATA": json_for_html(document_of(timeline)),
        "STYLE": asset("timeline.css"),
        "PICTURE": asset("timeline_picture.html"),
        "SCRIPT": asset("timeline.js"),
    }
    return Page(_PLACEHOLDER.sub(lambda found: parts[found[1]], asset(_TEMPLATE)), summary)


def asset(name: str) -> str:
    """Return one of the files that the page consists of."""
    return resources.files("spark_eos.admin").joinpath(name).read_text(encoding="utf-8")


def blocking(timeline: Timeline) -> TransactionBar | None:
    """Return the open transaction that blocks the last stable offset, or None if none does."""
    opened = [
        each
        for each in timeline.transactions
        if each.outcome is TransactionOutcome.OPEN and each.first_offset is not None
    ]
    oldest = min(opened, key=_first_offset, default=None)
    if oldest is None or timeline.last_stable_offset >= timeline.high_watermark:
        return None
    return oldest


def summary_of(timeline: Timeline) -> str:
    """Return a few sentences about what blocks the last stable offset."""
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
    return f"{waiting} The blocking transaction is {_who(timeline, bar)}. {_verdict(timeline, bar)}"


def _who(timeline: Timeline, bar: TransactionBar) -> str:
    owner = timeline.owners.get(bar.producer_id)
    name = f"that of '{one_line(owner)}'" if owner is not None else "one without a known transactional id"
    return f"{name} (producer id {bar.producer_id}, epoch {bar.producer_epoch}), open since offset {bar.first_offset}"


def _verdict(timeline: Timeline, bar: TransactionBar) -> str:
    described = timeline.descriptions.get(bar.producer_id)
    if bar.producer_id in timeline.ended:
        return "It has ended since. Run the command again for a current picture."
    if timeline.untold:
        return f"Its coordinator could not be queried: {timeline.untold}"
    tp = timeline.topic_partition
    if described is not None and described.will_end(tp, bar.producer_id, bar.producer_epoch):
        began_ms = began_at(described, None, timeline.taken_at_ms)
        age = "" if began_ms is None else f" for {(timeline.taken_at_ms - began_ms) / 1_000:.0f} s"
        return (
            f"Its coordinator has had it in state {described.state}{age} and ends it after "
            f"{described.transaction_timeout_ms / 1000:.0f} s."
        )
    hang = hang_of(timeline)
    assert hang is not None
    return _words(hang)


def hang_of(timeline: Timeline) -> Hang | None:
    """Return why the blocking transaction hangs, or None if none does, or if that is not known."""
    bar = blocking(timeline)
    if bar is None or bar.producer_id in timeline.ended or timeline.untold:
        return None
    described, tp = timeline.descriptions.get(bar.producer_id), timeline.topic_partition
    if described is None:
        knows = "no coordinator knows its producer id."
    elif described.will_end(tp, bar.producer_id, bar.producer_epoch):
        return None
    elif described.lists(tp):
        knows = (
            f"its coordinator is in state {described.state} and has this partition at another epoch, "
            f"{described.producer_epoch}."
        )
    else:
        knows = f"its coordinator is in state {described.state} and does not have this partition in the transaction."
    committed = described is not None and described.has_committed(bar.producer_id, bar.producer_epoch)
    lost = f" {LOST_ITS_MARKER}" if committed else ""
    return Hang(knows + lost, timeline.commands.abort(tp, _first_offset(bar), commit=committed))


def _words(hang: Hang) -> str:
    return f"It hangs: {hang.why} To end it: {hang.command}"


def document_of(timeline: Timeline) -> dict[str, Any]:
    """Return what the drawing needs."""
    bar = blocking(timeline)
    return {
        "topic": timeline.topic_partition.topic,
        "partition": timeline.topic_partition.partition,
        "takenAtMs": timeline.taken_at_ms,
        "start": timeline.start,
        "logStartOffset": timeline.log_start_offset,
        "lastStableOffset": timeline.last_stable_offset,
        "highWatermark": timeline.high_watermark,
        "transactions": [_bar(timeline, each, each is bar) for each in timeline.transactions],
        "plain": [asdict(each) for each in timeline.plain],
    }


def json_for_html(document: object) -> str:
    """Format data as JSON that cannot end the script element it is in."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _bar(timeline: Timeline, bar: TransactionBar, is_blocking: bool) -> dict[str, Any]:
    described = timeline.descriptions.get(bar.producer_id) if bar.outcome is TransactionOutcome.OPEN else None
    return {
        **asdict(bar),
        "outcome": bar.outcome.value,
        "transactional_id": timeline.owners.get(bar.producer_id),
        "coordinator_state": described.state if described else None,
        "is_blocking": is_blocking,
        **_began_at(timeline, bar),
    }


def _began_at(timeline: Timeline, bar: TransactionBar) -> dict[str, Any]:
    """Return when a transaction began, and whether only its records say so, by the clock of a client."""
    # An ended transaction began before its marker was written.
    now_ms, described = bar.marker_timestamp_ms or timeline.taken_at_ms, None
    if bar.outcome is TransactionOutcome.OPEN:
        found, place = timeline.descriptions.get(bar.producer_id), timeline.topic_partition
        if found is not None and found.will_end(place, bar.producer_id, bar.producer_epoch):
            described = found
        now_ms = timeline.taken_at_ms
    began_ms = began_at(described, bar.first_timestamp_ms, now_ms)
    return {"began_at_ms": began_ms, "is_dated": began_at(described, None, now_ms) != began_ms}


def _first_offset(bar: TransactionBar) -> int:
    assert bar.first_offset is not None
    return bar.first_offset
