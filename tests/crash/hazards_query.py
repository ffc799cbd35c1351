"""The queries of the hazard tests in the test's own Spark session, paused at points, and the check of their output."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.crash.case import Case
from tests.crash.world import PARTITIONS, World
from tests.support.spark_eos.holds import Hold, Holds
from tests.support.spark_eos.sink_topic import open_transactions

END_DEADLINE_S = 200
TASKS = 2


@dataclass(frozen=True)
class Address:
    """A stand-in for a broker that is never killed, or for a proxy that loses nothing."""

    address: str


@dataclass
class Hazard(Holds):
    """What a hazard test works with; `address` is that of the queries, `broker` that of the judge."""

    spark: SparkSession
    address: str
    broker: str

    def case(self, micro_batches: int = 2, **options: str) -> Case:
        """Make a query with its own input, checkpoint and topic; an option's name is written with `_` for `.`."""
        return World(Address(self.broker), Address(self.address), self.folder).new_case(micro_batches, **options)

    def start(self, case: Case, tasks: int = TASKS, where: str = "true", **options: str) -> StreamingQuery:
        """Start to copy one file in each micro-batch; a line is always in the same task of it."""
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(case.input)).where(where)
        rows = lines.selectExpr("substring_index(value, ' ', 1) AS key", "value").repartition(tasks, "key")
        return self.write(rows, case, **options)

    def write(self, rows: DataFrame, case: Case, **options: str) -> StreamingQuery:
        """Start a streaming write."""
        writer = rows.writeStream.format("eos-kafka").option("checkpointLocation", str(case.checkpoint))
        return writer.options(**case.options | options).trigger(availableNow=True).start()

    def run(self, case: Case, tasks: int = TASKS, where: str = "true", **options: str) -> StreamingQuery:
        """Run a query to its end."""
        return end(self.start(case, tasks, where, **options))

    def run_to_failure(self, case: Case, match: str, tasks: int = TASKS, **options: str) -> str:
        """Run a query that must stop with an error of this text, and return the whole text."""
        with pytest.raises(StreamingQueryException, match=match) as caught:
            self.run(case, tasks, **options)
        return str(caught.value)

    def judge(self, *cases: Case) -> None:
        """Compare the topics with the expected rows: none lost, none twice, no open transaction, all stable."""
        world = World(Address(self.broker), Address(self.address), self.folder)
        wrong = world.judge(cases)
        assert not wrong, wrong

    def open(self, case: Case) -> list[str]:
        """List the open transactions of a case."""
        return open_transactions(self.broker, f"{case.prefix}.")

    def task_ids(self, case: Case) -> list[str]:
        """List every transactional id that tasks of a case have used, in any state."""
        return list(self.task_states(case))

    def task_states(self, case: Case) -> dict[str, str]:
        """Return the state of every transactional id that tasks of a case have used."""
        name = re.compile(rf"{case.prefix}\..+\.\d+")
        with KafkaClient(ClientOptions((self.broker,))) as client:
            listed = list_transactions(client)
        return {each.transactional_id: each.state for each in listed if name.fullmatch(each.transactional_id)}


def end(query: StreamingQuery) -> StreamingQuery:
    """Wait until a query has ended without an error."""
    assert query.awaitTermination(END_DEADLINE_S), "the query did not end"
    return query


@contextmanager
def spark_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the running executor, which reads it again for every task."""
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    before = conf.get(name, "")
    conf.set(name, value)
    try:
        yield
    finally:
        conf.set(name, before) if before else conf.remove(name)


__all__ = ["PARTITIONS", "Address", "Hazard", "Hold", "end", "spark_setting"]
