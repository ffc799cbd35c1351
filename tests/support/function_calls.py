"""Counts the functions that a piece of work calls: a measure of its cost that is the same in every run."""

import gc
import sys
from collections.abc import Callable


def count_calls(work: Callable[[], object], *, builtins: bool = False) -> int:
    """Return how many functions in Python, and with `builtins` in C, are called while `work` runs.

    The garbage collector is off meanwhile: Hypothesis registers a function that each collection calls.
    """
    counted = ("call", "c_call") if builtins else ("call",)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in counted

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
