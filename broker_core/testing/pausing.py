"""Pauses between two looks at a broker, which another thread can interrupt."""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from broker_core.server.clock import monotonic_s

T = TypeVar("T")


# Set in the context of calls that can be interrupted.
INTERRUPTION: ContextVar[threading.Event | None] = ContextVar("interruption", default=None)


class Interrupted(Exception):
    """The result of a call is no longer wanted."""


def pause(seconds: float) -> None:
    """Sleep; raises `Interrupted`, once, if the call is interrupted."""
    event = INTERRUPTION.get()
    if event is None:
        time.sleep(seconds)
    elif event.wait(seconds):
        # Only once, so that a transaction can still be aborted on the way out.
        event.clear()
        raise Interrupted


def wait_until(look: Callable[[], T], is_enough: Callable[[T], object], timeout: float, why: Callable[[T], str]) -> T:
    """Look until it is enough, and return what was seen last; AssertionError that says why after `timeout` seconds."""
    end = monotonic_s() + timeout
    while not is_enough(found := look()):
        if monotonic_s() > end:
            raise AssertionError(why(found))
        pause(0.01)
    return found
