"""The guard of the unit tests rejects connections in them, and not those of another suite's fixture."""

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUARD = Path(__file__).parents[1] / "unit" / "conftest.py"
CONNECT = """
    import socket

    def connect():
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()):
                pass
"""
OTHERS = """
    import pytest
    from connecting import connect

    @pytest.fixture(scope="session")
    def broker():
        connect()
        yield
        connect()
"""
OTHER = """
    from connecting import connect

    def test_other(broker):
        connect()
"""
UNIT = """
    import pytest
    from connecting import connect

    @pytest.fixture
    def connected():
        connect()

    def test_connects():
        connect()

    def test_has_a_fixture_that_connects(connected):
        pass

    def test_plain():
        pass
"""


def test_only_setup_and_calls_of_unit_tests_are_refused_connections(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        **{"connecting": CONNECT, "other/conftest": OTHERS, "other/test_other": OTHER, "unit/test_unit": UNIT}
    )
    shutil.copy(GUARD, pytester.path / "unit" / "conftest.py")
    # The session's last test is a unit test, and its teardown stops the broker of the other suite.
    result = pytester.runpytest("--import-mode=importlib", "-o", "pythonpath=.", "other", "unit")
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_has_a_fixture_that_connects*", "*a test of this suite called bind*"]
    )
