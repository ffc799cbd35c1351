"""The sdist and the wheel of this checkout, and the interpreters of this machine that they are for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 600


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that succeeds, and return its output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=DEADLINE_S,
        env=dict(os.environ) | variables,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def files_of_the_repository() -> list[str]:
    """Return the names of the files that a clone has; skip the test in anything but a clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone of the repository, for the names of its files")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def copy_repository(tree: Path) -> Path:
    """Copy the repository's files, without those of an earlier build."""
    for name in files_of_the_repository():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    return tree


def build(tree: Path, out: Path, **variables: str) -> list[Path]:
    """Build the sdist, and the wheel from it. Without isolation, the build needs no network."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree, cwd=out, **variables)
    return sorted(out.iterdir())


def interpreter(version: str) -> Path | None:
    """Return an interpreter of a version such as 3.12, from the PATH or from pyenv; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    candidates = [Path(on_path)] if on_path else []
    for each in [*candidates, *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]:
        # pyenv's own command on the PATH fails if another version is chosen.
        done = subprocess.run([each, "-c", "import ensurepip, venv"], capture_output=True, timeout=DEADLINE_S)
        if done.returncode == 0:
            return each
    return None
