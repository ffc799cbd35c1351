"""Which failed tests have sections and pages about which brokers: one run of pytest, in two processes, for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]

CONFTEST = """
    import json
    import pytest
    from _pytest.runner import runtestprotocol

    FOUND = []

    def pytest_runtest_logreport(report):
        sections = [each for each in report.sections if each[0].startswith("kafka")]
        FOUND.append([report.nodeid, report.when, report.outcome, sections])

    def pytest_sessionfinish(session):
        if not hasattr(session.config, "workerinput"):
            with open("found.json", "w") as file:
                json.dump(FOUND, file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        # As plugins do that run a failed test again.
        if item.name == "test_twice":
            for _ in range(2):
                item._initrequest()
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                runtestprotocol(item, nextitem=nextitem)
                item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            return True
"""
FIXTURES = """
    import os
    import pytest
    from dataclasses import dataclass
    from broker_core import EmbeddedBroker

    @dataclass
    class Environment:
        broker: EmbeddedBroker

    @pytest.fixture(scope="module")
    def shared():
        with EmbeddedBroker() as broker:
            yield Environment(broker)

    @pytest.fixture
    def environment(shared):
        return shared

    def ask(broker, client_id):
        from confluent_kafka import Producer
        Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id}).list_topics(timeout=30)

    def test_before(environment):
        ask(environment.broker, "client of another test")

    def test_shared(environment):
        ask(environment.broker, "own client")
        environment.broker.produce("in-shared", ["x"])
        assert False

    def test_on_demand(request):
        request.getfixturevalue("shared")
        assert False

    def test_without_the_shared_broker():
        assert False

    class TestOwnFixture:
        @pytest.fixture
        def kafka(self):
            with EmbeddedBroker() as broker:
                yield broker

        def test_own(self, kafka):
            kafka.produce("in-own", ["x"])
            pytest.fail("the reason")

        @pytest.mark.parametrize("name", ["a/b", "a-b", "\\u00fc", pytest.param("", id="long" * 90)])
        def test_named(self, kafka, name):
            os.chdir("/")
            assert False

        def test_twice(self, kafka):
            assert False

    class TestAutouse:
        @classmethod
        def setup_class(cls):
            cls.broker = EmbeddedBroker().start()

        @classmethod
        def teardown_class(cls):
            cls.broker.close()

        def test_starts_it(self):
            pass

        def test_does_not_need_it(self):
            assert False

        def test_needs_it(self):
            self.broker.produce("in-always", ["x"])
            assert False

    @pytest.fixture
    def fails_in_setup(kafka):
        kafka.produce("in-setup", ["x"])
        raise ValueError

    def test_setup(fails_in_setup):
        pass

    @pytest.fixture
    def fails_in_teardown(kafka):
        yield
        kafka.produce("in-teardown", ["x"])
        raise ValueError

    def test_teardown(fails_in_teardown):
        assert False

    @pytest.fixture
    def fails_last():
        yield
        raise ValueError

    def test_stopped_before_the_teardown(fails_last, kafka):
        kafka.produce("in-stopped", ["x"])

    @pytest.mark.xfail
    def test_expected_to_fail(kafka):
        assert False

    @pytest.mark.xfail(strict=True)
    def test_passes_unexpectedly(kafka):
        pass

    def test_skipped(kafka):
        pytest.skip("not here")

    @pytest.fixture(scope="module")
    def module_check(shared):
        yield
        shared.broker.produce("in-module", ["x"])
        raise ValueError

    def test_checked(module_check):
        pass

    def test_last():
        pass
"""
BODIES = """
    import asyncio
    import functools
    import unittest
    from broker_core import EmbeddedBroker
    from broker_core.aio import EmbeddedBroker as AsyncBroker

    def test_in_the_body():
        with EmbeddedBroker() as broker:
            broker.produce("in-body", ["x"])
            assert False

    def test_after_the_block():
        with EmbeddedBroker() as broker:
            broker.produce("in-block", ["x"])
        assert False

    def test_folder(tmp_path):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            broker.produce("in-folder", ["x"])
            assert False

    def test_folder_and_asyncio(tmp_path):
        async def main():
            async with AsyncBroker(data_dir=tmp_path) as broker:
                await broker.produce("in-async-folder", ["x"])
                assert False
        asyncio.run(main())

    def test_crashed(kafka):
        kafka.produce("in-crashed", ["x"])
        kafka.crash()
        assert False

    def test_crashed_and_closed():
        with EmbeddedBroker() as broker:
            broker.produce("in-crashed-and-closed", ["x"])
            broker.crash()
        assert False

    def test_async_body():
        async def main():
            async with AsyncBroker() as broker:
                await broker.produce("in-async", ["x"])
                assert False
        asyncio.run(main())

    def test_two_brokers(kafka):
        with EmbeddedBroker() as other:
            kafka.produce("in-one", ["x"])
            other.produce("in-other", ["x"])
            assert False

    def test_six_brokers():
        for _ in range(6):
            EmbeddedBroker().start().close()
        assert False

    @functools.cache
    def cached():
        return EmbeddedBroker().start()

    def test_starts_a_broker():
        cached().produce("in-cached", ["x"])

    def test_uses_that_broker():
        assert cached().topics == {}

    def test_does_not_use_that_broker():
        assert False

    def test_subtests(kafka, subtests):
        for number in range(2):
            with subtests.test(number=number):
                kafka.produce("in-subtests", ["x"])
                assert False

    class Case(unittest.TestCase):
        def setUp(self):
            self.kafka = EmbeddedBroker().start()
            self.addCleanup(self.kafka.close)

        def test_case(self):
            self.kafka.produce("in-case", ["x"])
            self.fail("the reason")

        def test_sub(self):
            with self.subTest("part"):
                self.kafka.produce("in-sub", ["x"])
                self.fail("the reason")

    class ClassCase(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.kafka = EmbeddedBroker().start()
            cls.addClassCleanup(cls.kafka.close)

        def test_first(self):
            pass

        def test_second(self):
            self.kafka.produce("in-class", ["x"])
            self.fail("the reason")

        def test_third(self):
            with EmbeddedBroker():
                self.kafka.produce("in-class", ["x"])
                self.fail("the reason")

    class AsyncCase(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self):
            self.kafka = await self.enterAsyncContext(AsyncBroker())

        async def test_async_case(self):
            await self.kafka.produce("in-async-case", ["x"])
            self.fail("the reason")
"""
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
