"""The order of test files in several processes: files that keep a core busy start among files that mostly wait.

In the order of the folders, all processes wait for brokers and clocks at the same time, and later all compete for the
processors. The longest files start first: at the end, all processes would wait for one of them.

Files with the fixture `spark` run in two processes, before all others: each process with one of them starts a JVM.

`--shuffle-files SEED` shuffles the files instead: it finds tests that need, or suffer from, one that ran before them.
"""

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
# Files of more than a minute, the longest first, by `make slow` and by `make conformance` with `-p tests.support.slow`.
LONGEST = (
    "spark/test_source_beside_sparks.py",
    "interop/test_bounces.py",
    "interop/test_fencing.py",
    "crash/test_cluster.py",
    "interop/test_expiry.py",
    "interop/test_copies.py",
    "interop/test_visibility.py",
    "interop/test_epochs.py",
    "interop/test_transactions.py",
)
# Beside the files with Spark, whose JVMs compute all the time.
BUSY = frozenset({"simulation"})
# How many processes run the files that import the fixture `spark`, and where these are.
SESSIONS = 2
_WITH_SESSION = ("crash", "spark")
_IMPORT = re.compile(r"^from tests\.\S+ import (\([^)]*|.*)\bspark\b", re.MULTILINE)
_SHARED = "session of Spark "
# Short files, which keep every process busy to the end.
LAST = frozenset({"architecture", "unit"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that shuffles the files."""
    parser.addoption("--shuffle-files", type=int, metavar="SEED", help="start the test files in the order of this seed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files that several processes share."""
    seed = config.getoption("--shuffle-files")
    if seed is not None:
        items[:] = shuffled(items, seed)
    elif hasattr(config, "workerinput"):
        items[:] = spread(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the files that share a session together, unless the files are shuffled."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    if config.getoption("dist") != "loadfile" or config.getoption("--shuffle-files") is not None:
        return None
    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = lambda test: unit_of(test.partition("::")[0])
    return scheduling


def unit_of(file: str) -> str:
    """Return the unit of work of a file, by its path below the root: its own path, or the name of a session."""
    number = _sessions().get(file)
    return file if number is None else f"{_SHARED}{number}"


@cache
def _sessions() -> Mapping[str, int]:
    files = (path for folder in _WITH_SESSION for path in sorted((TESTS / folder).glob("test_*.py")))
    found = [path for path in files if _IMPORT.search(path.read_text(encoding="utf-8"))]
    return {path.relative_to(TESTS.parent).as_posix(): number % SESSIONS for number, path in enumerate(found)}


def shuffled(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests file by file, in the order of this seed."""
    paths = sorted({item.path for item in items})
    random.Random(seed).shuffle(paths)
    places = {path: number for number, path in enumerate(paths)}
    return sorted(items, key=lambda item: places[item.path])


def spread(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests file by file: those with Spark, the longest, busy and waiting ones mixed, and the short ones."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    units = {path: unit_of(path.relative_to(TESTS.parent).as_posix()) for path in files if path.is_relative_to(TESTS)}
    shared = sorted((path for path, unit in units.items() if unit.startswith(_SHARED)), key=units.__getitem__)
    longest = [path for name in LONGEST if (path := TESTS / name) in files and path not in shared]
    busy, waiting, last = list[Path](), list[Path](), list[Path]()
    for path, tests in files.items():
        if path in longest or path in shared:
            continue
        suite = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
        if suite in LAST:
            last.append(path)
        elif suite in BUSY or any(test.get_closest_marker("spark") for test in tests):
            busy.append(path)
        else:
            waiting.append(path)
    places = {path: (number + 0.5) / len(group) for group in (busy, waiting) for number, path in enumerate(group)}
    mixed = sorted(places, key=places.__getitem__)
    return [test for path in (*shared, *longest, *mixed, *last) for test in files[path]]
