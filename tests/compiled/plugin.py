"""A pytest plugin for the compiled copy (`-p tests.compiled.plugin`): checks that it is in use.

Compiled code calls its own functions directly, has no attributes that can be replaced, and no subclasses that are not
compiled. A test that needs one of these is skipped; it runs on the sources.
"""

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_SUFFIXES = (".so", ".pyd")
_TESTS = Path(__file__).parents[1]


def _is_compiled(target: object) -> bool:
    """Return whether the target of a `setattr`, an object or the path of one, belongs to a compiled module."""
    if isinstance(target, str):
        names = {target.rpartition(".")[0], target.rpartition(".")[0].rpartition(".")[0]}
    elif isinstance(target, ModuleType):
        names = {target.__name__}
    else:
        names = {(target if isinstance(target, type) else type(target)).__module__}
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in names]
    return any(file.endswith(_SUFFIXES) for file in files)


def pytest_sessionstart() -> None:
    """Fail if the sources would be tested once more."""
    from broker_core.log import partition_log

    if not partition_log.__file__.endswith(_SUFFIXES):
        pytest.exit(f"{partition_log.__file__} is not compiled: run make compiled", returncode=2)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Skip a test that derives a class of its own from a compiled one."""
    try:
        return (yield)
    except TypeError as error:
        (*_, place) = traceback.extract_tb(error.__traceback__)
        if "cannot inherit from compiled" in str(error) and Path(place.filename).is_relative_to(_TESTS):
            pytest.skip("derives a class from a compiled one")
        raise


@pytest.fixture(autouse=True)
def skip_replacements_in_compiled_code() -> Iterator[None]:
    """Skip a test when it replaces something in a compiled module."""
    replace = pytest.MonkeyPatch.setattr

    def checked(patch: pytest.MonkeyPatch, target: Any, *arguments: Any, **options: Any) -> None:
        if _is_compiled(target):
            pytest.skip("replaces a part of a compiled module")
        replace(patch, target, *arguments, **options)

    with pytest.MonkeyPatch.context() as own:
        own.setattr(pytest.MonkeyPatch, "setattr", checked)
        yield
