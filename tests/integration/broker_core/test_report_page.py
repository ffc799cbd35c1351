"""`pytest --kafka-report`: the page about the broker of a failed test."""

from html.parser import HTMLParser

import pytest

pytest_plugins = ["pytester"]

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
    def run(*arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=FAILING)
        return pytester.runpytest_inprocess("-p", "broker_core.pytest_plugin", "-p", "no:cacheprovider", *arguments)

    return run


def test_failed_tests_get_a_page(run, pytester):
    result = run("--kafka-report")
    result.assert_outcomes(passed=1, failed=3)
    pages = {path.name: path.read_text(encoding="utf-8") for path in (pytester.path / "kafka-report").iterdir()}
    assert sorted(pages) == ["test_it.py-test_fails-1.html", "test_it.py-test_without_brokers.html"]
    result.stdout.fnmatch_lines(["*- kafka report -*", "*test_it.py-test_fails-1.html"])
    text = pages["test_it.py-test_fails-1.html"]
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
    _Page(pages["test_it.py-test_without_brokers.html"])


def test_pages_are_written_only_when_asked_for(run, pytester):
    run().assert_outcomes(passed=1, failed=3)
    assert not (pytester.path / "kafka-report").exists()
    run("--kafka-report", "--kafka-report-dir", "pages", "-k", "test_fails").assert_outcomes(failed=1, deselected=3)
    assert [path.name for path in (pytester.path / "pages").iterdir()] == ["test_it.py-test_fails-1.html"]
