"""Guards for unit tests: opening a connection or starting a process fails."""

from tests.support.no_network import pytest_runtest_call, pytest_runtest_setup

__all__ = ("pytest_runtest_call", "pytest_runtest_setup")
