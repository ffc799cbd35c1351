"""The command `python -m broker_core` in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60


@contextmanager
def running(
    *arguments: str, pattern: str = r"listening on ([\d.:,]+)"
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "broker_core", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(pattern, line)
            assert found, line
            yield process, found[1]
        finally:
            process.kill()
