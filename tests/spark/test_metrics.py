"""What is counted can be read: in the log, at the driver's endpoint, and in Spark's progress as far as that goes."""

import logging
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from broker_core.types import TopicPartition
from spark_eos import metrics as metrics_module
from spark_eos.errors import OptionError
from spark_eos.metrics import SOURCE_METRICS, MetricsPlace, ProcessMetrics, check_servable, serve
from spark_eos.options.sink import sink_options
from spark_eos.options.source import stream_options
from spark_eos.sink.columns import KEY, VALUE
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter
from spark_eos.source import lag
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.lag import LagWatch
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.source_data import create_topic, send, send_plain, transactional_producer
from tests.support.spark_eos.source_query import running
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
ROOT = Path(__file__).parents[2]
DEADLINE_S = 60
SPARK_DEADLINE_S = 180
ANY_PORT = MetricsPlace("127.0.0.1", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SINK = {"kafka.bootstrap.servers": "h:1"}
SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin in a process that serves nothing."""
    monkeypatch.setattr(metrics_module, "_served", {})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def scraped(port: int | None) -> dict[str, float]:
    """Read an endpoint as Prometheus does: values by name and labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# Options


@pytest.mark.parametrize(
    "read", [lambda more: sink_options(SINK | more), lambda more: stream_options(SOURCE | more)], ids=["sink", "source"]
)
class TestOptions:
    def test_nothing_is_served_unless_asked_for(self, read) -> None:
        assert read({}).metrics_place is None

    def test_it_is_served_on_loopback_unless_told(self, read) -> None:
        assert read({"metricsport": " 9404 "}).metrics_place == ("127.0.0.1", 9404)
        assert read({"metricsport": "9404", "metricshost": "0.0.0.0"}).metrics_place == ("0.0.0.0", 9404)

    @pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "", "٣"])
    def test_a_port_that_is_none_is_refused(self, read, port: str) -> None:
        with pytest.raises(OptionError, match="Option 'metricsPort' is .* from 1 to 65535"):
            read({"metricsport": port})

    def test_a_host_alone_means_nothing(self, read) -> None:
        with pytest.raises(OptionError, match="'metricsHost' has no effect without 'metricsPort'"):
            read({"metricshost": "h"})

    def test_a_near_miss_is_refused(self, read) -> None:
        with pytest.raises(OptionError, match="Did you mean 'metricsPort'"):
            read({"metricport": "1"})


# Counting and serving


def test_what_has_labels_is_written_with_them_and_forgotten_when_it_is_gone() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows", 2)
    metrics.set_each("lag", {(("topic", "t"), ("partition", "0")): 4, (("topic", "t"), ("partition", "1")): 5})
    assert dict(metrics.snapshot()) == {"rows": 2, 'lag{topic="t",partition="0"}': 4, 'lag{topic="t",partition="1"}': 5}
    metrics.set_each("lag", {(("topic", "t"), ("partition", "1")): 6})
    assert dict(metrics.snapshot()) == {"rows": 2, 'lag{topic="t",partition="1"}': 6}


def test_prometheus_reads_the_numbers_as_they_are_now() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows", 2)
    metrics.set("age_ms", 7)
    metrics.set_each("lag", {(("topic", 'a "b"'),): 4})
    port = serve(metrics, ANY_PORT)
    assert scraped(port) == {"eos_rows_total": 2, "eos_age_ms": 7, 'eos_lag topic=a "b"': 4}
    metrics.add("rows")
    assert scraped(port)["eos_rows_total"] == 3


def test_it_is_served_once_in_a_process_and_nowhere_unless_asked_for() -> None:
    metrics = ProcessMetrics("eos")
    assert serve(metrics, None) is None
    assert serve(metrics, ANY_PORT) == serve(metrics, ANY_PORT)


def test_a_taken_port_is_warned_of_once_and_had_as_soon_as_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = MetricsPlace("127.0.0.1", taken.getsockname()[1])
        assert serve(metrics, place) is None
        assert serve(metrics, place) is None
    assert len(re.findall("cannot serve metrics on 127.0.0.1:.*a different 'metricsPort'", caplog.text)) == 1
    assert serve(metrics, place) == place.port
    assert scraped(place.port) == {"eos_rows_total": 1}


def test_without_the_library_the_query_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    check_servable(None)
    with pytest.raises(OptionError, match=r"pip install 'eos-kafka\[metrics\]' on the driver"):
        check_servable(ANY_PORT)
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    for writer in (StreamWriter, BatchWriter):
        with pytest.raises(OptionError, match="prometheus-client, which is not installed on the driver"):
            writer(SINK | {"topic": "t", "metricsport": "9404"}, schema, False)


def test_without_the_library_both_packages_can_be_used() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None; import spark_eos.datasource, "
        "spark_eos.sink.factory, spark_eos.sink.spark_writers, spark_eos.source.spark_readers"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=DEADLINE_S)


