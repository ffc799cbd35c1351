"""Waiting for a condition with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(probe: Callable[[], Answer], what: str, *, deadline_s: float = 60, pause_s: float = 0.05) -> Answer:
    """Call `probe` until its result is true and return it; raise AssertionError with `what` when the time is up."""
    end = time.monotonic() + deadline_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"condition not met within {deadline_s} s: {what} (last value: {answer!r})")
        time.sleep(pause_s)
