"""A server of Spark Connect: the example of a declarative pipeline, which Spark's own command runs, and another client.

The working directory of the server has no packages: it finds the format on Python's path, as after an installation.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from broker_core import EmbeddedBroker
from tests.support.documents import Page
from tests.support.spark_eos.connect_server import remote
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.spark_session import failpoints_file

__all__ = ["failpoints_file", "remote"]
pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
EXAMPLE, PAGE = ROOT / "examples" / "pipeline", ROOT / "docs" / "spark" / "pipelines.md"
DEADLINE_S = 240
# The client of Spark Connect: a batch job and a stream.
CLIENT = """
import sys
from pyspark.sql import SparkSession
from spark_eos import place_by_partition

address, topic, folder = sys.argv[1:]
options = {"kafka.bootstrap.servers": address, "topic": topic}
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as key", "cast(id as string) as value")
place_by_partition(rows, 3, **options).write.format("eos-kafka").mode("append").options(**options).save()
rows.write.parquet(f"{folder}/rows")
stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows")
writer = place_by_partition(stream, 3, **options).writeStream.format("eos-kafka").options(**options)
writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"lines": 2, "notes": 1, "shouted": 2}) as kafka:
        kafka.produce("lines", ["a"])
        kafka.produce("notes", ["b"])
        yield kafka
        kafka.assert_quiescent(clients_may_wait=True)


@pytest.fixture
def pipeline(kafka: EmbeddedBroker, tmp_path: Path) -> Path:
    """Copy the example for this broker."""
    copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "spark-pipeline.yml"
    text = spec.read_text().replace("file:///data/pipelines/shouted", f"file://{tmp_path}/storage")
    spec.write_text(text.replace("localhost:9092", kafka.bootstrap_servers))
    return tmp_path


def run_client(remote: str, *arguments: str, folder: Path) -> str:
    """Run Python as a client of the server, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def run(remote: str, pipeline: Path, *options: str) -> str:
    return run_client(remote, "-m", "pyspark.pipelines.cli", "run", *options, folder=pipeline)


def written(kafka: EmbeddedBroker) -> str:
    values = kafka.records("shouted", isolation="read_committed").values
    return "".join(sorted(value.decode() for value in values if value is not None))


def queries(pipeline: Path, flow: str) -> int:
    """Return how many queries a flow has been, by the checkpoints in the pipeline's storage."""
    return len(list((pipeline / "storage" / "_checkpoints" / "shouted" / flow).iterdir()))


@pytest.mark.timeout(3 * DEADLINE_S)
def test_flow_is_a_query_by_its_name_until_a_full_refresh(
    remote: str, pipeline: Path, kafka: EmbeddedBroker, failpoints_file: Path, tmp_path: Path
) -> None:
    # A flow dies after its decision, and begins again in the same run.
    died = tmp_path / "died"
    failpoints_file.write_text(f"driver.after_decide=once:{died}|kill")
    log = run(remote, pipeline)
    failpoints_file.write_text("")
    assert died.exists() and "FAILED" in log, log
    assert written(kafka) == "AB"
    # The flow that keeps its name goes on, and the one with another name begins again.
    kafka.produce("lines", ["c"])
    flows = pipeline / "transformations" / "shouted.py"
    flows.write_text(flows.read_text().replace("def from_notes", "def of_notes"))
    run(remote, pipeline)
    assert written(kafka) == "ABBC"
    run(remote, pipeline, "--full-refresh-all")
    assert written(kafka) == "AABBBCC"
    assert [queries(pipeline, flow) for flow in ("from_lines", "from_notes", "of_notes")] == [2, 1, 2]


def test_page_shows_the_example() -> None:
    page = Page(PAGE.name, PAGE.read_text(encoding="utf-8"))
    shown = {block.title: block.code for block in page.blocks if block.title}
    assert shown == {
        name: (EXAMPLE / name).read_text() for name in ("spark-pipeline.yml", "transformations/shouted.py")
    }


def test_a_client_of_spark_connect_places_rows(kafka_address: str, remote: str, tmp_path: Path) -> None:
    topic = make_topic(kafka_address, 6)
    run_client(remote, "-c", CLIENT, kafka_address, topic.name, str(tmp_path), folder=ROOT)
    assert topic.markers() == [2] * 6
    assert len(topic.values()) == 2 * 1000
