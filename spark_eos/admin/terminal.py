"""What commands write for people at a terminal: colors, and the progress of scans."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TextIO

from spark_eos.client.producer_scan import Report

COLOR_CHOICES: Final = ("auto", "always", "never")
# Shorter work ends before a bar can be read.
_DELAY_SECONDS: Final = 0.5


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
        """Return a table with its first line in bold."""
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
    delay_seconds: float = _DELAY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Report]:
    """Show how far some work has come, if the stream (by default the standard error) is a terminal.

    Needs rich, which comes with the extra `cli`; without it nothing is shown.
    """
    shown_on = sys.stderr if stream is None else stream
    has_colors = Painter(shown_on, color).is_on
    bar = _Bar(what, shown_on, has_colors, clock() + delay_seconds, clock)
    try:
        yield bar.report
    finally:
        bar.close()


class _Bar:
    """One line that is removed when the work is done."""

    def __init__(
        self, what: str, stream: TextIO, has_colors: bool, begins_at: float, clock: Callable[[], float]
    ) -> None:
        self._what = what
        self._stream = stream
        self._has_colors = has_colors
        self._begins_at = begins_at
        self._clock = clock
        self._is_wanted = stream.isatty()
        self._shown: Any = None
        self._task: Any = None

    def report(self, done: int, total: int) -> None:
        """Show the numbers."""
        if self._shown is None and self._is_wanted and done < total and self._clock() >= self._begins_at:
            self._open(total)
        if self._shown is not None:
            self._shown.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Remove the line."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None
        self._is_wanted = False

    def _open(self, total: int) -> None:
        try:
            # Only here: it takes longer to import than most commands take.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            self._is_wanted = False
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._shown = Progress(
            *columns, console=Console(file=self._stream, no_color=not self._has_colors), transient=True
        )
        self._task = self._shown.add_task(self._what, total=total)
        self._shown.start()
