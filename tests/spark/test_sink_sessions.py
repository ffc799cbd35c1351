"""Several queries in one Spark session, which share its Python workers."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_eos.sink_query import end, lines_of, start
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
QUERIES, FILES, LINES = 3, 3, 20
EMPTY_FILE = 1


def expected(number: int) -> list[str]:
    return sorted(
        f"query{number}-file{file}-line{line}" for file in range(FILES) if file != EMPTY_FILE for line in range(LINES)
    )


def test_queries_in_a_shared_session_do_not_stop_each_other(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topics = [make_topic(kafka_address) for _ in range(QUERIES)]
    running = []
    for number, topic in enumerate(topics):
        folder = tmp_path / f"input{number}"
        folder.mkdir()
        for file in range(FILES):
            lines = [f"query{number}-file{file}-line{line}\n" for line in range(0 if file == EMPTY_FILE else LINES)]
            (folder / f"{file}.txt").write_text("".join(lines))
            os.utime(folder / f"{file}.txt", (file, file))
        rows = lines_of(spark, str(folder))
        running.append(start(rows, str(tmp_path / f"checkpoint{number}"), topic.options()))
    for query in running:
        end(query)
    assert [sorted(topic.values()) for topic in topics] == [expected(number) for number in range(QUERIES)]
