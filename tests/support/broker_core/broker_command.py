"""The command `python -m broker_core`: in a process of its own, or in this one where it cannot start."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.__main__ import main

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60
# Runs a program once for each missing library, and prints what the program says on standard error or raises.
_WITHOUT = """
import contextlib, io, json, sys
said = {}
for library in sys.argv[2:]:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("broker_core", library)]:
        del sys.modules[name]
    sys.modules[library] = None
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            exec(sys.argv[1])
        except Exception as error:
            errors.write(f"{type(error).__name__}: {error}")
    said[library] = errors.getvalue()
    del sys.modules[library]
print(json.dumps(said))
"""


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


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command in this process, where it cannot start; return the one line that says why."""
    assert main(arguments) == 1
    [said, *address] = capsys.readouterr().err.splitlines()
    assert all(line.startswith("See docs/reference/errors.md#") for line in address)
    assert len(address) <= 1
    return said


def said_without(program: str, *libraries: str) -> dict[str, str]:
    """Run a program without each of these libraries in turn, in one new process; return what it says each time."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, program, *libraries],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said
