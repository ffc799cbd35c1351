"""Plugin that ends a process whose test hangs where pytest-timeout cannot end it.

pytest-timeout raises an exception in the main thread. That does not interrupt a call of a C library, and there is no
timeout left for the teardown of a test that has failed: pytest-timeout cancels its own, for debuggers. This plugin
prints the stack of every thread and exits; pytest-xdist then reports the test and starts another process.
"""

import faulthandler
import os
import sys
from collections.abc import Iterator
from typing import Final

import pytest

# How long a test and its teardown may take after its timeout, which should have ended it.
GRACE_S: Final = 180
TEARDOWN_S: Final = 180
FINISH_S: Final = 180

_stderr: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error for stacks: pytest redirects it during tests."""
    config.stash[_stderr] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Limit the test and its teardown."""
    _exit_after(_timeout_s(item) + GRACE_S, item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Limit the teardown of a test that has failed: pytest cancels its limit, for debuggers."""
    if isinstance(node, pytest.Item):
        _exit_after(TEARDOWN_S, node.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Limit what a process of pytest-xdist does after its last test; the process that waits for it has no limit."""
    if hasattr(session.config, "workerinput"):
        _exit_after(FINISH_S, session.config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Remove the limit: a process of pytest-xdist that has finished stays until the others have."""
    faulthandler.cancel_dump_traceback_later()


def _timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    config = item.config
    return float(marker.args[0] if marker is not None else config.getoption("timeout") or config.getini("timeout"))


def _exit_after(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_stderr])
