"""A streaming query dies right after a decision, an operator intervenes, and the query restarts from its checkpoint."""

import json
import os
import uuid
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_eos.admin.command import ExitCode, main
from tests.support.spark_eos.sink_query import end, lines_of, start
from tests.support.spark_eos.sink_topic import make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
LINES = 20


def add_file(folder: Path, number: int) -> list[str]:
    """Write one more micro-batch for the query to read."""
    lines = [f"file{number}-{line:03}" for line in range(LINES)]
    path = folder / "input" / f"{number}.txt"
    path.write_text("\n".join(lines))
    os.utime(path, (number, number))
    return lines


def run(spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
    end(start(lines_of(spark, str(folder / "input")), str(folder / "checkpoint"), options))


def test_restarted_query_follows_the_operator_decision(
    spark: SparkSession, kafka_address: str, tmp_path: Path, failpoints_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, prefix = make_topic(kafka_address), f"admin-{uuid.uuid4().hex[:8]}"
    options = topic.options(transactionalIdPrefix=prefix)
    (tmp_path / "input").mkdir()
    lines: list[list[str]] = []
    reach: list[str] = []
    # Each time the query dies right after it has decided, and no transaction of the micro-batch is completed.
    for micro_batch, restart_is in enumerate(("rewrite", "skip")):
        lines.append(add_file(tmp_path, micro_batch))
        once = tmp_path / f"once-{micro_batch}"
        failpoints_file.write_text(f"driver.after_decide/{prefix}=once:{once}|raise@{micro_batch}")
        try:
            with pytest.raises(StreamingQueryException):
                run(spark, tmp_path, options)
        finally:
            failpoints_file.unlink()
        query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
        reach = ["--bootstrap-server", kafka_address, "--prefix", prefix, "--query", query]
        assert open_transactions(kafka_address, prefix) != []
        words = ["abort", "--restart", restart_is, "--yes", "--watch-seconds", "0.1"]
        assert main(["decisions", *words, *reach]) == ExitCode.DONE
        assert open_transactions(kafka_address, prefix) == [], "no reader is blocked"
    lines.append(add_file(tmp_path, 2))
    run(spark, tmp_path, options)
    assert topic.values() == lines[0] + lines[2]
    assert topic.is_stable()
    capsys.readouterr()
    assert main(["decisions", "show", *reach, "--output", "json"]) == ExitCode.DONE
    shown = json.loads(capsys.readouterr().out)
    assert [(e["restart"], e["micro_batch"]) for e in shown["interventions"]] == [("rewrite", 0), ("skip", 1)]
    assert shown["decision"]["micro_batch"] == 2
