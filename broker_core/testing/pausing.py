"""Pauses between two looks at a broker, which another thread can interrupt."""

import threading
import time
from contextvars import ContextVar

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
