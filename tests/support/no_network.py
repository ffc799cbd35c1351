"""The guard of the tests of `make check`: opening a connection or starting a process fails.

A suite without sockets imports the two hooks in its conftest.
"""

import os
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Never

import pytest

REFUSED: Final = (
    *((socket.socket, name) for name in ("bind", "connect", "connect_ex", "sendto")),
    (subprocess.Popen, "_execute_child"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Reject connections and processes in fixtures."""
    with _no_connections_and_processes():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Reject connections and processes in tests; the teardown may belong to another suite's fixture."""
    with _no_connections_and_processes():
        return (yield)


@contextmanager
def _no_connections_and_processes() -> Iterator[None]:
    before = [vars(owner).get(name) for owner, name in REFUSED]
    for owner, name in REFUSED:
        setattr(owner, name, REFUSALS[name])
    try:
        yield
    finally:
        for (owner, name), own in zip(REFUSED, before, strict=True):
            if own is None:
                # The class inherits it.
                delattr(owner, name)
            else:
                setattr(owner, name, own)


def _refusing(name: str) -> Any:
    def refuse(*_: object, **__: object) -> Never:
        raise AssertionError(f"a test of this suite called {name}; such tests belong in tests/integration")

    return refuse


REFUSALS: Final = {name: _refusing(name) for _, name in REFUSED}
