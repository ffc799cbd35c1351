"""The test of `A test in ten minutes` fails before the correction that the page makes, and passes after it."""

import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT, Page

PAGE = Page("docs/getting-started/testing.md", (ROOT / "docs/getting-started/testing.md").read_text(encoding="utf-8"))
DEADLINE_S = 120


def test_the_fault_finds_what_the_page_corrects(tmp_path: Path) -> None:
    before, after = (block.code for block in PAGE.blocks if block.title == "orders.py")
    [test] = [block.code for block in PAGE.blocks if block.title == "test_orders.py"]
    (tmp_path / "test_orders.py").write_text(test, encoding="utf-8")
    for code, result in ((before, "1 failed"), (after, "1 passed")):
        (tmp_path / "orders.py").write_text(code, encoding="utf-8")
        # -B: a cached module of the same size and second would be taken for the new one.
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert result in done.stdout, done.stdout + done.stderr
