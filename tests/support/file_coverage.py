"""The files of the product and the tests that import them.

`python -m tests.support.file_coverage > coverage_by_file.md` writes the index.

A test imports a file itself or through the helpers of tests/support. A file that only other files of the product import
is shown by their tests; it is listed without one, so that a reader finds what has no test of its own.
"""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import networkx as nx

from tests.support.architecture import PACKAGES, import_graph, read_modules

ROOT: Final = Path(__file__).resolve().parents[2]


@cache
def files_with_tests(root: Path) -> dict[str, list[str]]:
    """Return, by file of the product, the files of tests that import it, all paths relative to the root."""
    modules = {module.name: module for module in read_modules(root, *PACKAGES, "tests")}
    graph = import_graph(modules.values())
    product = {name for name in modules if name.split(".")[0] in PACKAGES}
    # From the product no further: what its files import is no work of the test's author.
    graph.remove_edges_from([edge for name in product for edge in list(graph.out_edges(name))])
    found: dict[str, list[str]] = {name: [] for name in product}
    for name in modules:
        if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_"):
            for imported in nx.descendants(graph, name) & product:
                found[imported].append(_path(name, is_package=False))
    return {_path(name, modules[name].is_package): sorted(tests) for name, tests in sorted(found.items())}


def _path(name: str, is_package: bool) -> str:
    return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def page(tests: Mapping[str, list[str]]) -> str:
    """Return the index as Markdown; a file that many tests import names the first three."""
    files = {path: found for path, found in tests.items() if not path.endswith("__init__.py")}
    without = [path for path, found in files.items() if not found]
    rows = [
        f"| `{path}` | {'<br>'.join(f'`{each}`' for each in found[:3])}{_more(len(found) - 3)} |"
        for path, found in files.items()
        if found
    ]
    return "\n\n".join(
        [
            "# Files and the tests that import them",
            f"{len(files)} files: {len(files) - len(without)} that tests import, {len(without)} that only others do.",
            "## Imported by no test",
            "\n".join(f"- `{path}`" for path in without) or "None.",
            "## Imported by tests",
            "\n".join(["| file | tests |", "|---|---|", *rows]) + "\n",
        ]
    )


def _more(count: int) -> str:
    return f"<br>and {count} more" if count > 0 else ""


if __name__ == "__main__":
    sys.stdout.write(page(files_with_tests(ROOT)))
