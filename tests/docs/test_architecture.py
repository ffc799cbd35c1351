"""The diagrams of the architecture page match the code."""

import pytest

from tests.support.architecture import PACKAGES, ROOT, diagram, read_modules
from tests.support.documents import Page

PAGE = "docs/contributing/architecture.md"


@pytest.mark.parametrize("package", PACKAGES)
def test_package_diagram_is_current(package: str) -> None:
    page = Page(PAGE, (ROOT / PAGE).read_text(encoding="utf-8"))
    drawn = [block.code.strip() for block in page.blocks if block.language == "mermaid"]
    assert diagram(read_modules(ROOT, package), package) in drawn
