"""The order of test files in several processes: files that keep a core busy start among files that mostly wait.

In the order of the folders, all processes wait for brokers and clocks at the same time, and later all compete for the
processors.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Beside the files with Spark, whose JVMs compute all the time.
BUSY = frozenset({"simulation"})
# Short files, which keep every process busy to the end.
LAST = frozenset({"architecture", "unit"})


def spread(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests file by file: busy and waiting files evenly mixed, each in their order, and the short ones."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    busy, waiting, last = list[Path](), list[Path](), list[Path]()
    for path, tests in files.items():
        suite = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
        if suite in LAST:
            last.append(path)
        elif suite in BUSY or any(test.get_closest_marker("spark") for test in tests):
            busy.append(path)
        else:
            waiting.append(path)
    places = {path: (number + 0.5) / len(group) for group in (busy, waiting) for number, path in enumerate(group)}
    return [test for path in (*sorted(places, key=places.__getitem__), *last) for test in files[path]]
