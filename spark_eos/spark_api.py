"""The parts of PySpark's data source API that not every supported version has.

What is missing is found by looking, not by comparing versions: platforms backport features. A missing class is replaced
by an empty one, of which Spark never makes an instance, so that the modules that name it can be imported.

| class | since PySpark |
|---|---|
| all of `pyspark.sql.datasource` | 4.0 |
| `Filter` and its subclasses, `DataSourceStreamArrowWriter` | 4.1 |
| `ReadLimit` and its subclasses, `SupportsTriggerAvailableNow` | 4.2 |
"""

# ruff: noqa: F403, F405 (mypy looks for the names where they are imported)
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "DataSourceStreamWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "InputPartition",
    "LessThan",
    "LessThanOrEqual",
    "Not",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StringContains",
    "StringEndsWith",
    "StringStartsWith",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
]

if TYPE_CHECKING:
    from pyspark.sql.datasource import *
    from pyspark.sql.streaming.datasource import *
else:

    def _classes(module_name: str) -> dict[str, Any]:
        try:
            return vars(import_module(module_name))
        except ImportError:
            return {}

    def _missing(name: str, *bases: type) -> type:
        return type(name, bases, {"__doc__": f"The stand-in of PySpark's {name}.", "__module__": __name__})

    _found = _classes("pyspark.sql.datasource") | _classes("pyspark.sql.streaming.datasource")
    for _name in __all__:
        globals()[_name] = _found.get(_name) or _missing(_name)

    if "DataSourceStreamArrowWriter" not in _found:
        # PySpark 4.0 passes Arrow batches to a streaming writer that is an Arrow batch writer as well.
        DataSourceStreamArrowWriter = _missing(
            "DataSourceStreamArrowWriter", DataSourceStreamWriter, DataSourceArrowWriter
        )
    if "ReadMaxRows" not in _found:
        # Spark does not pass limits: the reader makes its own.

        class ReadAllAvailable(ReadLimit):
            """The limit that takes all that is there."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """The limit that takes a number of rows at most."""

            max_rows: int

        @dataclass
        class ReadMinRows(ReadLimit):
            """The limit that waits for a number of rows."""

            min_rows: int
            max_trigger_delay_ms: int = 0
