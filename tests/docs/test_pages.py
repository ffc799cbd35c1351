"""The documentation's pages have one title each, short table cells, links to existing targets, and tests that exist."""

import posixpath
import re
from collections.abc import Iterator

import pytest

from tests.support.documents import ROOT, Page, pages

PAGES = {page.name: page for page in pages()}
MAX_CELL = 200
# Each row of these tables is a rule with its sources.
LONG_CELLS = "docs/protocol/"


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_page_has_one_title(page: Page) -> None:
    assert len([text for level, text in page.headings if level == 1]) == 1


@pytest.mark.parametrize(
    "page", [page for page in PAGES.values() if not page.name.startswith(LONG_CELLS)], ids=lambda page: page.name
)
def test_table_cells_are_short(page: Page) -> None:
    assert [f"{page.name}:{line}: {cell}" for line, cell in page.cells() if len(cell) > MAX_CELL] == []


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_named_tests_exist(page: Page) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", page.text)
    assert [path for path in named if not (ROOT / path).is_file()] == []


def _broken_links(page: Page) -> Iterator[str]:
    for line, target in page.links():
        path, _, anchor = target.partition("#")
        if ":" in path:  # another host
            continue
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), path)) if path else page.name
        if not (ROOT / name).is_file():
            yield f"{page.name}:{line}: {target} is no file"
        elif page.name.startswith("docs/") and not name.startswith("docs/"):
            yield f"{page.name}:{line}: {target} is not part of the site"
        # The headings of the API page come from docstrings; `make docs` checks their links.
        elif anchor and "\n::: " not in PAGES[name].text and anchor not in PAGES[name].anchors:
            yield f"{page.name}:{line}: {name} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_links_resolve_to_files_and_headings(page: Page) -> None:
    assert list(_broken_links(page)) == []
