"""A timeline as one self-contained page."""

import html
import json
import re
from dataclasses import asdict
from importlib import resources
from typing import Any, Final, NamedTuple

from broker_core.types import counted
from spark_eos.admin.timeline_log import Timeline, TransactionBar, TransactionOutcome
from spark_eos.transactions.findings import HangingFinding, possible_time

_TEMPLATE: Final = "timeline.html"
_PLACEHOLDER: Final = re.compile("@(TITLE|SUMMARY|HANG|DATA|STYLE|PICTURE|SCRIPT)@")

_CARD: Final = """<section class="findings"><p class="lead">It hangs: {why}</p><p class="label">To end it:</p>
<div class="command">{shown}<button type="button" data-copy="{command}">Copy</button></div></section>
"""


class Page(NamedTuple):
    """The page, and its summary as plain text."""

    html: str
    summary: str


def page(timeline: Timeline) -> Page:
    """Draw the page; it loads nothing from elsewhere."""
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
    return Page(_PLACEHOLDER.sub(lambda found: parts[found[1]], asset(_TEMPLATE)), summary)


def asset(name: str) -> str:
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


def _first_offset(bar: TransactionBar) -> int:
    assert bar.first_offset is not None
    return bar.first_offset
