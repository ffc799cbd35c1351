"""A query that fails in its first micro-batch, as most do once, reads the same rows when it is started again."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_eos.sink_query import run_each
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


class Runs:
    """The runs of one query, whose function fails or keeps the rows of each micro-batch."""

    def __init__(self, spark: SparkSession, address: str, checkpoint: Path) -> None:
        self._spark, self._address, self._checkpoint = spark, address, checkpoint
        self.seen: list[list[str]] = []

    def source(self, topic: str, options: dict[str, str]) -> DataFrame:
        reader = self._spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", self._address)
        return reader.option("subscribe", topic).options(**options).load()

    def run(self, frame: DataFrame, *, fails: bool = False) -> None:
        def keep(rows: DataFrame, _batch_id: int) -> None:
            if fails:
                raise RuntimeError("killed")
            self.seen.append(sorted(bytes(row.value).decode() for row in rows.collect()))

        with pytest.raises(PySparkException, match="killed") if fails else nullcontext():
            run_each(frame, keep, self._checkpoint)


def test_first_micro_batch_runs_again_whatever_options_say(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abc")
    runs = Runs(spark, kafka_address, tmp_path)
    runs.run(runs.source(topic, {"startingOffsets": "earliest"}), fails=True)
    send_plain(kafka_address, topic, "d")
    runs.run(runs.source(topic, {"startingTimestamp": "99999999999999"}))
    assert runs.seen == [["a", "b", "c"], ["d"]]


def test_source_added_to_an_old_query_keeps_its_first_start(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    old, added = (create_topic(kafka_address) for _ in range(2))
    send_plain(kafka_address, old, "a")
    runs = Runs(spark, kafka_address, tmp_path)
    earliest = {"startingOffsets": "earliest"}
    runs.run(runs.source(old, earliest))
    send_plain(kafka_address, added, "xyz")
    # As Spark writes the offset of a source that has not been read yet.
    offsets = tmp_path / "offsets" / "0"
    offsets.write_text(offsets.read_text() + "\n-")
    runs.run(runs.source(old, {}).union(runs.source(added, earliest)), fails=True)
    runs.run(runs.source(old, {}).union(runs.source(added, {})))
    assert runs.seen == [["a"], ["x", "y", "z"]]
