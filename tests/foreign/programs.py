"""Test runners in processes of their own: Go's, Cargo's and pytest."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.foreign.fetching import GO, RUST, run
from tests.foreign.outcomes import Outcomes, from_cargo, from_go, from_junit

ROOT = Path(__file__).parents[2]
DEADLINE_S = 3600


def go_tests(
    folder: Path,
    module: str,
    packages: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    only: str | None = None,
    skip: str | None = None,
    tags: str = "",
) -> Outcomes:
    """Run `go test` on packages of a module; `only` and `skip` are patterns of names."""
    command = ["go", "test", "-json", "-count=1", "-p=1", f"-timeout={DEADLINE_S}s", f"-tags={tags}"]
    command += [f"-run={only}"] if only else []
    command += [f"-skip={skip}"] if skip else []
    return from_go(_output([*command, *packages], folder, {**GO, **environment}, log), module)


def go_packages(folder: Path, *, without: str = "") -> list[str]:
    """Return the packages of a module, without those whose path matches a pattern."""
    found = run(["go", "list", "./..."], folder, GO).split()
    return [each for each in found if not (without and re.search(without, each))]


def cargo_tests(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path, only: str | None = None
) -> Outcomes:
    """Run `cargo test`; `only` is a part of a name."""
    command = ["cargo", "test", "--no-fail-fast", *arguments, *([only] if only else []), "--", "--test-threads=2"]
    return from_cargo(_output(command, folder, {**RUST, **environment}, log))


def pytest_tests(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path, only: str | None = None
) -> Outcomes:
    """Run pytest; `only` is an expression of `-k`."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *arguments]
        _output([*command, *(["-k", only] if only else [])], folder, environment, log)
        return from_junit(report.read_text(encoding="utf-8")) if report.exists() else {}


def _output(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> str:
    """Return the output of a test runner, which is also in the file `log`, whatever its exit status is."""
    with log.open("wb") as output:
        subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            check=False,
        )
    return log.read_text(encoding="utf-8", errors="replace")
