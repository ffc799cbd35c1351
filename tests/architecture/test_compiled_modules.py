"""The modules that setup.py compiles avoid what mypyc translates differently from Python."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compiled_modules() -> list[Path]:
    """Return the files that setup.py names, which cannot be imported without building something."""
    assignments = [each for each in ast.parse((ROOT / "setup.py").read_text()).body if isinstance(each, ast.Assign)]
    [names] = [ast.literal_eval(each.value) for each in assignments if ast.unparse(each.targets[0]) == "MODULES"]
    return [ROOT / "broker_core" / f"{name}.py" for name in names]


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


@pytest.mark.parametrize("path", compiled_modules(), ids=lambda path: path.stem)
def test_each_exception_of_a_function_has_a_name_of_its_own(path: Path) -> None:
    assert list(shared_exception_names(path.read_text())) == []


def test_shared_exception_names_are_found() -> None:
    source = "def f():\n  try: g()\n  except A as error: h(error)\n  except B as {}: h({})"
    assert list(shared_exception_names(source.format("error", "error"))) == ["f: error"]
    assert list(shared_exception_names(source.format("other", "other"))) == []
