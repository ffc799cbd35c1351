"""A Python process of the sink without Spark: its tasks write one row each, and its driver commits them."""

from typing import Any

import pyarrow as pa

from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState, Runtime
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, Prepared, TaskMessage
from tests.support.spark_eos.client_world import read_values


class SinkProcess:
    """One process of a query: it has made the decision topic, and keeps clients and ids from task to task."""

    def __init__(self, address: str, topic: str, query: str = "q", runtime: Runtime = REAL, **options: str) -> None:
        self.address, self.topic, self.query = address, topic, query
        self.process = ProcessState(runtime)
        self.options: SinkOptions = sink_options({"kafka.bootstrap.servers": address, "topic": topic, **options})
        self.plan()

    def plan(self) -> SinkOptions:
        """Check the cluster as before a micro-batch, and return the options for its tasks."""
        return preflight(self.process, self.options)

    def task(self, run: str, split: int, micro_batch: int = 0, row: str = "", **more: Any) -> TaskMessage:
        """Write a row, by default its task's number, to the partition of that number; a re-run may write none."""
        options, partition = more.pop("options", self.options), more.pop("partition", split)
        rows = pa.record_batch({"value": [row or f"row {split}"], "partition": pa.array([partition], pa.int32())})
        place = Place(self.query, run, micro_batch, split)
        return task_writer(self.process, options, place, may_be_decided=True, **more).write(iter([rows]))

    def write(self, run: str = "run1", split: int = 0, micro_batch: int = 0, **more: Any) -> Prepared:
        """Write a row of a task that finds no decision."""
        message = self.task(run, split, micro_batch, **more)
        assert isinstance(message, Prepared)
        return message

    def committer(self, run: str = "run1", **more: Any) -> Committer:
        return committer(self.process, self.options, self.query, run, **more)

    def visible(self) -> list[list[str]]:
        return read_values(self.address, self.topic)
