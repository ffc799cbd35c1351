"""The entry point for Spark, which imports every top-level module named `pyspark_*` to find data sources.

An import that fails here would end Spark's search, and its session would find no Python data source at all. So what
this package needs and does not find is reported when the format is used.
"""

import sys
from typing import Any, NoReturn

__all__ = ["DefaultSource"]

try:
    from spark_eos.datasource import EosKafkaDataSource as DefaultSource
except Exception as problem:
    # Not only ImportError: a library of another version can fail in any way.
    from pyspark.sql.datasource import DataSource

    _REASON = f"{type(problem).__name__}: {problem}"

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """The format's place holder: whatever uses it gets the error of the import."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "eos-kafka"

        def _refuse(self, *_: Any) -> NoReturn:
            raise ImportError(
                f"The data source eos-kafka cannot be imported: {_REASON}. Checked: Python "
                f"{sys.version.split()[0]} at {sys.executable}. Remedy: install eos-kafka with its dependencies in the "
                "Python environment of the driver and of all executors (pip install eos-kafka)"
            )

        schema = reader = streamReader = writer = streamWriter = _refuse  # noqa: N815 (Spark's names)
