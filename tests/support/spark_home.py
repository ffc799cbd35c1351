"""A home for Spark without the zipped copy of PySpark.

Spark puts that copy before everything else on its workers' path, and every process that imports modules from a zip
compiles them again: about a second for each of the dozens of workers of a test run. Without the copy, workers import
the same PySpark from where pip has installed it.
"""

import tempfile
from functools import cache
from pathlib import Path

import pyspark


@cache
def lean_spark_home() -> str:
    """Link all of Spark except its `python` folder into a folder that exists as long as this process."""
    folder = Path(_folder().name)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry)
    return str(folder)


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="spark-home-")
