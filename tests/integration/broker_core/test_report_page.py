"""`pytest --kafka-report`: the page about the broker of a failed test."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker
from broker_core.pytest_plugin import failure_reports
from broker_core.report_page import page
from broker_core.testing.broker_state import state_of
from tests.support.chromium import MISSING, chromium, has_chromium

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]

FAILING = """
    import pytest
    from broker_core import Error

    @pytest.mark.kafka(topics={"in": 2})
    @pytest.mark.parametrize("number", [1])
    def test_fails(kafka, kafka_producer, kafka_consumer, number):
        kafka.produce("in", [("<k>", "<script>value</script>", {"h": "1"})], partition=0)
        kafka.produce("in", ["kept"], transactional="commits", partition=1)
        kafka.produce("in", ["dropped"], transactional="aborts", end="abort", partition=1)
        kafka.produce("in", ["pending"], transactional="opens", end="open", partition=1)
        consumer = kafka_consumer("in", {"group.id": "readers"})
        assert consumer.poll(30) is not None
        consumer.commit(asynchronous=False)
        with kafka.fault(api="Produce", action=Error("NOT_ENOUGH_REPLICAS"), times=1):
            producer = kafka_producer({"client.id": "<writer>"})
            producer.produce("in", b"x", partition=0)
            producer.flush(30)
        assert number == 2, "the reason"

    def test_passes(kafka):
        kafka.produce("in", ["x"])

    def test_without_brokers(kafka):
        kafka.crash()
        assert False

    def test_without_kafka():
        assert False
"""


class _Page(HTMLParser):
    """The text and tags of a page; a tag that is not closed properly fails."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(*arguments: str, source: str = FAILING) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess("-p", "broker_core.pytest_plugin", "-p", "no:cacheprovider", *arguments)

    return run


def test_failed_tests_get_a_page(run, pytester):
    result = run("--kafka-report")
    result.assert_outcomes(passed=1, failed=3)
    fails, without_brokers = _pages(pytester.path / "kafka-report")
    result.stdout.fnmatch_lines(["*- kafka report -*", f"kafka-report/{fails.name}"])
    result.stdout.fnmatch_lines_random([f"kafka report: kafka-report/{each.name}" for each in (fails, without_brokers)])
    assert re.fullmatch(r"test_it\.py-test_fails-1-[0-9a-f]{8}\.html", fails.name)
    text = fails.read_text(encoding="utf-8")
    page = _Page(text)
    assert "script" not in page.tags
    assert "svg" in page.tags
    for expected in (
        "test_it.py::test_fails[1]",
        "the reason",
        "<writer> (User:ANONYMOUS)",
        "NOT_ENOUGH_REPLICAS",
        "<script>value</script>",
        "in-1: log start 0, LSO 4, HW 5, log end 5",
        "committed",
        "aborted",
        "ABORT",
        "pending",
        "opens",
        "Ongoing",
        "readers",
    ):
        assert expected in page.words, expected
    for kind in ("committed", "aborted", "open", "plain", "error", "answered"):
        assert f'<rect class="{kind}"' in text
    assert "http" not in text.replace("https://", "http").split("<body>")[0]
    assert "All brokers had crashed." in _Page(without_brokers.read_text(encoding="utf-8")).words


def test_pages_are_written_only_when_asked_for(run, pytester):
    run().assert_outcomes(passed=1, failed=3)
    assert not (pytester.path / "kafka-report").exists()
    run("--kafka-report", "--kafka-report-dir", "pages", "-k", "test_fails").assert_outcomes(failed=1, deselected=3)
    (written,) = _pages(pytester.path / "pages")
    run("--kafka-report", "--kafka-report-dir", "pages", "-k", "test_fails")
    assert _pages(pytester.path / "pages") == [written], "the page of an earlier run is replaced"


def test_tests_run_if_no_page_can_be_written(run):
    result = run("--kafka-report", "--kafka-report-dir", "test_it.py/pages")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["*- kafka report -*", "no page: * Not a directory: *"])
    result.stdout.fnmatch_lines(["kafka report: 2 failures without a page; no page: * Not a directory: *"])


def test_number_of_pages_is_limited(run, pytester, monkeypatch):
    monkeypatch.setattr(failure_reports, "_MOST_PAGES", 1)
    result = run("--kafka-report")
    result.stdout.fnmatch_lines(["kafka report: 1 failure without a page; no page: 1 page of earlier failures *"])
    assert len(_pages(pytester.path / "kafka-report")) == 1


