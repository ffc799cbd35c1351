"""The streaming reader without Spark, driven as Spark does: plan, serialize for a task, read, continue from the end."""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from pyspark import cloudpickle

from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader


def offsets_in(form: dict[str, Any]) -> dict[str, Any]:
    """Return the offsets of a checkpoint's entry without the source's notes, which are entries without partitions."""
    return {topic: partitions for topic, partitions in form.items() if partitions}


Row = tuple[str, int, int, str | None]


class Query:
    """One run of a streaming query; `position` is the offset in its checkpoint, None for a new query."""

    def __init__(self, address: str, position: Any = None, **options: str) -> None:
        self.address, self.options = address, options
        self.reader = StreamReader({"kafka.bootstrap.servers": address} | options, source_schema(False))
        self.limit = self.reader.getDefaultReadLimit()
        self.position = self.reader.initialOffset() if position is None else position

    def end(self) -> Any:
        """Return the end offset of the next micro-batch, serialized as JSON like a checkpoint."""
        return json.loads(json.dumps(self.reader.latestOffset(self.position, self.limit)))

    def trigger(self) -> list[Row]:
        """Run a micro-batch and return its rows by topic, partition and offset; none if there is nothing to read."""
        end = self.end()
        return [] if end == self.position else self.run_to(end)

    def run_to(self, end: Any) -> list[Row]:
        """Plan up to `end`, and read with only what is serialized for a task."""
        found = self.read(self.reader.partitions(self.position, end))
        self.position = end
        return found

    def read(self, pieces: Any) -> list[Row]:
        """Read the planned partitions, and return their rows by topic, partition and offset."""
        task = pickle.loads(cloudpickle.dumps(self.reader))
        found: list[Row] = []
        for piece in pickle.loads(cloudpickle.dumps(pieces)):
            for columns in task.read(piece):
                texts = [None if value is None else value.decode() for value in columns.column("value").to_pylist()]
                found += zip(
                    *(columns.column(name).to_pylist() for name in ("topic", "partition", "offset")), texts, strict=True
                )
        return sorted(found, key=lambda row: row[:3])

    def texts(self) -> list[str | None]:
        """Run a micro-batch and return the values."""
        return [row[3] for row in self.trigger()]

    def restarted(self, **options: str) -> Self:
        """Stop, and return another run from the checkpoint."""
        self.reader.stop()
        return type(self)(self.address, self.position, **self.options | options)


@contextmanager
def running(address: str, **options: str) -> Iterator[Query]:
    """Run a query and stop it at the end of the block."""
    query = Query(address, **options)
    try:
        yield query
    finally:
        query.reader.stop()
