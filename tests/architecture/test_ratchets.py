"""Counts that may only fall: each is lowered when the code allows it.

A replaced attribute ties a test to a name inside a module. A limit or a wait as an argument does not.
"""

import ast
from pathlib import Path

import pytest

from tests.support.file_coverage import files_with_tests, page
from tests.support.measure import any_types
from tests.support.remembered import remembered

ROOT = Path(__file__).parents[2]
OURS = ("broker_core", "spark_eos", "tests")
# How far a count may fall before its limit has to follow.
SLACK = 10
MOST_REPLACED = 141
# Files of the product that tests reach through other files only: `python -m tests.support.file_coverage` lists them.
# The list is no page of the documentation, because each new test file would change rows of it.
MOST_WITHOUT_TESTS = 78
# Uses of `Any` by package, where mypy checks nothing. Kafka's messages have types: see `tests.support.message_stubs`.
MOST_ANY = {"broker_core/broker": 25, "broker_core/wire": 55, "spark_eos/client": 45}


@remembered
def replacements(source: str) -> list[int]:
    """Return the lines in which `setattr` of a MonkeyPatch replaces an attribute of our modules or classes."""
    if "setattr(" not in source:
        return []
    module, found = ast.parse(source), []
    bound = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if ((node.module or "") if isinstance(node, ast.ImportFrom) else alias.name).startswith(OURS)
    }
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(module, frozenset())]
    while waiting:
        node, own = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            # A fixture, or a double that a test was given, may have the name of an import.
            own |= {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            target = node.args[0] if node.args else None
            while isinstance(target, ast.Attribute):
                target = target.value
            if (isinstance(target, ast.Name) and target.id in bound - own) or (
                isinstance(target, ast.Constant) and str(target.value).startswith(OURS)
            ):
                found.append(node.lineno)
        waiting += [(child, own) for child in ast.iter_child_nodes(node)]
    return sorted(found)


def test_tests_replace_less_and_less_in_our_modules() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found += [f"{path.relative_to(ROOT)}:{line}" for line in replacements(path.read_text(encoding="utf-8"))]
    assert len(found) <= MOST_REPLACED, "give what the test replaces to the code as an argument"
    assert len(found) > MOST_REPLACED - SLACK, f"lower MOST_REPLACED to {len(found)}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("from broker_core.log import segment\nmonkeypatch.setattr(segment, 'MAX', 1)", [2]),
        ("from spark_eos.errors import X\npatch.setattr(X.y, 'z', 1)", [2]),
        ("import spark_eos.sink\npatch.setattr(spark_eos.sink.driver, 'z', 1)", [2]),
        ("monkeypatch.setattr('broker_core.log.segment.MAX', 1)", [1]),
        ("from tests.a import b\ndef test_it(b):\n  p.setattr(b, 'c', lambda: p.setattr(b, 'd', 1))", []),
        ("from tests import world\ndef test_it(cluster):\n  p.setattr(world.now, 'send', 1)", [3]),
        ("import time\nmonkeypatch.setattr(time, 'sleep', 1)\nmonkeypatch.setattr(cluster.logs, 'x', 1)", []),
    ],
)
def test_replacements_are_found(source: str, lines: list[int]) -> None:
    assert replacements(source) == lines


@pytest.mark.parametrize("package", MOST_ANY)
def test_less_and_less_is_any(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in any_types(path.read_text(encoding="utf-8"))
    ]
    assert len(found) <= MOST_ANY[package], "\n".join(["name the type, or `object`, instead of Any:", *found])
    assert len(found) > MOST_ANY[package] - SLACK, f"lower MOST_ANY to {len(found)}"


def test_any_is_found_where_it_is_a_type() -> None:
    source = "from typing import Any\nx: Any = 1\ndef f(y: dict[str, Any]) -> Any:\n  'Any'\nZ = list[Any]"
    assert any_types(source) == [2, 3, 3, 5]


def test_fewer_and_fewer_files_have_no_test() -> None:
    tests = files_with_tests(ROOT)
    found = [path for path, names in tests.items() if not names and not path.endswith("__init__.py")]
    assert len(found) <= MOST_WITHOUT_TESTS, "\n".join(["write tests that import the new one of these:", *found])
    assert len(found) > MOST_WITHOUT_TESTS - SLACK, f"lower MOST_WITHOUT_TESTS to {len(found)}"


def test_a_file_is_found_with_the_tests_that_import_it_through_helpers_too() -> None:
    found = files_with_tests(ROOT)
    assert "tests/unit/broker_core/records/test_batch.py" in found["broker_core/records/batch.py"]
    # By tests.support.direct.
    assert "tests/unit/broker_core/broker/test_fetch_limits.py" in found["broker_core/broker/cluster.py"]


def test_the_index_names_the_tests_of_a_file_and_files_without() -> None:
    text = page({"a.py": ["t1", "t2", "t3", "t4"], "b.py": [], "c/__init__.py": []})
    assert "2 files: 1 that tests import, 1 that only others do." in text
    assert "- `b.py`\n" in text
    assert "| `a.py` | `t1`<br>`t2`<br>`t3`<br>and 1 more |" in text