@pytest.mark.usefixtures("no_installed_plugins")
def test_page_of_each_worker_is_kept(run, pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run("--kafka-report", "-p", "xdist", "--dist", "each", "--tx", "2*popen", "-k", "test_fails").assert_outcomes(
        failed=2
    )
    names = [re.sub("-[0-9a-f]{8}.html$", "", path.name) for path in _pages(pytester.path / "kafka-report")]
    assert names == ["test_it.py-test_fails-1-in-gw0", "test_it.py-test_fails-1-in-gw1"]


CLOSED_IN_A_FOLDER = """
    from broker_core import EmbeddedBroker

    def test_fails(tmp_path):
        with EmbeddedBroker(data_dir=tmp_path) as kafka:
            kafka.produce("orders", "x")
            kafka.partition("orders", 0)
        assert False
"""


def test_files_of_a_closed_broker_are_read_only_for_a_page(run):
    unknown = "The broker had been closed. Its partitions, transactions and groups are not known."
    run(source=CLOSED_IN_A_FOLDER).stdout.fnmatch_lines(["*- kafka partitions -*", unknown])
    run("--kafka-report", source=CLOSED_IN_A_FOLDER).stdout.fnmatch_lines(
        ["*- kafka partitions -*", "*", "orders-0: *"]
    )


BLOCKING = """
    import threading
    import pytest
    from confluent_kafka import Producer

    @pytest.fixture
    def released():
        yield (event := threading.Event())
        event.set()

    def test_fails(kafka, released):
        blocked = threading.Event()

        def block(request):
            blocked.set()
            released.wait()

        kafka.fault(api="Metadata", action=block)
        producer = Producer({**kafka.client_settings, "client.id": "the client"})
        assert blocked.wait(30)
        assert False
"""


def test_blocked_broker_does_not_delay_the_report(run, pytester, monkeypatch):
    monkeypatch.setattr(failure_reports, "_PATIENCE_S", 0.1)
    run("--kafka-report", source=BLOCKING).assert_outcomes(failed=1)
    (written,) = _pages(pytester.path / "kafka-report")
    text = written.read_text(encoding="utf-8")
    assert "thread did not answer within 0.1 s" in text
    assert "the client" in text


@pytest.mark.parametrize("source", ["raise ValueError('\\udce4')", "raise ValueError('long' * 100_000)"])
def test_any_failure_can_be_written(run, pytester, source):
    run("--kafka-report", source=f"def test_fails(kafka):\n    {source}").assert_outcomes(failed=1)
    (written,) = _pages(pytester.path / "kafka-report")
    assert "ValueError" in _Page(written.read_text(encoding="utf-8")).words
    assert written.stat().st_size < 200_000


def test_page_of_much_data_is_bounded():
    with EmbeddedBroker(topics={"long": 1, "wide": 100}) as kafka:
        kafka.produce("long", [b"x"] * 3000)
        for partition in range(100):
            kafka.produce("wide", b"x", partition=partition)
        state = state_of(kafka)
        text = page("much", "", [state])
    assert len(state.partitions) == 40
    assert sum(len(each.records) for each in state.partitions) <= 10_000
    for expected in (
        "Offsets before 2750 not shown.",
        "50 earlier records not shown.",
        "61 more partitions not shown.",
    ):
        assert expected in _Page(text).words
    assert len(text) < 200_000


def _pages(folder):
    return sorted(folder.iterdir())


def test_pictures_scroll_on_a_narrow_page():
    with EmbeddedBroker(listeners={}) as kafka:
        kafka.produce("in", ["x"])
        text = page("title", "", [state_of(kafka)])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert ".picture { overflow-x: auto; } .picture svg { min-width: 1000px; }" in text
    pictures = re.findall(r'(<div class="picture">\s*)?<svg viewBox="0 0 1000', text)
    assert pictures and all(pictures)


@pytest.mark.skipif(not has_chromium(), reason=MISSING)
def test_only_pictures_are_wider_than_a_narrow_screen(tmp_path):
    with EmbeddedBroker(listeners={}) as kafka:
        kafka.produce("in", ["x"])
        kafka.produce("in", ["pending"], transactional="a-transactional-id-of-sixty-characters-" + 21 * "x", end="open")
        path = tmp_path / "report.html"
        path.write_text(page("test_of_a_shop[case]", "E   assert 1 == 2", [state_of(kafka)]), encoding="utf-8")
    with chromium() as browser:
        size = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        width, pictures = browser.execute_script(
            "return [document.documentElement.scrollWidth,"
            " [...document.querySelectorAll('.picture')].map(each => [each.clientWidth, each.scrollWidth])]"
        )
    assert width <= 420
    assert pictures and all(seen <= 420 and whole >= 1000 for seen, whole in pictures), pictures
