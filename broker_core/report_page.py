"""The page about brokers, as a failed test had them: requests, partitions, transactions and groups, in HTML.

The page loads nothing from elsewhere and runs no script.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from broker_core.broker.monitoring.inspection import RecordView
from broker_core.broker.request_log import RequestSeen
from broker_core.testing.broker_state import SHOWN_RECORDS, BrokerState, PartitionState
from broker_core.types import counted

_SHOWN_BYTES = 120
_LONGEST_FAILURE = 100_000
_LONGEST_NAME = 150
_SHOWN_OFFSETS = 500
_WIDTH = 1000
_LANE = 22
_LABEL = 190


def write_page(folder: Path, test: str, number: int, failure: str, states: Sequence[BrokerState]) -> Path:
    """Write the page about a failure of a test, and return its path; it replaces the page of an earlier run.

    `number` counts the failures of one test, such as those in its teardown and in its subtests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Several ids become the same readable name, as the parameters a/b and a-b do.
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", test)[-_LONGEST_NAME:].strip("-.")
    ending = sha256(test.encode(errors="backslashreplace")).hexdigest()[:8] + (f"-{number}" if number > 1 else "")
    path = folder / f"{name}-{ending}.html"
    # Test ids and failures may contain surrogates.
    path.write_text(page(test, failure, states), encoding="utf-8", errors="backslashreplace")
    return path


def page(title: str, failure: str, states: Sequence[BrokerState]) -> str:
    """Return the page; `failure` is the text of a failed test, empty without one."""
    if len(failure) > _LONGEST_FAILURE:
        half = _LONGEST_FAILURE // 2
        failure = f"{failure[:half]}\n... {len(failure) - 2 * half} characters are left out ...\n{failure[-half:]}"
    parts = [f"<h1>{escape(title)}</h1>", *([f"<pre>{escape(failure)}</pre>"] if failure else [])]
    for state in states:
        if state.name:
            parts.append(f'<h2 class="broker">Broker {escape(state.name)}</h2>')
        parts += [_requests(state), _partitions(state), _transactions(state), _groups(state)]
    style = files("broker_core").joinpath("report_page.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n"
        "</html>\n"
    )


# Requests


def _requests(state: BrokerState) -> str:
    requests = state.requests
    head = "<h2>Requests</h2>" + _left_out(state.earlier_requests, "earlier request")
    if not requests:
        return f"{head}<p>No request came.</p>"
    first_ms = min(each.time_ms for each in requests)
    span_ms = max(max(each.time_ms for each in requests) - first_ms, 1)
    lanes = {lane: number * _LANE for number, lane in enumerate(dict.fromkeys(_client(each) for each in requests))}
    height = len(lanes) * _LANE
    drawn = [f'<svg viewBox="0 0 {_WIDTH} {height + _LANE}" role="img" aria-label="requests by client and time">']
    for lane, y in lanes.items():
        box = f'x="{_LABEL}" y="{y + 2}" width="{_WIDTH - _LABEL}" height="{_LANE - 4}"'
        drawn.append(f'<rect class="lane" {box}/><text x="0" y="{y + 15}">{escape(_cut(lane, 28))}</text>')
    for each in requests:
        x = _LABEL + (each.time_ms - first_ms) / span_ms * (_WIDTH - _LABEL - 3)
        drawn.append(
            f'<rect class="{_kind(each)}" x="{x:.1f}" y="{lanes[_client(each)] + 3}" width="3" '
            f'height="{_LANE - 6}"><title>{escape(str(each))}</title></rect>'
        )
    rows = (
        (
            _kind(each),
            each.time_ms - first_ms,
            _client(each),
            each.broker,
            each.api if each.version < 0 else f"{each.api} v{each.version}",
            each.summary,
            " ".join([each.outcome, *(code.name for code in each.error_codes)]),
        )
        for each in requests
    )
    return "\n".join(
        [
            head,
            _key(answered="answered", error="with an error", fault="a fault", waiting="not answered"),
            '<div class="picture">',
            *drawn,
            f'<text x="{_LABEL}" y="{height + 15}">0 ms</text>',
            f'<text x="{_WIDTH}" y="{height + 15}" text-anchor="end">{span_ms} ms</text></svg></div>',
            _table(("ms", "client", "broker", "API", "subject", "outcome"), rows),
        ]
    )


def _client(request: RequestSeen) -> str:
    return "transaction markers" if request.version < 0 else f"{request.client_id or '-'} ({request.principal})"


def _kind(request: RequestSeen) -> str:
    if "fault" in request.outcome:
        return "fault"
    if request.error_codes:
        return "error"
    return "waiting" if request.outcome == "no answer" else "answered"


# Partitions


def _partitions(state: BrokerState) -> str:
    head = "<h2>Partitions</h2>" + (f"<p>{escape(state.note)}</p>" if state.note else "")
    if not state.is_known:
        return head
    if not state.partitions and not state.more_partitions:
        return f"{head}<p>None was written.</p>"
    key = _key(committed="committed", aborted="aborted", open="open", plain="without a transaction")
    left_out = _left_out(state.more_partitions, "more partition")
    return "\n".join([head, key, *map(_partition, state.partitions), left_out])


