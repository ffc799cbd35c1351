"""A copy of the project in .cache/compiled whose hot path is compiled, as a build with `EOS_KAFKA_COMPILED=1` does it.

Python would prefer extension modules to the sources beside them, whatever the sources say by then. So they are never
built in the project's own folder.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPY = ROOT / ".cache" / "compiled"
_COPIED = (
    *("setup.py", "setup.cfg", "pyproject.toml", "Makefile", "README.md", "pyspark_eos_kafka.py"),
    *("broker_core", "spark_eos", "tests", "examples", "docs", "conf"),
)
_BUILT = (".so", ".pyd")
_CACHED = "__pycache__"


def problem() -> str | None:
    """Return why the copy cannot be compiled on this machine, or None."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "there is no C compiler"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"{header} is missing; the package python3-dev, or the like, has it"


def update() -> Path:
    """Copy what has changed, compile if a source of the package or a version has, and return the folder of the copy."""
    changed = [name for name in _COPIED if _copy(Path(name))]
    versions = f"{sys.version}\n"
    stamp = COPY / "build" / "versions"
    if not stamp.exists() or stamp.read_text() != versions or {"broker_core", "setup.py"} & set(changed):
        for suffix in _BUILT:
            for built in COPY.rglob(f"*{suffix}"):
                built.unlink()
        shutil.rmtree(COPY / "build", ignore_errors=True)
        _compile()
        stamp.write_text(versions)
    # The jars of Apache Kafka, and what else was fetched.
    cache = COPY / ".cache"
    if not cache.is_symlink():
        cache.symlink_to(ROOT / ".cache", target_is_directory=True)
    return COPY


def _compile() -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=COPY,
        env=dict(os.environ) | {"EOS_KAFKA_COMPILED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"The compiled build failed:\n{done.stdout[-5000:]}")


def _copy(name: Path) -> bool:
    """Copy a file or folder of the project, if it differs; return whether it did."""
    source, target = ROOT / name, COPY / name
    if source.is_file():
        content = source.read_bytes()
        if target.exists() and target.read_bytes() == content:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        shutil.copymode(source, target)
        return True
    target.mkdir(parents=True, exist_ok=True)
    own = {path.name for path in source.iterdir() if path.name != _CACHED}
    stale = [path for path in target.iterdir() if path.name not in own | {_CACHED} and path.suffix not in _BUILT]
    for path in stale:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    # All of them are copied: `any` would end with the first that differs.
    changed = [_copy(name / each) for each in sorted(own)]
    return any(changed) or bool(stale)
