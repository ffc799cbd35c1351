"""The output of commands: tables, colors and progress for people, JSON and CSV for programs, exit codes for scripts."""

import argparse
import csv
import errno
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from typing import Any, Final, TextIO

from broker_core.types import TopicPartition, counted
from spark_eos.admin.inventory import Entry
from spark_eos.client.producer_scan import Report
from spark_eos.readable import one_line, printable, utc
from spark_eos.sink.decision import Decision, intervention_document, transaction_fields
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import Fate

# What a write reports that a file system cannot take.
WRITE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def prepare_streams() -> None:
    """Have all three streams, and an output for every name.

    Python has None for a stream that the shell has closed (`2>&-`), and the encoding of a terminal may lack characters
    of a transactional id: they are printed as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_rest(stream: TextIO) -> None:
    """Discard what is left for a stream that cannot be written: Python must not fail on it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Style(StrEnum):
    """Select Graphic Rendition codes (ECMA-48)."""

    BOLD = "1"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


class Painter:
    """The colors of one stream: on for a terminal, unless NO_COLOR is set (no-color.org) or TERM is `dumb`."""

    def __init__(self, stream: TextIO, color: str = "auto", environ: Mapping[str, str] = os.environ) -> None:
        refuses = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.is_on = color == "always" or (color == "auto" and stream.isatty() and not refuses)

    def paint(self, text: str, *styles: Style) -> str:
        r"""Return the text in styles, or as it is.

        >>> Painter(sys.stdout, "always").paint("it hangs", Style.RED)
        '\x1b[31mit hangs\x1b[0m'
        """
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m" if self.is_on and text and styles else text

    def paint_heads(self, table: str) -> str:
        heads, line_feed, rows = table.partition("\n")
        return self.paint(heads, Style.BOLD) + line_feed + rows


# For output that is no terminal's.
PLAIN: Final = Painter(sys.stdout, "never")


@contextmanager
def progress(
    what: str,
    *,
    stream: TextIO | None = None,
    color: str = "auto",
    delay_seconds: float = 0.5,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Report]:
    """Show how far some work has come, if the stream (by default the standard error) is a terminal.

    Needs rich, which comes with the extra `cli`; without it nothing is shown.
    """
    shown_on = sys.stderr if stream is None else stream
    begins_at = clock() + delay_seconds
    bar: Any = None
    is_wanted = shown_on.isatty()

    def report(done: int, total: int) -> None:
        nonlocal bar, is_wanted
        if bar is None and is_wanted and done < total and clock() >= begins_at:
            bar = _bar(what, shown_on, Painter(shown_on, color).is_on)
            is_wanted = bar is not None
        if bar is not None:
            bar.update(0, completed=done, total=total)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str, stream: TextIO, has_colors: bool) -> Any:
    """Show one line that is removed when the work is done; None without the library."""
    try:
        # Only here: it takes longer to import than most commands take.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(file=stream, no_color=not has_colors), transient=True)
    bar.add_task(what)
    bar.start()
    return bar


TABLE: Final = "table"
_HEADS: Final = ("PREFIX", "QUERY", "MICRO-BATCH", "ATTEMPT", "DECIDED", "TRANSACTIONS", "RECORDS", "STATE")
_TRANSACTION_HEADS: Final = ("TASK", "TRANSACTIONAL ID", "PRODUCER", "EPOCH", "FATE", "WRITTEN")
LIST_COLUMNS: Final = (
    *("prefix", "query", "state", "problem", "run", "micro_batch", "attempt", "revision", "tasks", "decided_at_ms"),
    *("completed_at_ms", "intervention", "transaction_count", "record_count", "committed", "open", "lost", "unclear"),
)
_PRODUCER_COLUMNS: Final = ("transactional_id", "producer_id", "producer_epoch")
_TRANSACTION_COLUMNS: Final = (*_PRODUCER_COLUMNS, "transaction_version", "timeout_ms", "started_at_ms")
SHOW_COLUMNS: Final = ("prefix", "query", "micro_batch", "attempt", "task", *_TRANSACTION_COLUMNS, "fate", "written")
_RANGE_COLUMNS: Final = ("topic", "partition", "first_offset", "last_offset", "record_count")
OUTCOMES: Final = ("committed", "lost", "unknown", "pending")
RESULT_COLUMNS: Final = ("action", "restart", "done", "micro_batch", "attempt", *OUTCOMES, "problems")


class ExitCode(IntEnum):
    """How a command ended; a number means the same in every area of `eos-kafka`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING_DONE = 3
    DONE_IN_PART = 4
    HANGING_FOUND = 5
    PROBLEM_FOUND = 6


EXIT_MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed, see the message",
    ExitCode.USAGE: "wrong usage",
    ExitCode.NOTHING_DONE: "nothing was changed: the command refused, or its plan was not confirmed",
    ExitCode.DONE_IN_PART: "done, but not every transaction ended as wanted, or a later step failed",
    ExitCode.HANGING_FOUND: "a hanging transaction was found, by find-hanging",
    ExitCode.PROBLEM_FOUND: "a check found a problem, by doctor",
}


def exit_codes(*codes: ExitCode) -> str:
    return "Exit codes: " + "; ".join(f"{code.value} {EXIT_MEANINGS[code]}" for code in codes) + "."


def write(
    chosen: argparse.Namespace, text: str, document: object, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Print a result in the chosen format; a table in the form of `text`, with bold heads on a terminal."""
    if chosen.output == "csv":
        # The line ends are part of the format.
        sys.stdout.write(as_csv(columns, rows))
    elif chosen.output == "json":
        print(as_json(document))
    else:
        print(Painter(sys.stdout, chosen.color).paint_heads(printable(text)))


