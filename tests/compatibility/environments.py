"""An environment for each version of PySpark: made once, kept in `.cache`, and made again when requirements change."""

import subprocess
import sys
import venv
from pathlib import Path

from tests.support.requirements import requirements_digest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "compatibility"
INSTALL_DEADLINE_S = 1_800
# Beside what PySpark's extra for Spark Connect names; 3.5 lacks zstandard, and 4.3 needs it.
EXTRA = ("pandas<3", "zstandard")


def python_with(pyspark: str) -> Path:
    """Return the interpreter of an environment with the newest patch of a minor version of PySpark, such as "4.1"."""
    folder = CACHE / f"pyspark-{pyspark}"
    python, made_from = folder / "bin" / "python", folder / "made-from"
    wanted = requirements_digest(*EXTRA)
    if made_from.exists() and made_from.read_text() == wanted:
        return python
    print(f"installing PySpark {pyspark} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run(
        [
            python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
            f"{ROOT}[arrow]", f"pyspark[connect]=={pyspark}.*", *EXTRA,
        ],
        check=True,
        timeout=INSTALL_DEADLINE_S,
    )  # fmt: skip
    made_from.write_text(wanted)
    return python


def pyspark_version(python: Path) -> str:
    """Return the version of PySpark that an interpreter imports, with its patch."""
    command = [python, "-c", "from importlib.metadata import version; print(version('pyspark'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
