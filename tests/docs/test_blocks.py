"""Every code block of the documentation runs unchanged, or has a reason why it does not run."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker
from broker_core.features.control.server import ControlServer
from tests.support.document_blocks import run_page, runs
from tests.support.documents import Page, pages
from tests.support.spark_pages import pages_with_spark

ROOT = Path(__file__).parents[2]
# 40 s on an idle machine, for all pages with Spark.
DEADLINE_S = 900
RUNNING = [page for page in pages() if any(runs(block) for block in page.blocks)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("data", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("page", [page for page in RUNNING if page.needs != "spark"], ids=lambda page: page.name)
def test_blocks_of_a_page_run(page: Page, folder: Path) -> None:
    if page.needs == "":
        run_page(page, folder)
    elif page.needs == "control":
        with EmbeddedBroker(topics=page.topics, brokers=2, clock="virtual") as kafka, ControlServer(kafka) as control:
            run_page(page, folder, kafka.bootstrap_servers, control=control.url.removeprefix("http://"))
    else:
        with EmbeddedBroker(topics=page.topics) as kafka:
            run_page(page, folder, kafka.bootstrap_servers)


@pytest.mark.spark
@pytest.mark.timeout(DEADLINE_S + 60)
def test_blocks_of_pages_with_spark_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_pages"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count(": passed") == len(pages_with_spark()) > 5
