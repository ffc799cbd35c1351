"""Wait for a condition with a deadline instead of sleeping for a guess."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(probe: Callable[[], Answer], what: str, *, deadline_s: float = 60, pause_s: float = 0.05) -> Answer:
    """Call `probe` until it answers something true and return that; AssertionError names `what` when time is up."""
    end = time.monotonic() + deadline_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"condition not met within {deadline_s} s: {what} (last value: {answer!r})")
        time.sleep(pause_s)