def say(text: str) -> None:
    """Print what is for people only, and not a part of the result; a change does not end because it has no reader."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard_rest(sys.stderr)


def as_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True)


def as_csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Format rows as CSV (RFC 4180) with a header; lists are separated by spaces, and an absent value is empty.

    >>> as_csv(["id", "is_open", "partitions"], [{"id": 'a "b", c', "is_open": True, "partitions": ["t-0", "t-1"]}])
    'id,is_open,partitions\r\n"a ""b"", c",true,t-0 t-1\r\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    return " ".join(map(_cell, value)) if isinstance(value, list | tuple) else str(value)


def rest_text(place: TopicPartition, last_stable_offset: int, end: int, blocker: str) -> str:
    """Return what was not read of a partition, and why; `blocker` describes the oldest transaction."""
    return (
        f"{place} is listed up to its last stable offset {last_stable_offset}, but ends at {end}: an open transaction "
        f"blocks the last stable offset. {blocker}"
    )


def list_table(entries: Sequence[Entry]) -> str:
    rows: list[tuple[str, ...]] = [_HEADS]
    for each in entries:
        found = each.decision
        if found is None:
            rows.append((each.prefix, each.query, *"?????", each.state))
            continue
        numbers = found.micro_batch, found.attempt, utc(found.decided_at_ms), len(found.transactions)
        rows.append((each.prefix, each.query, *map(str, (*numbers, found.record_count)), each.state))
    return table(rows)


def list_document(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "prefix": each.prefix,
            "query": each.query,
            "state": each.state,
            "problem": each.problem or None,
            "fates": dict(each.fates),
            "decision": None if each.decision is None else decision_document(each.decision),
        }
        for each in entries
    ]


def decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "run": decision.run,
        "micro_batch": decision.micro_batch,
        "attempt": decision.attempt,
        "revision": decision.revision,
        "tasks": decision.split_count,
        "decided_at_ms": decision.decided_at_ms,
        "completed_at_ms": decision.completed_at_ms,
        "intervention": intervention_document(decision.intervention),
        "transaction_count": len(decision.transactions),
        "record_count": decision.record_count,
    }


def show_text(decision: Decision, fates: Mapping[PreparedTransaction, Fate], audit: Sequence[Mapping[str, Any]]) -> str:
    head = [
        f"Query {decision.query}, prefix {decision.prefix}, run {decision.run}",
        f"Micro-batch {decision.micro_batch}, attempt {decision.attempt}, {counted(decision.split_count, 'task')}, "
        f"decided at {utc(decision.decided_at_ms)}"
        + (f", completed at {utc(decision.completed_at_ms)}" if decision.completed_at_ms is not None else ""),
    ]
    rows = [
        _TRANSACTION_HEADS,
        *(
            (str(t.split), t.transactional_id, *map(str, t.producer), fate.name.lower(), _places(t))
            for t, fate in fates.items()
        ),
    ]
    return "\n".join([*head, table(rows), *(_audit_line(each) for each in audit)])


def show_document(
    decision: Decision, fates: Mapping[PreparedTransaction, Fate], audit: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "prefix": decision.prefix,
        "query": decision.query,
        "decision": decision_document(decision),
        "transactions": [
            {
                "task": t.split,
                **transaction_fields(t),
                "fate": fate.name.lower(),
                "written": [{name: getattr(w, name) for name in _RANGE_COLUMNS} for w in t.ranges],
            }
            for t, fate in fates.items()
        ],
        "interventions": list(audit),
    }


def show_csv(fates: Iterable[PreparedTransaction], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {**document["decision"], **document, **described, "written": _places(transaction)}
        for transaction, described in zip(fates, document["transactions"], strict=True)
    ]


def table(rows: Sequence[Sequence[str]]) -> str:
    # A name with a line feed would add a row.
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )


def _places(transaction: PreparedTransaction) -> str:
    return ", ".join(f"{w.topic}-{w.partition}@{w.first_offset}..{w.last_offset}" for w in transaction.ranges)


def _audit_line(each: Mapping[str, Any]) -> str:
    if "problem" in each:
        return str(each["problem"])
    restart = f" --restart {each['restart']}" if each["restart"] else ""
    reason = f": {each['reason']}" if each["reason"] else ""
    text = f"{utc(each['at_ms'])}  {each['by']}  {each['action']}{restart} of micro-batch {each['micro_batch']}{reason}"
    # A reason with a line feed would look like another intervention.
    return one_line(text)
