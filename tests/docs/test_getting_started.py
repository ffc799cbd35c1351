"""The README and the pages of `Getting started`: the displayed output is the actual output."""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_core import EmbeddedBroker
from spark_eos.admin import command
from tests.support.documents import DOCS, ROOT, Page

DEADLINE_S = 120
README_LINES = 150


def page(name: str) -> Page:
    return Page(f"docs/getting-started/{name}", (DOCS / "getting-started" / name).read_text(encoding="utf-8"))


def test_fault_exposes_the_error_that_the_page_corrects(tmp_path: Path) -> None:
    """The page's test fails before the page's correction and passes after it."""
    blocks = page("testing.md").blocks
    before, after = (block.code for block in blocks if block.title == "orders.py")
    [test] = [block.code for block in blocks if block.title == "test_orders.py"]
    (tmp_path / "test_orders.py").write_text(test, encoding="utf-8")
    outputs = []
    for code, result in ((before, "1 failed"), (after, "1 passed")):
        (tmp_path / "orders.py").write_text(code, encoding="utf-8")
        # -B: Python would take a cached module of the same size and second for the new one.
        done = subprocess.run(
            [
                sys.executable,
                "-B",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:hypothesispytest",
                "-p",
                "no:anyio",
                "test_orders.py",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert result in done.stdout, done.stdout + done.stderr
        outputs.append(done.stdout)
    [report] = [block.code for block in blocks if block.language == "console"]
    # Without times. The lines from pytest, and the client's division into batches, differ from run to run.
    shown = [line.lstrip("0123456789") for line in report.splitlines() if re.search("^---|Produce", line)]
    assert len(shown) == 4
    assert [line for line in shown if line not in outputs[0]] == []


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "nightly-import"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", "an order")
        producer.flush(30)
        yield kafka


def test_commands_print_the_documented_output(
    kafka: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reach = ["--bootstrap-server", kafka.bootstrap_servers]
    timeline = ["timeline", "orders", "--out", str(tmp_path / "timeline.html"), *reach]
    end = ["transactions", *reach, "force-terminate", "--transactional-id", "nightly-import", "--yes"]
    printed = []
    for arguments in (timeline, ["transactions", *reach, "list"], end, timeline):
        assert command.main(arguments) == 0
        printed.append(_comparable(capsys.readouterr().out.replace(kafka.bootstrap_servers, "localhost:9092")))
    shown = [_comparable(block.code) for block in page("command-line.md").blocks if block.language == "console"]
    assert shown == [text for text in printed if text]


def _comparable(text: str) -> str:
    """Return the text without ages and line breaks, which differ between runs."""
    return re.sub(r"for \d+ s", "for N s", " ".join(text.split()))


def test_readme_is_short_and_its_links_resolve() -> None:
    """They are relative: no address outside is promised, and they work wherever the repository lies."""
    readme = Page("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    paths = [target.partition("#")[0] for _, target in readme.links()]
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert len(readme.text.splitlines()) <= README_LINES


def test_each_extra_is_on_the_page_of_the_installation() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    text = page("installation.md").text.partition("## The extras\n")[2].partition("\n## ")[0]
    table, _, below = text.partition("The extras `")
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) + re.findall(r"`(\w+)`", f"`{below}")
    assert sorted(named) == sorted(settings["options.extras_require"])