def _partition(partition: PartitionState) -> str:
    view, records, first = partition.view, partition.records, partition.first_offset
    end = max(view.log_end_offset, first + 1)

    def x(offset: int) -> float:
        # The last stable offset may be before what is drawn.
        return (max(offset, first) - first) / (end - first) * (_WIDTH - 4) + 2

    drawn = [f'<svg viewBox="0 0 {_WIDTH} 46" role="img" aria-label="records of {escape(str(view.topic_partition))}">']
    pairs = list(zip(records, _outcomes(records), strict=True))
    runs = groupby(pairs, key=lambda pair: (pair[0].producer_id, pair[0].is_control, pair[1]))
    for (producer_id, is_control, outcome), found in runs:
        run = [record for record, _ in found]
        what = f"offsets {run[0].offset} to {run[-1].offset}: {outcome}"
        what += f", producer {producer_id} epoch {run[0].producer_epoch}" if producer_id >= 0 else ""
        what += f", {run[0].marker or 'control'}" if is_control else ""
        width = max(x(run[-1].offset + 1) - x(run[0].offset) - 1, 2)
        place = 'y="8" height="22"' if not is_control else 'y="4" height="30"'
        drawn.append(
            f'<rect class="{outcome}" x="{x(run[0].offset):.1f}" {place} width="{width:.1f}">'
            f"<title>{escape(what)}</title></rect>"
        )
    for kind, name, offset in (("stable", "LSO", view.last_stable_offset), ("high", "HW", view.high_watermark)):
        at, anchor = x(offset), "start" if x(offset) < _WIDTH / 2 else "end"
        drawn.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="36"/>')
        if kind == "stable" or view.last_stable_offset != view.high_watermark:
            drawn.append(f'<text x="{at:.1f}" y="45" text-anchor="{anchor}">{name} {offset}</text>')
    rows = (
        (
            "" if outcome != "aborted" else "error",
            each.offset,
            "" if each.is_control else _text(each.key),
            (each.marker or "control record") if each.is_control else _text(each.value),
            " ".join(f"{name}={_text(value)}" for name, value in each.headers),
            f"{each.producer_id} epoch {each.producer_epoch}" if each.producer_id >= 0 else "",
            "" if outcome == "plain" else outcome,
        )
        for each, outcome in pairs[-SHOWN_RECORDS:]
    )
    return "\n".join(
        [
            f"<h3>{escape(view.dump().splitlines()[0])}</h3>",
            *([f"<p>Offsets before {first} not shown.</p>"] if first > view.log_start_offset else ()),
            '<div class="picture">',
            *drawn,
            "</svg></div>",
            _left_out(len(records[:-SHOWN_RECORDS]), "earlier record"),
            _table(("offset", "key", "value", "headers", "producer", "transaction"), rows),
        ]
    )


def _outcomes(records: Sequence[RecordView]) -> list[str]:
    """Return for each record how its transaction has ended: the next marker of its producer says it."""
    found: list[str] = []
    ends: dict[int, str] = {}
    for record in reversed(records):
        if record.marker in ("COMMIT", "ABORT"):
            ends[record.producer_id] = "committed" if record.marker == "COMMIT" else "aborted"
        found.append(ends.get(record.producer_id, "open") if record.is_transactional else "plain")
    return found[::-1]


# Transactions and groups


def _transactions(state: BrokerState) -> str:
    rows = [
        (
            "" if each.state in ("Empty", "CompleteCommit", "CompleteAbort") else "fault",
            each.transactional_id,
            each.state,
            f"{each.producer_id} epoch {each.producer_epoch}",
            ", ".join(map(str, sorted(each.partitions))),
            f"{each.timeout_ms} ms",
            each.coordinator,
        )
        for each in state.transactions
    ]
    table = _table(("transactional id", "state", "producer", "partitions", "timeout", "coordinator"), rows)
    left_out = _left_out(state.more_transactions, "more transactional id")
    return f"<h2>Transactions</h2>{table}{left_out}" if rows else ""


def _groups(state: BrokerState) -> str:
    rows = [
        (
            "",
            group.group_id,
            group.state,
            ", ".join(member.client_id for member in group.members),
            *((place, group.committed.get(place, ""), group.lag.get(place, "")) if place else ("", "", "")),
        )
        for group in state.groups
        for place in sorted(group.lag.keys() | group.committed.keys()) or (None,)
    ]
    table = _table(("group", "state", "members", "partition", "committed", "lag"), rows[:_SHOWN_OFFSETS])
    more_rows = _left_out(len(rows[_SHOWN_OFFSETS:]), "more row")
    return f"<h2>Groups</h2>{table}{more_rows}{_left_out(state.more_groups, 'more group')}" if rows else ""


def _left_out(count: int, what: str) -> str:
    return f"<p>{counted(count, what)} not shown.</p>" if count else ""


def _table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ['<div class="scroll"><table><tr>' + "".join(f"<th>{name}</th>" for name in head) + "</tr>"]
    for kind, *cells in rows:
        opening = f'<tr class="{kind}">' if kind else "<tr>"
        lines.append(opening + "".join(f"<td>{escape(_cut(str(cell), 400))}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table></div>"])


def _key(**names: str) -> str:
    shown = "".join(
        f'<span><svg class="key" viewBox="0 0 12 12"><rect class="{kind}" width="12" height="12"/></svg>{name}</span> '
        for kind, name in names.items()
    )
    return f"<p>{shown}</p>"


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(bytes(data[:_SHOWN_BYTES]))[2:-1]
    return f"{text} ... ({len(data)} bytes)" if len(data) > _SHOWN_BYTES else text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
