"""A sink that reads every row of a DataFrame as Arrow and drops it: the minimum cost of any sink written in Python."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

NULL_FORMAT = "null-arrow"


class _Nothing:
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int | None = None) -> None:  # noqa: N803 (Spark's name)
        """Do nothing."""

    def abort(self, messages: Any, batchId: int | None = None) -> None:  # noqa: N803
        """Do nothing."""


class _BatchWriter(_Nothing, DataSourceArrowWriter):
    pass


class _StreamWriter(_Nothing, DataSourceStreamArrowWriter):
    pass


class NullSource(DataSource):
    """A data source with the writers that do nothing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NULL_FORMAT

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """Return the batch writer."""
        return _BatchWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the streaming writer."""
        return _StreamWriter()
