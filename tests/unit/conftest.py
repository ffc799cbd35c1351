"""Guards for unit tests: opening a connection or starting a process fails, and no driver's directory is shared."""

import pytest

from spark_eos.sink.incarnation import use_folder
from tests.support.no_network import pytest_runtest_call, pytest_runtest_setup

__all__ = ("pytest_runtest_call", "pytest_runtest_setup")


@pytest.fixture(autouse=True)
def no_folder_of_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the directory of a Spark session that an earlier test of this process has left."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    use_folder(None)
