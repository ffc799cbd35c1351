"""A quiet Spark session, the beginning of a data source, and notes that its processes leave for the script."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

NOTES = os.path.join(os.getcwd(), "notes")


class Source(DataSource):
    """A data source of one column by the name `source`, to which a script adds readers and writers."""

    @classmethod
    def name(cls) -> str:
        return "source"

    def schema(self) -> str:
        return "n int"


def session(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session that says nothing of its own."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def note(text: object) -> None:
    """Add a line to the notes, from any process."""
    with open(NOTES, "a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")


def notes() -> list[str]:
    """Return the lines so far."""
    if not os.path.exists(NOTES):
        return []
    with open(NOTES, encoding="utf-8") as lines:
        return lines.read().splitlines()


def take_notes() -> list[str]:
    """Return the lines so far, and forget them."""
    lines = notes()
    if lines:
        os.remove(NOTES)
    return lines
