"""A query waits behind a hanging transaction, and reads on when `eos-kafka transactions` has aborted it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_eos.admin.output import ExitCode
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, make_topic, send, unique
from tests.support.hanging import HANGING_SETTINGS, hang
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.spark_eos.brokers import running_broker
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.transactions_command import ours, run_printed

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark

OLD_MS = 20 * 60_000


@pytest.fixture(scope="module")
def late_kafka(broker_kind: str) -> Iterator[Kafka]:
    """Return a broker that accepts late writes: it does not verify that a partition is in a transaction."""
    with running_broker(broker_kind, HANGING_SETTINGS) as address:
        yield Kafka(address, broker_kind)


class Reading:
    """A streaming query that keeps its rows in memory."""

    def __init__(self, spark: SparkSession, address: str, topic: str) -> None:
        self.spark, self.name = spark, topic.replace("-", "_")
        frame = (
            spark.readStream.format("eos-kafka")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        writer = frame.selectExpr("offset", "cast(value as string) as text").writeStream
        self.query: StreamingQuery = writer.format("memory").queryName(self.name).start()

    def shown(self) -> list[str]:
        """Return all rows once the query has caught up with the visible offsets."""
        self.query.processAllAvailable()
        return [row.text for row in self.spark.table(self.name).orderBy("offset").collect()]


def test_stuck_query_proceeds_when_the_hanging_transaction_is_aborted(late_kafka: Kafka, spark: SparkSession):
    topic, address = make_topic(late_kafka), late_kafka.bootstrap_servers
    with RawClient(address) as client:
        hang(RawSession(client, unique("id")), topic, age_ms=OLD_MS)
    send(make_producer(late_kafka), topic, [b"behind"])
    reading = Reading(spark, address, topic)
    try:
        assert reading.shown() == ["in time"], "the query waits for the last stable offset"
        ran = ours(address, "find-hanging", "--topic", topic)
        assert ran.code == ExitCode.HANGING_FOUND
        run_printed(ran.errors.partition("to end it: ")[2].splitlines()[0])
        assert reading.shown() == ["in time", "behind"]
    finally:
        reading.query.stop()
