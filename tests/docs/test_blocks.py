"""Every code block of the documentation runs as it stands there, or says why it does not."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from tests.support.document_blocks import problems, run_page, runs, watched_queries
from tests.support.documents import NEEDS, Page, pages

PAGES = pages()
RUNNING = [page for page in PAGES if any(runs(block) for block in page.blocks)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("data", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_have_a_known_kind(page: Page) -> None:
    assert page.needs in NEEDS
    assert [f"{page.name}:{block.line}: {found}" for block in page.blocks for found in problems(block)] == []


@pytest.mark.parametrize("page", [page for page in RUNNING if page.needs != "spark"], ids=lambda page: page.name)
def test_blocks_of_a_page_run(page: Page, folder: Path) -> None:
    if page.needs == "":
        run_page(page, folder)
    else:
        with EmbeddedBroker(topics=page.topics) as kafka:
            run_page(page, folder, kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.support.spark_eos.spark_session import build_session, worker_environment

    before = dict(os.environ)
    os.environ.update(worker_environment())
    session = build_session("docs", {"spark.local.dir": str(tmp_path_factory.mktemp("spark"))})
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def spark(spark_session: Any, folder: Path) -> Any:
    """Give a session whose relative paths are below the page's folder."""
    session = spark_session.newSession()
    hadoop = session._jvm.org.apache.hadoop.fs
    local = hadoop.FileSystem.getLocal(session._jsc.hadoopConfiguration())
    local.setWorkingDirectory(hadoop.Path(str(folder)))
    session._jvm.java.lang.System.setProperty("user.dir", str(folder))  # where checkpoints look
    return session


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in RUNNING if page.needs == "spark"], ids=lambda page: page.name)
def test_blocks_of_a_page_with_spark_run(page: Page, folder: Path, spark: Any) -> None:
    with EmbeddedBroker(topics=page.topics) as kafka, watched_queries():
        run_page(page, folder, kafka.bootstrap_servers, {"spark": spark})
