"""The documentation's pages have one title each, short table cells, links to existing targets, and known blocks."""

import posixpath
import re
from collections.abc import Iterator

import pytest

from tests.support.document_blocks import problems
from tests.support.documents import NEEDS, ROOT, Page, pages

PAGES = {page.name: page for page in pages()}
MAX_CELL = 200
# Each row of these tables is a rule with its sources.
LONG_CELLS = "docs/protocol/"


def test_pages_have_one_title() -> None:
    titles = {name: [level for level, _ in page.headings].count(1) for name, page in PAGES.items()}
    assert [name for name, count in titles.items() if count != 1] == []


def test_table_cells_are_short() -> None:
    short = [page for name, page in PAGES.items() if not name.startswith(LONG_CELLS)]
    cells = [(f"{page.name}:{line}: {cell}", len(cell)) for page in short for line, cell in page.cells()]
    assert [cell for cell, length in cells if length > MAX_CELL] == []


def test_named_tests_exist() -> None:
    named = [(name, path) for name, page in PAGES.items() for path in re.findall(r"`(tests/[\w/]+\.py)`", page.text)]
    assert [(name, path) for name, path in named if not (ROOT / path).is_file()] == []


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


def test_links_resolve_to_files_and_headings() -> None:
    assert [link for page in PAGES.values() for link in _broken_links(page)] == []


@pytest.mark.parametrize("name", PAGES)
def test_blocks_have_a_known_kind(name: str) -> None:
    assert PAGES[name].needs in NEEDS
    assert [f"{name}:{block.line}: {found}" for block in PAGES[name].blocks for found in problems(block)] == []
