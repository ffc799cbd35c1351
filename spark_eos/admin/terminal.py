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
