"""What Spark 4.2 and 4.3 add to checkpoints and plans of streams, with source and sink of this package."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_core import EmbeddedBroker
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
DEADLINE_S = 240
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Streams:
    """Streams from the topics `a` and `b` into `out`, with one checkpoint and a session of their own."""

    def __init__(self, spark: SparkSession, kafka: EmbeddedBroker, checkpoint: Path) -> None:
        self.spark, self.kafka, self.checkpoint = spark.newSession(), kafka, checkpoint
        self.address = {"kafka.bootstrap.servers": kafka.bootstrap_servers}

    def set(self, **settings: object) -> None:
        for name, value in settings.items():
            self.spark.conf.set(f"spark.sql.{name.replace('_', '.')}", str(value))

    def source(self, topic: str, name: str = "") -> DataFrame:
        reader = self.spark.readStream.format("eos-kafka").options(**self.address)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return (reader.name(name) if name else reader).load().selectExpr("key", "cast(value as string) as value")

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Write what is there, and return the query, which has ended."""
        writer = frame.writeStream.format("eos-kafka").options(**self.address, topic="out")
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        return query

    @property
    def written(self) -> str:
        values = self.kafka.records("out", isolation="read_committed").values
        return "".join(sorted(value.decode() for value in values if value is not None))

    def forget_commit(self) -> None:
        """Leave the checkpoint as a crash does before Spark notes the newest micro-batch."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    with EmbeddedBroker(topics={"a": 1, "b": 1, "out": 2}) as kafka:
        kafka.produce("a", ["0", "1", "2", "3"])
        kafka.produce("b", ["x"])
        yield Streams(spark, kafka, tmp_path)
        kafka.assert_quiescent(clients_may_wait=True)


def test_adaptive_micro_batch_with_other_tasks_is_not_written_twice(streams: Streams) -> None:
    streams.set(adaptive_streaming_stateless_enabled=True, shuffle_partitions=4)
    plan = streams.run(streams.source("a").repartition("value"))._jsq.explainInternal(False)
    assert "AdaptiveSparkPlan isFinalPlan=true" in plan and "AQEShuffleRead coalesced" in plan
    assert streams.written == "0123"
    streams.forget_commit()
    streams.set(adaptive_coalescePartitions_enabled=False)
    plan = streams.run(streams.source("a").repartition("value"))._jsq.explainInternal(False)
    assert "AdaptiveSparkPlan isFinalPlan=true" in plan and "coalesced" not in plan
    assert streams.written == "0123"


@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 2)])
def test_offset_log_of_another_version_goes_on(streams: Streams, first: int, then: int) -> None:
    streams.set(streaming_offsetLog_formatVersion=first)
    streams.run(streams.source("a"))
    assert (streams.checkpoint / "offsets" / "0").read_text().startswith(f"v{first}\n")
    streams.kafka.produce("a", ["4"])
    streams.set(streaming_offsetLog_formatVersion=then)
    streams.run(streams.source("a"))
    streams.forget_commit()
    streams.run(streams.source("a"))
    assert streams.written == "01234"


def test_named_source_goes_on_while_an_offset_file_has_it(streams: Streams) -> None:
    streams.set(streaming_queryEvolution_enableSourceEvolution=True, streaming_minBatchesToRetain=2)
    a, b = streams.source("a", "first"), streams.source("b", "second")
    streams.run(a.union(b))
    streams.kafka.produce("a", ["4"])
    streams.kafka.produce("b", ["y"])
    streams.run(b)
    assert streams.written == "0123xy"
    streams.run(b.union(a))
    assert streams.written == "01234xy"
    for _ in range(3):
        streams.kafka.produce("b", ["z"])
        streams.run(b)
    streams.run(a.union(b))
    # The files that had its offsets are gone: it is a new source.
    assert streams.written == "0011223344xyzzz"


def test_names_of_sources_and_sinks_have_conditions(streams: Streams) -> None:
    with pytest.raises(PySparkException, match="SOURCE_NAMING_NOT_SUPPORTED"):
        streams.source("a", "first")
    streams.set(streaming_queryEvolution_enableSourceEvolution=True)
    with pytest.raises(PySparkException, match="UNNAMED_STREAMING_SOURCES_WITH_ENFORCEMENT"):
        streams.run(streams.source("a"))
    streams.set(streaming_queryEvolution_enableSinkEvolution=True)
    # PySpark 4.3 has no name() for a writer.
    with pytest.raises(Exception, match="UNNAMED_STREAMING_SINKS_WITH_ENFORCEMENT"):
        streams.run(streams.source("a", "first"))
    assert not streams.written


@pytest.fixture
def in_rocks_db(streams: Streams) -> Streams:
    """Keep state where Spark can repartition it, which needs Hadoop's usual file system."""
    streams.set(streaming_stateStore_providerClass=ROCKS_DB)
    streams.spark.conf.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    streams.spark.conf.set("fs.file.impl.disable.cache", "true")
    return streams


def test_repartitioned_state_goes_on(in_rocks_db: Streams) -> None:
    streams = in_rocks_db
    streams.run(streams.source("a").dropDuplicates(["value"]))
    streams.spark._streamingCheckpointManager.repartition(str(streams.checkpoint), 3)
    streams.kafka.produce("a", ["0", "4"])
    streams.run(streams.source("a").dropDuplicates(["value"]))
    assert streams.written == "01234"


def test_repartition_of_a_micro_batch_in_flight_is_refused_or_writes_it_again(
    in_rocks_db: Streams,
) -> None:
    streams = in_rocks_db
    frame = streams.source("a").dropDuplicates(["value"])
    streams.run(frame)
    streams.kafka.produce("a", ["4"])
    streams.run(frame)
    streams.forget_commit()
    manager, checkpoint = streams.spark._streamingCheckpointManager, str(streams.checkpoint)
    with pytest.raises(Exception, match="STATE_REPARTITION_INVALID_CHECKPOINT.LAST_BATCH_FAILED"):
        manager.repartition(checkpoint, 3)
    manager.repartition(checkpoint, 3, enforce_exactly_once_sink=False)
    streams.run(frame)
    assert streams.written == "012344"
