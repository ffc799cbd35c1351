"""CSV, colors and progress: the output of commands beside tables and JSON."""

import csv
import io
import sys
from argparse import Namespace
from collections.abc import Iterator

import pytest

from spark_eos.admin.output import Painter, Style, as_csv, progress, write

COLUMNS = ["id", "is_open", "offset", "partitions", "absent"]


class Stream(io.StringIO):
    """A text stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    "text", ["plain", "a,b", 'a "quoted" word', "two\nlines", "carriage\r\nreturn", "Zürich ✓", ""]
)
def test_csv_is_read_back_as_it_was(text: str) -> None:
    rows = [{"id": text, "is_open": True, "offset": -1, "partitions": ["t-0", "t-1"], "absent": None}] * 2
    written = as_csv(COLUMNS, rows)
    assert written.startswith("id,is_open,offset,partitions,absent\r\n")
    assert written.endswith("\r\n")
    found = list(csv.DictReader(io.StringIO(written, newline="")))
    assert found == [{"id": text, "is_open": "true", "offset": "-1", "partitions": "t-0 t-1", "absent": ""}] * 2


def test_csv_without_rows_has_its_header() -> None:
    assert as_csv(["id", "state"], []) == "id,state\r\n"


@pytest.mark.parametrize(
    ("color", "is_terminal", "environment", "is_on"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colors_depend_on_the_option_the_terminal_and_no_color(
    color: str, is_terminal: bool, environment: dict[str, str], is_on: bool
) -> None:
    painter = Painter(Stream(is_terminal=is_terminal), color, environment)
    assert painter.is_on is is_on
    assert painter.paint("it hangs", Style.RED, Style.BOLD) == ("\x1b[31;1mit hangs\x1b[0m" if is_on else "it hangs")


def test_table_has_bold_heads_and_programs_get_no_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    for output, color, wanted in (
        ("table", "auto", "HEAD\nrow\n"),
        ("table", "always", "\x1b[1mHEAD\x1b[0m\nrow\n"),
        ("json", "always", '[\n  "row"\n]\n'),
        ("csv", "always", "head\r\nrow\r\n"),
    ):
        stream = Stream(is_terminal=False)
        monkeypatch.setattr(sys, "stdout", stream)
        write(Namespace(output=output, color=color), "HEAD\nrow", ["row"], ["head"], [{"head": "row"}])
        assert stream.getvalue() == wanted, output


@pytest.fixture
def seconds() -> Iterator[float]:
    return iter(range(1_000))


def test_progress_of_a_long_scan_is_shown_and_removed(seconds: Iterator[float]) -> None:
    stream = Stream(is_terminal=True)
    with progress("Describing producers", stream=stream, delay_seconds=2, clock=lambda: next(seconds)) as report:
        report(1, 10)
        assert stream.getvalue() == "", "too early"
        for done in range(2, 11):
            report(done, 10)
    shown = stream.getvalue()
    assert "Describing producers" in shown
    assert "10/10" in shown
    assert shown.endswith(("\x1b[2K", "\x1b[?25h")), "the line is removed"


@pytest.mark.parametrize("color", ["always", "never"])
def test_progress_has_colors_if_wanted(color: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Stream(is_terminal=True)
    with progress("Describing", stream=stream, color=color, delay_seconds=0) as report:
        report(1, 10)
    assert "Describing" in stream.getvalue()
    assert ("\x1b[38;5;" in stream.getvalue()) == (color == "always")


@pytest.mark.parametrize("trouble", ["no terminal", "no library", "short"])
def test_progress_is_not_shown(trouble: str, seconds: Iterator[float], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=trouble != "no terminal")
    if trouble == "no library":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress("Describing", stream=stream, delay_seconds=0, clock=lambda: next(seconds)) as report:
        if trouble == "short":
            report(10, 10)
        else:
            report(1, 10)
            report(2, 10)
    assert stream.getvalue() == ""
