"""A home for Spark without the zipped copy of PySpark, and with an archive of its classes.

Spark puts that copy before everything else on its workers' path, and every process that imports modules from a zip
compiles them again: about a second for each of the dozens of workers of a test run. Without the copy, workers import
the same PySpark from where pip has installed it.

The archive, which `tests.support.spark_archive` makes, is of use only where the home has the same path in each run.
"""

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from tests.support.class_archive import CACHE, archive_of, using


@cache
def lean_spark_home() -> str:
    """Link all of Spark except its `python` folder into a folder that later runs find again."""
    installed = Path(pyspark.__file__).parent
    digest = hashlib.sha256(f"{pyspark.__version__} {installed}".encode()).hexdigest()[:8]
    home = CACHE / f"spark-home-{digest}"
    if not home.exists():
        CACHE.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=CACHE, prefix=f"{home.name}-"))
        for entry in installed.iterdir():
            if entry.name != "python":
                (fresh / entry.name).symlink_to(entry)
        try:
            fresh.rename(home)
        except OSError:
            # Another process was faster.
            for link in fresh.iterdir():
                link.unlink()
            fresh.rmdir()
    return str(home)


def jars() -> Path:
    """Return the folder of Spark's jars."""
    return Path(os.environ.get("SPARK_HOME") or lean_spark_home()) / "jars"


def archive() -> Path | None:
    """Return where the archive of this Java and this PySpark is or will be, or None without Java."""
    return archive_of(jars(), Path(lean_spark_home()))


def archive_options() -> str:
    """Return the options with which a JVM uses the archive, if it exists."""
    return " ".join(using(archive()))
