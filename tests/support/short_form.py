"""The short form of what searches: a part of the cases, chosen by a digest of the sources.

`SEARCHES=short` asks for it, which `make check` and `make test` set. The same source always gives the same part, so
that a failure can be repeated; each change gives another one, so that all parts are run as the source changes. Without
it every case is run.
"""

import hashlib
import os
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

_ROOT = Path(__file__).parents[2]
_left_out: list[str] = []


@cache
def source_digest(*packages: str) -> int:
    """Return a number that changes with every source of the packages, `broker_core` for example."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[:4])


def chosen(
    cases: Sequence[T],
    what: str,
    *,
    of: int,
    long_form: str = "make test SEARCHES=whole",
    digest: int | None = None,
    notes: list[str] = _left_out,
) -> list[T]:
    """Return one of `of` parts in a run with the short form, every case in another; `long_form` is the command."""
    if os.environ.get("SEARCHES") != "short":
        return list(cases)
    first = (source_digest("broker_core", "spark_eos") if digest is None else digest) % of
    kept = list(cases[first::of])
    notes.append(f"{what}: {len(kept)} of {len(cases)}, chosen by the sources; `{long_form}` runs all")
    return kept


def note(sentence: str) -> None:
    """Let the run print what its short form leaves out."""
    _left_out.append(sentence)


def is_in(item: pytest.Item, *folders: Path) -> bool:
    """Return whether a test is in one of the folders. `Path.parents` takes a second for all tests, in each process."""
    return str(item.path).startswith(tuple(f"{folder}{os.sep}" for folder in folders))


def leave_out(config: pytest.Config, items: list[pytest.Item], left: Collection[pytest.Item]) -> None:
    """Take tests out of those that were collected; pytest counts them as deselected."""
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=list(left))


def left_out() -> list[str]:
    """Return what the run leaves out, one sentence for each search."""
    return list(_left_out)
