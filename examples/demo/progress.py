"""The progress of the demo's long steps: one line that changes on a terminal, and a line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_TERMINAL_SECONDS: Final = 0.2
_LOG_SECONDS: Final = 10.0
_CLEAR_LINE: Final = "\r\x1b[K"


@contextmanager
def shown(describe: Callable[[], str]) -> Iterator[None]:
    """Show what `describe` returns, with the seconds since the beginning, while the block lasts."""
    ended = threading.Event()
    is_terminal = sys.stdout.isatty()
    began = time.monotonic()

    def show() -> None:
        while not ended.wait(_TERMINAL_SECONDS if is_terminal else _LOG_SECONDS):
            text = f"    {describe()}, {time.monotonic() - began:.0f} s"
            print(f"{_CLEAR_LINE}{text}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        clear()


def clear() -> None:
    """Remove the line that is shown on a terminal."""
    if sys.stdout.isatty():
        print(_CLEAR_LINE, end="", flush=True)
