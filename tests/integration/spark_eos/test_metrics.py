"""The metrics at the exporter: its port, its textfile, and what the source and the sink send."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_eos.metrics import ProcessMetrics
from spark_eos.metrics_export.meeting_place import DriverProcess, socket_path
from spark_eos.metrics_export.sender import MetricsSender
from spark_eos.options.metrics import MetricsTargets
from spark_eos.runtime import REAL
from spark_eos.sink.columns import KEY, VALUE
from spark_eos.sink.spark_writers import BatchWriter
from spark_eos.source import lag
from tests.support.spark_eos.scraping import Driver, driver, free_port, parsed, running_driver, scraped
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.source_data import create_topic, send, send_plain, transactional_producer
from tests.support.spark_eos.source_query import running
from tests.support.waiting import wait_until

__all__ = ["driver"]

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a folder with a name that is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def sender_of(identity: DriverProcess) -> tuple[MetricsSender, ProcessMetrics]:
    """Return what another process of the driver would have."""
    sender, metrics = MetricsSender(REAL, identity), ProcessMetrics("eos")
    sender.sides = (metrics,)
    return sender, metrics


def served(port: int) -> dict[str, float]:
    """Wait until the port is open."""

    def found() -> dict[str, float] | None:
        try:
            return scraped(port)
        except URLError:
            return None

    values = wait_until(lambda: (values := found()) is not None and (values,), "an open port", deadline_s=DEADLINE_S)
    assert isinstance(values, tuple)
    return values[0]


def test_values_of_all_processes_are_added_up_at_one_port(driver: Driver) -> None:
    place = MetricsTargets(port=free_port())
    for amount in (2, 3):
        sender, metrics = sender_of(driver.identity)
        with metrics.subject(query="a", sink="t"):
            metrics.add("rows", amount)
            metrics.set("age_ms", amount)
            metrics.set_each("lag", {(("topic", 'a "b"'),): amount})
        with metrics.subject(query="b", sink="t"):
            metrics.add("rows")
        sender.publish(place, DEADLINE_S)
    expected = {
        "eos_rows_total query=a sink=t": 5,
        "eos_rows_total query=b sink=t": 2,
        "eos_age_ms query=a sink=t": 3,
        'eos_lag query=a sink=t topic=a "b"': 3,
    }
    assert scraped(place.port) == expected
    with metrics.subject(query="a", sink="t"):
        metrics.clear_gauges()
    sender.publish(place, DEADLINE_S)
    assert scraped(place.port).keys() == {"eos_rows_total query=a sink=t", "eos_rows_total query=b sink=t"}


def positive(values: dict[str, float]) -> dict[str, float]:
    """Leave out the counters that have not grown; all of them are served from the beginning."""
    assert "eos_kafka_sink_completion_retries_total" in values
    return {name: value for name, value in values.items() if value}


_WORKER = """
import os, sys
from spark_eos.metrics import SINK_METRICS
from spark_eos.metrics_export.meeting_place import DriverProcess
from spark_eos.metrics_export.sender import MetricsSender
from spark_eos.options.metrics import MetricsTargets
from spark_eos.runtime import REAL
SINK_METRICS.add("records_committed", 4)
sender = MetricsSender(REAL, DriverProcess(int(sys.argv[1]), sys.argv[2]))
sender.publish(MetricsTargets(port=int(sys.argv[3]), textfile=sys.argv[4]), 60)
assert not sender._problems, sender._problems
os.kill(os.getpid(), 9)
"""


def test_exporter_outlives_the_workers_that_start_it_at_once_and_ends_with_a_killed_driver(
    driver: Driver, tmp_path: Path
) -> None:
    port, textfile = free_port(), tmp_path / "eos.prom"
    command = [sys.executable, "-c", _WORKER, *map(str, driver.identity), str(port), str(textfile)]
    workers = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [worker.wait(DEADLINE_S) for worker in workers] == [-signal.SIGKILL] * 3
    assert positive(scraped(port)) == {"eos_kafka_sink_records_committed_total": 12}
    # Nothing has changed since, but the file may be from before the last message.
    name = "eos_kafka_sink_records_committed_total"
    wait_until(
        lambda: textfile.exists() and positive(parsed(textfile.read_text())) == {name: 12},
        "the file",
        deadline_s=DEADLINE_S,
    )
    driver.kill()
    driver.wait_for_exporter_end()
    # A request that meets the end of the exporter is reset.
    with pytest.raises(OSError):
        wait_until(lambda: scraped(port) is None, "a closed port", deadline_s=DEADLINE_S)
    assert positive(parsed(textfile.read_text())) == {name: 12}
    assert [each.name for each in tmp_path.iterdir()] == ["eos.prom"]


def test_second_driver_is_warned_of_an_occupied_port_and_gets_it_when_the_first_ends(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    place = MetricsTargets(port=free_port())
    first, _ = sender_of(driver.identity)
    first.publish(place, DEADLINE_S)
    with running_driver() as other:
        second, metrics = sender_of(other.identity)
        metrics.add("rows")
        for _ in range(2):
            second.publish(place, DEADLINE_S)
        assert scraped(place.port) == {}
        pattern = "metrics cannot be served on 127.0.0.1:.*in use. The query continues without them"
        assert len(re.findall(pattern, caplog.text)) == 1
        driver.kill()
        wait_until(lambda: scraped_or_nothing(place.port), "the second driver's metrics", deadline_s=DEADLINE_S)
        assert scraped(place.port) == {"eos_rows_total": 1}


def scraped_or_nothing(port: int | None) -> dict[str, float]:
    try:
        return scraped(port)
    except (URLError, ConnectionError):
        return {}


def test_killed_exporter_is_replaced(driver: Driver) -> None:
    place = MetricsTargets(port=free_port())
    sender, metrics = sender_of(driver.identity)
    metrics.add("rows")
    sender.publish(place, DEADLINE_S)
    assert sender._process is not None
    os.kill(sender._process.pid, signal.SIGKILL)
    sender._process.wait(DEADLINE_S)
    metrics.add("rows", 2)
    sender.publish(place, DEADLINE_S)
    # As with every counter, what an ended process has counted is gone.
    assert scraped(place.port) == {"eos_rows_total": 2}


def test_folder_that_another_user_could_open_is_refused_and_the_query_continues(
    driver: Driver, short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (short_path / f"eos-kafka-{os.getuid()}").mkdir(mode=0o755)
    sender, metrics = sender_of(driver.identity)
    metrics.add("rows")
    with monkeypatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(short_path))
        sender.publish(MetricsTargets(port=free_port()), DEADLINE_S)
    assert "no folder that only the user" in caplog.text
    assert metrics.changes().values.of(()).counters == {"rows": 1}, "they are sent later"


def test_both_packages_work_without_the_metrics_library() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None; sys.modules['opentelemetry'] = None; "
        "import spark_eos.datasource, "
        "spark_eos.sink.factory, spark_eos.sink.spark_writers, spark_eos.source.spark_readers"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=DEADLINE_S)


def test_batch_job_has_sent_its_metrics_when_it_ends(kafka_address: str, driver: Driver) -> None:
    port = free_port()
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    topic = make_topic(kafka_address)
    writer = BatchWriter(topic.options(metricsPort=str(port), jobId="load"), schema, False)
    writer.abort([])
    assert f"eos_kafka_sink_abort_ms query=load sink={topic.name}" in scraped(port)


def test_streaming_query_serves_its_counters_while_it_runs(
    kafka_address: str, monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setattr(lag, "_LONGEST_PAUSE_SECONDS", 0.0)
    topic, port = create_topic(kafka_address), free_port()
    send_plain(kafka_address, topic, "abcd")
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    send(producer, topic, ["open"])
    labels = f"query=shout source={topic}"
    behind = f"eos_kafka_source_offsets_behind_last_stable_offset partition=0 {labels} topic={topic}"
    with running(
        kafka_address,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="3",
        metricsPort=str(port),
        metricsQuery="shout",
    ) as query:
        assert isinstance(served(port), dict), "before its first micro-batch"
        for _ in range(2):
            start = query.position
            assert query.trigger()
            # As for another use of the source in the query.
            query.reader.partitions(start, query.position)
        planned = f"eos_kafka_source_micro_batches_planned_total {labels}"
        wait_until(lambda: scraped(port).get(planned) == 2, "both micro-batches", deadline_s=DEADLINE_S)
        found = scraped(port)
    assert found[f"eos_kafka_source_offsets_planned_total {labels}"] == 4
    assert found[behind] == 1
    assert found[f"eos_kafka_source_offsets_behind_high_watermark partition=0 {labels} topic={topic}"] == 2
    assert found[f"eos_kafka_source_updated_timestamp_seconds {labels}"] > 1.7e9
    after = scraped(port)
    assert behind not in after and after[planned] == 2, "a stopped query has no lag"
    producer.abort_transaction(30)


def test_sockets_of_killed_exporters_are_removed(driver: Driver) -> None:
    with running_driver() as other:
        left = socket_path(other.identity)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left))
    sender, _ = sender_of(driver.identity)
    sender.publish(MetricsTargets(port=free_port()), DEADLINE_S)
    assert not left.exists()
