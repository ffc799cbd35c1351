"""What the scripts of findings/ print and compare: the behaviour that was seen, beside the one that is stated."""

import time
from collections.abc import Callable
from typing import Any


def see(what: str, seen: Any, stated: Any) -> None:
    """Print what was seen, and end the script with status 1 if it is not what is stated."""
    print(f"{what}: {seen}")
    if seen != stated:
        raise SystemExit(f"DIFFERENT: {what}\n  stated: {stated}\n  seen:   {seen}")


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what the condition returns as soon as it is true, and its last answer after the deadline."""
    until = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    return answer
