"""The choice of brokers for all tests, and the skipping of what cannot run on this machine."""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_eos.sink.incarnation import use_folder
from tests.support import examples, short_form
from tests.support.java import java_problem
from tests.support.memory_files import own_folder, use_memory

# The order of files, the limit of tests that hang, the first words of failures, and fixtures that several suites share.
pytest_plugins = (
    "tests.support.file_order",
    "tests.support.hanging_tests",
    "tests.support.first_words",
    "tests.support.both_brokers",
    "tests.support.one_broker",
    "tests.support.spark_eos.brokers",
)

# What other processes have left out.
LEFT_OUT: list[str] = []
# What the user has set: Spark's sessions set another one, which tests do not see.
LOCAL_DIRS = os.environ.get("SPARK_LOCAL_DIRS")

examples.load_profile()
use_memory(os.environ)
# pytest has asked for the folder before, for what tests print.
tempfile.tempdir = None
# Killed processes leave their files, so each run has a folder of its own, which is removed at its end. The folders of
# single tests are elsewhere: pytest keeps them for three runs. The name is short, as the path of a socket has to be.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = own_folder(Path(tempfile.gettempdir()))
    tempfile.tempdir = None


def pytest_configure() -> None:
    """Show at once why a broker stopped: tests that share it would only report that it does not respond."""
    last_words = logging.StreamHandler(sys.__stderr__)
    last_words.setLevel(logging.ERROR)
    logging.getLogger("broker_core.server.socket_server").addHandler(last_words)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that run the conformance tests on Apache Kafka too, or there only."""
    parser.addoption(
        "--apache",
        action="store_true",
        help="run the conformance tests against Apache Kafka as well as against broker_core",
    )
    parser.addoption(
        "--after-make-test",
        action="store_true",
        help="with --apache, leave out the tests of conformance, source, sink and command that `make test` has run",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that start Spark if Java is missing."""
    with_spark = [item for item in items if item.get_closest_marker("spark")]
    problem = java_problem() if with_spark else None
    if problem:
        for item in with_spark:
            item.add_marker(pytest.mark.skip(reason=problem))


def pytest_runtest_setup() -> None:
    """Take away the directory of a Spark session that an earlier test of this process has left."""
    os.environ.pop("SPARK_LOCAL_DIRS", None)
    use_folder(None)


def pytest_unconfigure() -> None:
    """Give back to the user what tests do not see."""
    os.environ |= {"SPARK_LOCAL_DIRS": LOCAL_DIRS} if LOCAL_DIRS is not None else {}


@pytest.fixture
def no_installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pytest of the test load what it names only: all plugins take longer to import than its tests to run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Make the test's Spark session the active one of its thread.

    Spark looks for formats of Python in the active session only. A thread of the JVM that serves a new connection of
    this process has none, and then no format of Python is found.
    """
    spark = getattr(item, "funcargs", {}).get("spark")
    if hasattr(spark, "_jsparkSession"):
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the short form of a search leaves out."""
    for line in sorted({*LEFT_OUT, *short_form.left_out()}):
        terminalreporter.write_line(f"short form: {line}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what this process leaves out to the one that prints it, which collects no tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = short_form.left_out()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what a process has left out."""
    LEFT_OUT.extend(getattr(node, "workeroutput", {}).get("left out", ()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected: there is hardly any, and each search visits all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude objects that stay for the whole run from garbage collection: pytest, the tests, their modules."""
    gc.collect()
    gc.freeze()
