"""Which failed tests have sections and pages about which brokers: one run of pytest, in two processes, for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.failing_tests import BODIES, CONFTEST, FIXTURES

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]

CLOSED = "The broker had been closed. This is what it contained then."
CRASHED = "All brokers had crashed. This is what a restart would find."


class _Outcome:
    """The reports of the run, and its pages."""

    def __init__(self, folder: Path, output: str) -> None:
        self.output = output
        self.folder = folder
        self._reports = json.loads((folder / "found.json").read_text())

    def reports(self, test: str, when: str = "call") -> list[dict[str, str]]:
        """Return the sections of the failures of a test."""
        found = [dict(row[3]) for row in self._reports if row[:3:2] == [self._id(test), "failed"] and row[1] == when]
        assert found, f"no failure of {test}: {self.output}"
        return found

    def page(self, sections: dict[str, str]) -> str:
        """Return the page that the sections name."""
        return (self.folder / sections["kafka report"]).read_text(encoding="utf-8")

    def _id(self, test: str) -> str:
        (found,) = {row[0] for row in self._reports if row[0].endswith(f"::{test}")}
        return found


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    files = {"conftest": CONFTEST, "test_fixtures": FIXTURES, "test_bodies": BODIES}
    for name, source in files.items():
        lines = [line.removeprefix("    ") for line in source.splitlines()]
        (folder / f"{name}.py").write_text("\n".join(lines), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-p", "broker_core.pytest_plugin", "-p", "xdist", "-n", "2"]
    command += ["--dist", "loadfile", "-p", "no:cacheprovider", "--kafka-report"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return _Outcome(folder, done.stdout)


@pytest.mark.parametrize(
    ("test", "when", "topic"),
    [
        ("test_shared", "call", "in-shared"),
        ("test_on_demand", "call", "in-shared"),
        ("test_own", "call", "in-own"),
        ("test_setup", "setup", "in-setup"),
        ("test_teardown", "call", None),
        ("test_uses_that_broker", "call", "in-cached"),
        ("test_sub", "call", "in-sub"),
        ("test_second", "call", "in-class"),
        ("test_needs_it", "call", "in-always"),
        ("test_of_each[one]", "call", "in-one"),
        ("test_of_each[two]", "call", "in-two"),
    ],
)
def test_running_broker_is_described(outcome, test, when, topic):
    for sections in outcome.reports(test, when):
        assert "kafka requests" in sections
        assert sections["kafka partitions"].startswith(f"{topic}-0: " if topic else "none was written")
        page = outcome.page(sections)
        assert (f"<h3>{topic}-0: " if topic else "None was written.") in page
        assert when == "call" or f"In {when}:" in page


@pytest.mark.parametrize(
    ("test", "when", "topic"),
    [
        ("test_teardown", "teardown", "in-teardown"),
        ("test_stopped_before_the_teardown", "teardown", "in-stopped"),
        ("test_last", "teardown", "in-module"),
        ("test_in_the_body", "call", "in-body"),
        ("test_after_the_block", "call", "in-block"),
        ("test_async_body", "call", "in-async"),
        ("test_case", "call", "in-case"),
        ("test_async_case", "call", "in-async-case"),
        ("test_folder", "call", "in-folder"),
        ("test_folder_and_asyncio", "call", "in-async-folder"),
    ],
)
def test_closed_broker_is_described_as_it_was(outcome, test, when, topic):
    (sections,) = outcome.reports(test, when)
    assert sections["kafka partitions"].startswith(f"{CLOSED}\n")
    assert f"\n{topic}-0: log start 0, LSO 1, HW 1, log end 1" in sections["kafka partitions"]
    page = outcome.page(sections)
    assert CLOSED in page
    assert when == "call" or f"In {when}:" in page
    assert f"<h3>{topic}-0: " in page


@pytest.mark.parametrize(
    ("test", "topic"), [("test_crashed", "in-crashed"), ("test_crashed_and_closed", "in-crashed-and-closed")]
)
def test_crashed_broker_is_described_as_a_restart_would_find_it(outcome, test, topic):
    (sections,) = outcome.reports(test)
    assert sections["kafka partitions"].startswith(f"{CRASHED}\n{topic}-0: log start 0, LSO 1, HW 1, log end 1")
    page = outcome.page(sections)
    assert CRASHED in page
    assert f"<h3>{topic}-0: " in page


def test_requests_of_other_tests_are_left_out(outcome):
    (sections,) = outcome.reports("test_shared")
    assert sections["kafka requests"].startswith("... ")
    for text in (sections["kafka requests"], outcome.page(sections)):
        assert "own client" in text
        assert "client of another test" not in text


@pytest.mark.parametrize(
    "test",
    [
        "test_without_the_shared_broker",
        "test_does_not_use_that_broker",
        "test_does_not_need_it",
        "test_passes_unexpectedly",
    ],
)
def test_failure_without_a_broker_of_its_own_has_no_page(outcome, test):
    assert outcome.reports(test) == [{}]


def test_several_brokers_have_one_page(outcome):
    (sections,) = outcome.reports("test_two_brokers")
    stopped, running = (sections[title] for title in sections if title.startswith("kafka partitions: "))
    assert stopped.startswith(f"{CLOSED}\nin-other-0: ")
    assert running.startswith("in-one-0: ")
    assert any(title.startswith("kafka requests: kafka (127.0.0.1:") for title in sections)
    page = outcome.page(sections)
    assert page.count('<h2 class="broker">') == 2
    (sections,) = outcome.reports("test_third")
    assert any(title.startswith("kafka requests: setUpClass (127.0.0.1:") for title in sections)
    (sections,) = outcome.reports("test_six_brokers")
    assert outcome.page(sections).count('<h2 class="broker">') == 4


def test_each_failure_has_a_page_of_its_own(outcome):
    names = ["test_named[a/b]", "test_named[a-b]", "test_named[\\xfc]", "test_named[" + "long" * 90 + "]"]
    tests = [*names, "test_twice", "test_subtests", "test_sub", "test_teardown"]
    failures = [each["kafka report"] for test in tests for each in outcome.reports(test) if each]
    failures += [outcome.reports("test_teardown", "teardown")[0]["kafka report"]]
    assert len(set(failures)) == len(failures) == len(names) + 2 + 2 + 1 + 2
    pages = [path.name for path in (outcome.folder / "kafka-report").iterdir()]
    assert {Path(each).name for each in failures} <= set(pages)
    assert max(map(len, pages)) < 200
    assert f"kafka report: {len(pages) - 10} more pages in kafka-report" in outcome.output


def test_expected_failures_and_skipped_tests_have_no_page(outcome):
    pages = " ".join(path.name for path in (outcome.folder / "kafka-report").iterdir())
    assert "test_own" in pages
    assert "1 skipped, 1 xfailed" in outcome.output
    assert not any(name in pages for name in ("test_expected_to_fail", "test_passes_unexpectedly", "test_skipped"))


@pytest.mark.usefixtures("no_installed_plugins")
def test_plugin_imports_the_broker_only_for_a_test_that_uses_it(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("""
        import sys

        def test_fails():
            assert not [name for name in sys.modules if name.startswith(("broker_core.broker", "kafka", "confluent"))]
            assert "broker_core.embedded" not in sys.modules
            assert False, "the reason"
    """)
    result = pytester.runpytest_subprocess("-p", "broker_core.pytest_plugin", "--kafka-report")
    result.stdout.fnmatch_lines(["*AssertionError: the reason*"])
    assert not (pytester.path / "kafka-report").exists()
