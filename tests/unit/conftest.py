"""Unit tests that stay unit tests: whatever opens a connection or starts a process fails."""

import os
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Never

import pytest

FOLDER = Path(__file__).parent
REFUSED = (
    *((socket.socket, name) for name in ("bind", "connect", "connect_ex", "sendto")),
    (subprocess.Popen, "_execute_child"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Refuse connections and processes, in fixtures too; a test that needs them belongs in tests/integration."""
    # pytest calls this hook for the tests of all folders.
    if FOLDER not in item.path.parents:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in REFUSED:
            patch.setattr(owner, name, _refusing(name))
        return (yield)


def _refusing(name: str) -> Any:
    def refuse(*_: object, **__: object) -> Never:
        raise AssertionError(f"a unit test called {name}: tests with connections or processes are in tests/integration")

    return refuse
