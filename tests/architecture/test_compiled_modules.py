"""The modules that setup.py compiles avoid what mypyc translates differently from Python."""

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import compiled

ROOT = Path(__file__).parents[2]


def compiled_sources() -> list[Path]:
    return [ROOT / f"{name.replace('.', '/')}.py" for name in sorted(compiled.compiled_modules(ROOT))]


def shared_exception_names(source: str) -> Iterator[str]:
    """Yield the functions that bind exceptions of different types to one name.

    mypyc 2.4 keeps the type of the first one, and raises a TypeError instead of handling the second.
    """
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            types: dict[str, set[str]] = {}
            for handler in ast.walk(function):
                if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                    types.setdefault(handler.name, set()).add(ast.unparse(handler.type))
            yield from (f"{function.name}: {name}" for name, found in types.items() if len(found) > 1)


@pytest.mark.parametrize("path", compiled_sources(), ids=lambda path: path.stem)
def test_each_exception_of_a_function_has_a_name_of_its_own(path: Path) -> None:
    assert list(shared_exception_names(path.read_text())) == []


def test_modules_that_are_compiled_exist() -> None:
    assert [path for path in compiled_sources() if not path.exists()] == []


def test_shared_exception_names_are_found() -> None:
    source = "def f():\n  try: g()\n  except A as error: h(error)\n  except B as {}: h({})"
    assert list(shared_exception_names(source.format("error", "error"))) == ["f: error"]
    assert list(shared_exception_names(source.format("other", "other"))) == []


def test_make_compiled_runs_the_tests_of_compiled_code_only() -> None:
    broker = compiled.files_that_reach_compiled_code("tests/unit/broker_core")
    assert "tests/unit/broker_core/log/test_append.py" in broker
    assert "tests/unit/broker_core/broker/test_cluster.py" in broker
    assert not any("/java_stores/" in file for file in broker)
    client = compiled.files_that_reach_compiled_code("tests/unit/spark_eos")
    assert "tests/unit/spark_eos/codec/test_decode.py" in client
    assert not any("/options/" in file for file in client)


def test_a_build_is_kept_until_a_source_of_it_changes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "broker_core", tmp_path / "broker_core", ignore=shutil.ignore_patterns("*.json", "__pyc*"))
    shutil.copy(ROOT / "setup.py", tmp_path)
    before = compiled.build_digest(tmp_path)
    with (tmp_path / "broker_core/embedded.py").open("a") as unrelated:
        unrelated.write("# more\n")
    assert compiled.build_digest(tmp_path) == before
    with (tmp_path / "broker_core/types.py").open("a") as imported:
        imported.write("# more\n")
    assert compiled.build_digest(tmp_path) != before
