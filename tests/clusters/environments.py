"""The Python environments of the nodes: one with this package, one without it, and one with another version.

None of them has PySpark: a cluster has its own. The first is kept in `.cache` and its dependencies are installed again
when the requirements in setup.cfg change; the package itself is installed for every run, from a wheel.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.requirements import requirements_digest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "clusters"
DEADLINE_S = 1_800
OTHER_VERSION = "0.0.1"
# What Spark's server needs to run the functions of `foreachBatch`; the other jobs do without them.
FOR_FOREACH_BATCH = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard", "pandas>=2.2,<3")
# PySpark needs them for every Python data source.
FOR_ARROW = ("pyarrow", "numpy", "pandas", "dateutil", "pytz", "six", "tzdata")


def wheel(folder: Path) -> Path:
    """Build the package's wheel, and return its path."""
    _pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [built] = folder.glob("*.whl")
    return built


def with_package(built: Path) -> Path:
    """Return the folder of an environment with the package and its dependencies."""
    folder = CACHE / "nodes"
    made_now = _make(folder, f"{built}[arrow]", "venv-pack", *FOR_FOREACH_BATCH)
    if not made_now:
        _pip(folder / "bin" / "python", "install", "--no-deps", "--force-reinstall", str(built))
    return folder


def connect_client(spark_home: Path) -> Path:
    """Return an environment with the newest Connect client that is not newer than a server, without this package."""
    found = re.search(r"__version__: str = .(\d+)\.(\d+)", (spark_home / "version.py").read_text())
    assert found is not None
    major, minor = map(int, found.groups())
    folder = CACHE / f"connect-client-{major}.{minor}"
    _make(folder, f"pyspark-client<{major}.{minor + 1}")
    return folder


def without_package(folder: Path, like: Path, *, dependencies: bool) -> Path:
    """Make an environment like another one without this package, with all of its dependencies or those of PySpark."""
    venv.create(folder, with_pip=False)
    [packages], [of_other] = (each.glob("lib/python*/site-packages") for each in (folder, like))
    for entry in of_other.iterdir():
        is_own = entry.name.startswith(("spark_eos", "broker_core", "pyspark_eos_kafka", "eos_kafka"))
        if not is_own and (dependencies or entry.name.startswith(FOR_ARROW)):
            (packages / entry.name).symlink_to(entry)
    return folder


def with_other_version(folder: Path, like: Path) -> Path:
    """Make an environment like another one, in which this package has another version.

    Its interpreter is the other's, and finds a changed copy of the package first.
    """
    copy = folder / "packages"
    for name in ("spark_eos", "broker_core"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyspark_eos_kafka.py", copy)
    names = copy / "broker_core" / "__init__.py"
    lines = [
        f'__version__ = "{OTHER_VERSION}"' if line.startswith("__version__ =") else line
        for line in names.read_text().splitlines()
    ]
    names.write_text("\n".join(lines) + "\n")
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{copy}:$PYTHONPATH" exec "{like}/bin/python" "$@"\n')
    program.chmod(0o755)
    return folder


def pack(folder: Path, archive: Path) -> Path:
    """Pack an environment with venv-pack, as the documentation says."""
    command = [folder / "bin" / "venv-pack", "-q", "-f", "-p", folder, "-o", archive]
    subprocess.run(command, check=True, timeout=DEADLINE_S)
    return archive


def _make(folder: Path, *packages: str) -> bool:
    made_from = folder / "made-from"
    # The path of a wheel differs in each run.
    wanted = requirements_digest(*(each for each in packages if os.sep not in each))
    if made_from.exists() and made_from.read_text() == wanted:
        return False
    print(f"making {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    _pip(folder / "bin" / "python", "install", *packages)
    made_from.write_text(wanted)
    return True


def _pip(python: Path, command: str, *arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    # Nothing is installed outside of an environment, even if an earlier run has left one incomplete.
    only_there = {"PIP_REQUIRE_VIRTUALENV": "1"} if command == "install" else {}
    subprocess.run(
        [python, "-m", "pip", command, *quiet, *arguments],
        env=os.environ | only_there,
        check=True,
        timeout=DEADLINE_S,
    )