def test_a_batch_job_serves_the_sinks_numbers_from_its_commit_on(kafka_address: str) -> None:
    port = free_port()
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    writer = BatchWriter(make_topic(kafka_address).options(metricsPort=str(port)), schema, False)
    writer.abort([])
    assert "eos_kafka_sink_abort_ms" in scraped(port)


# The source


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def source_gauges(name: str) -> Mapping[str, int]:
    return {key.removeprefix(name): value for key, value in SOURCE_METRICS.snapshot().items() if key.startswith(name)}


def test_the_lag_of_every_partition_is_told_and_how_long_its_end_stands_still() -> None:
    clock = Clock()
    watch = LagWatch(60_000, str, clock)
    at = ('{topic="t",partition="0"}', '{topic="t",partition="1"}')
    watch.observe({T0: 5, T1: 1}, {T0: 5, T1: 4}, {T0: 25, T1: 4})
    clock.now = 2.5
    watch.observe({T0: 5, T1: 1}, {T0: 5, T1: 4}, {T0: 25, T1: 4})
    assert source_gauges("offsets_behind_last_stable_offset") == {at[0]: 0, at[1]: 3}
    assert source_gauges("offsets_behind_high_watermark") == {at[0]: 20, at[1]: 3}
    assert source_gauges("last_stable_offset_standing_ms") == {at[0]: 2_500, at[1]: 0}
    watch.observe({T1: 4}, {T1: 4}, {T1: 4})
    assert source_gauges("offsets_behind_high_watermark") == {at[1]: 0}, "a deleted partition is told of no more"


def test_losses_are_counted_whether_the_query_goes_on_or_not() -> None:
    before = SOURCE_METRICS.snapshot().get("data_losses", 0)
    DataLossPolicy(fail=False).report(DataLoss.PARTITIONS_DELETED, "t-0")
    with pytest.raises(Exception, match="PARTITIONS_DELETED"):
        DataLossPolicy(fail=True).report(DataLoss.PARTITIONS_DELETED, "t-0")
    assert SOURCE_METRICS.snapshot()["data_losses"] == before + 2


def test_a_streaming_query_serves_its_counters_while_it_runs(
    kafka_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_LONGEST_PAUSE_SECONDS", 0.0)
    topic, port = create_topic(kafka_address), free_port()
    send_plain(kafka_address, topic, "abcd")
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    send(producer, topic, ["open"])
    before = SOURCE_METRICS.snapshot()
    with running(
        kafka_address, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3", metricsPort=str(port)
    ) as query:
        assert isinstance(scraped(port), dict), "before its first micro-batch"
        for _ in range(2):
            assert query.trigger()
        found = scraped(port)
    for name, grown in (("micro_batches_planned", 2), ("offsets_planned", 4)):
        assert found[f"{SOURCE_METRICS.prefix}_{name}_total"] == before.get(name, 0) + grown
    assert found[f"{SOURCE_METRICS.prefix}_offsets_behind_last_stable_offset partition=0 topic={topic}"] == 1
    assert found[f"{SOURCE_METRICS.prefix}_offsets_behind_high_watermark partition=0 topic={topic}"] == 2
    producer.abort_transaction(30)


# Spark


@pytest.mark.spark
def test_spark_tells_what_its_api_lets_through_and_the_endpoints_tell_the_rest(
    spark: SparkSession, kafka_address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, out = create_topic(kafka_address), make_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    source_port, sink_port = free_port(), free_port()
    frame = (
        spark.readStream.format("eos-kafka")
        .options(
            **{
                "kafka.bootstrap.servers": kafka_address,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "metricsPort": str(source_port),
            }
        )
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("eos-kafka")
        .options(**out.options(metricsPort=str(sink_port), checkpointLocation=str(tmp_path / "checkpoint")))
        .start()
    )
    try:
        progress = wait_until(
            lambda: [each for each in query.recentProgress if each.numInputRows] or not query.isActive,
            "a micro-batch",
            deadline_s=SPARK_DEADLINE_S,
        )
        assert query.exception() is None
        assert isinstance(progress, list)
        progress = progress[0]
        (source,) = progress.sources
        assert source.latestOffset == f'{{"{topic}": {{"0": 4}}}}'
        assert progress.sink.numOutputRows == 4
        # When Spark lets a Python data source report metrics, they belong in here.
        assert (source.metrics, progress.sink.metrics) == ({}, {})
        read, written = scraped(source_port), scraped(sink_port)
    finally:
        query.stop()
    assert read["eos_kafka_source_offsets_planned_total"] == 4
    assert read[f"eos_kafka_source_offsets_behind_high_watermark partition=0 topic={topic}"] >= 0
    # Spark keeps the process in which it commits for a minute, so that a query before this one may be counted, too.
    assert written["eos_kafka_sink_records_committed_total"] >= 4
    assert written["eos_kafka_sink_transactions_committed_total"] >= 1
    assert "eos_kafka_sink_decide_ms" in written
    assert logging.getLogger("spark_eos.metrics").name not in caplog.text
