"""Fetching the sources of suites from registries, each version once, by the registries' own clients."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import CACHE, FETCH_DEADLINE_S, Unavailable

# A toolchain that a suite pins would be fetched from elsewhere; the installed one builds it.
RUST = {"RUSTUP_TOOLCHAIN": "stable"}
GO = {"GOFLAGS": "-mod=mod"}


def go_module(module: str, version: str) -> Path:
    """Return a folder with a copy of the module, which is fetched through Go's module proxy."""

    def fetch(folder: Path, target: Path) -> None:
        answer = run(["go", "mod", "download", "-json", f"{module}@{version}"], folder, GO)
        shutil.copytree(json.loads(answer)["Dir"], target)
        for path in (target, *target.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)

    require("go", "Go")
    return _once(f"{module.rpartition('/')[2]}-{version}", fetch)


def go_program(package: str, version: str) -> Path:
    """Return a program that Go installs."""

    def fetch(folder: Path, target: Path) -> None:
        run(["go", "install", f"{package}@{version}"], folder, {**GO, "GOBIN": str(target)})

    require("go", "Go")
    folder = _once(f"{package.replace('/', '-')}-{version}", fetch)
    (program,) = folder.iterdir()
    return program


def crate(name: str, version: str, updated: Sequence[str] = ()) -> Path:
    """Return a folder with a copy of the crate, which Cargo fetches.

    The crates named in `updated` are newer than its lock file says: those that it pins do not build any more.
    """

    def fetch(folder: Path, target: Path) -> None:
        (folder / "src").mkdir()
        (folder / "src" / "lib.rs").touch()
        (folder / "Cargo.toml").write_text(
            '[package]\nname = "fetching"\nversion = "0.0.0"\nedition = "2021"\n\n'
            f'[dependencies]\n{name} = "={version}"\n'
        )
        metadata: dict[str, Any] = json.loads(run(["cargo", "metadata", "--format-version", "1"], folder, RUST))
        (manifest,) = [each["manifest_path"] for each in metadata["packages"] if each["name"] == name]
        shutil.copytree(Path(manifest).parent, target)
        for each in updated:
            run(["cargo", "update", "--package", each], target, RUST)

    require("cargo", "Rust")
    return _once(f"{name}-{version}", fetch)


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Return the output of a command that fetches or builds; raise Unavailable with its last words if it fails."""
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=FETCH_DEADLINE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{' '.join(command[:3])} did not end within {FETCH_DEADLINE_S} s; check the network."
        ) from None
    if answer.returncode:
        reason = (answer.stderr.strip() or answer.stdout.strip() or "no reason given").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:3])} failed: {reason}")
    return answer.stdout


def require(program: str, name: str) -> None:
    """Raise Unavailable if a program is not on the PATH."""
    if shutil.which(program) is None:
        raise Unavailable(f"{name} is missing: no {program} on the PATH; install {name}.")


def _once(name: str, fetch: Callable[[Path, Path], None]) -> Path:
    """Return the cached folder of that name, which `fetch` fills first if it is not there."""
    target = CACHE / "foreign" / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        fetched = Path(folder) / "fetched"
        fetch(work, fetched)
        try:
            # One rename makes the whole copy visible at once, so that a fetch that is killed leaves no partial copy.
            os.rename(fetched, target)
        except OSError:
            if not target.is_dir():
                raise
    return target
