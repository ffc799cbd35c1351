"""A pytest plugin for the compiled copy (`-p tests.support.compiled_run`): checks that it is in use.

Compiled code calls its own functions directly and has no attributes that can be replaced, so a test that replaces a
part of it is skipped. The same test runs on the sources.
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

_SUFFIXES = (".so", ".pyd")


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
        pytest.exit(f"{partition_log.__file__} is not compiled: run python -m tests.support.compiled", returncode=2)


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
