"""Options of the metrics endpoint, and the metrics."""

import sys
from collections.abc import Mapping

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from broker_core.types import TopicPartition
from spark_eos.errors import OptionError
from spark_eos.metrics import MOST_SUBJECTS, SOURCE_METRICS, ProcessMetrics, SubjectValues
from spark_eos.metrics_export.sender import check_exportable
from spark_eos.metrics_export.store import MetricStore
from spark_eos.options.metrics import MetricsTargets
from spark_eos.options.sink import sink_options
from spark_eos.options.source import stream_options
from spark_eos.sink.columns import KEY, VALUE
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.lag import LagWatch
from tests.support.clocks import StandingClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SINK = {"kafka.bootstrap.servers": "h:1"}
SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


# Options


@pytest.mark.parametrize(
    "read", [lambda more: sink_options(SINK | more), lambda more: stream_options(SOURCE | more)], ids=["sink", "source"]
)
class TestOptions:
    def test_metrics_go_nowhere_by_default(self, read) -> None:
        assert read({}).metrics is None

    def test_metrics_are_served_on_loopback_by_default(self, read) -> None:
        assert read({"metricsport": " 9404 "}).metrics == MetricsTargets("127.0.0.1", 9404)
        assert read({"metricsport": "9404", "metricshost": "0.0.0.0"}).metrics == MetricsTargets("0.0.0.0", 9404)

    def test_metrics_go_to_a_file_and_a_collector_without_a_port(self, read) -> None:
        options = {"metricstextfile": "/var/a.prom", "metricsotlpendpoint": "https://c:4318/v1/metrics"}
        assert read(options).metrics == MetricsTargets("127.0.0.1", None, "/var/a.prom", "https://c:4318/v1/metrics")

    @pytest.mark.parametrize("path", ["a.prom", "/a.txt", "", "/a\n.prom"])
    def test_textfile_that_no_collector_reads_is_refused(self, read, path: str) -> None:
        with pytest.raises(OptionError, match="Option 'metricsTextfile' is .* ends with .prom"):
            read({"metricstextfile": path})

    @pytest.mark.parametrize("url", ["c:4317", "grpc://c", "http://user:secret@c/v1/metrics", ""])
    def test_collector_without_an_http_url_is_refused_and_no_password_is_shown(self, read, url: str) -> None:
        with pytest.raises(OptionError, match="Option 'metricsOtlpEndpoint' is not an HTTP URL") as refused:
            read({"metricsotlpendpoint": url})
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "", "٣"])
    def test_invalid_metrics_port_is_refused(self, read, port: str) -> None:
        with pytest.raises(OptionError, match="Option 'metricsPort' is .* from 1 to 65535"):
            read({"metricsport": port})

    def test_metrics_host_without_port_is_refused(self, read) -> None:
        with pytest.raises(OptionError, match="'metricsHost' has no effect without 'metricsPort'"):
            read({"metricshost": "h"})

    def test_misspelled_metrics_option_is_refused_with_a_suggestion(self, read) -> None:
        with pytest.raises(OptionError, match="Did you mean 'metricsPort'"):
            read({"metricport": "1"})


# Counting


def test_labeled_metrics_are_written_and_removed_with_their_subject() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows", 2)
    metrics.set_each("lag", {(("topic", "t"), ("partition", "0")): 4, (("topic", "t"), ("partition", "1")): 5})
    assert dict(metrics.snapshot()) == {"rows": 2, 'lag{topic="t",partition="0"}': 4, 'lag{topic="t",partition="1"}': 5}
    metrics.set_each("lag", {(("topic", "t"), ("partition", "1")): 6})
    assert dict(metrics.snapshot()) == {"rows": 2, 'lag{topic="t",partition="1"}': 6}


def test_metrics_snapshot_is_a_copy() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("a")
    metrics.add("a", 2)
    metrics.set("b", 5)
    snapshot = metrics.snapshot()
    metrics.set("b", 6)
    assert dict(snapshot) == {"a": 3, "b": 5}


@pytest.mark.parametrize(
    ("library", "options", "remedy"),
    [
        (
            "prometheus_client",
            {"metricsport": "9404"},
            r"'\.\[metrics\]'` in a clone of eos-kafka on the driver, or remove 'metricsPort'",
        ),
        ("prometheus_client", {"metricstextfile": "/a.prom"}, "or remove 'metricsTextfile'"),
        ("opentelemetry", {"metricsotlpendpoint": "http://c"}, r"'\.\[otlp\]'` in a clone of eos-kafka on the driver"),
    ],
)
def test_missing_metrics_library_refuses_the_query_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, library: str, options: dict[str, str], remedy: str
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    check_exportable(None)
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    for writer in (StreamWriter, BatchWriter):
        with pytest.raises(OptionError, match=remedy):
            writer(SINK | {"topic": "t"} | options, schema, False)


def test_subjects_are_counted_apart_and_a_thread_sees_its_own() -> None:
    metrics = ProcessMetrics("eos")
    with metrics.subject(query="a"):
        metrics.add("rows")
        with metrics.subject(query="b"):
            metrics.add("rows", 2)
            assert dict(metrics.snapshot()) == {"rows": 2}
        assert dict(metrics.snapshot()) == {"rows": 1}
    rows = {subject: each.counters for subject, each in metrics.changes().values.by_subject.items()}
    assert rows == {(("query", "a"),): {"rows": 1}, (("query", "b"),): {"rows": 2}}
    assert not metrics.changes()


def test_changes_that_were_not_delivered_are_returned_again() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows")
    metrics.set("age_ms", 1)
    metrics.report(micro_batch=1)
    changes = metrics.changes()
    metrics.add("rows", 2)
    metrics.set("age_ms", 5)
    metrics.report(micro_batch=2)
    metrics.take_back(changes)
    again = metrics.changes()
    assert again.values.by_subject == {(): SubjectValues({"rows": 3}, {"age_ms": {(): 5}})}
    assert again.reports == [{"micro_batch": 1}, {"micro_batch": 2}]


def test_subjects_of_a_long_lived_driver_are_bounded() -> None:
    metrics, store = ProcessMetrics("eos"), MetricStore()
    for job in range(MOST_SUBJECTS + 10):
        with metrics.subject(query=str(job)):
            metrics.add("rows")
            metrics.set("age_ms", job)
        if job == MOST_SUBJECTS // 2:
            store.apply({"eos": metrics.changes()})
    store.apply({"eos": metrics.changes()})
    for family in store.families():
        assert len(family.values) == MOST_SUBJECTS
        assert (("query", "9"),) not in family.values and (("query", "10"),) in family.values


# The source


def source_gauges(name: str) -> Mapping[str, int]:
    return {key.removeprefix(name): value for key, value in SOURCE_METRICS.snapshot().items() if key.startswith(name)}


def test_source_reports_lag_and_stalled_seconds_of_every_partition() -> None:
    clock = StandingClock()
    watch = LagWatch(60_000, str, clock)
    at = ('{topic="t",partition="0"}', '{topic="t",partition="1"}')
    watch.observe({T0: 5, T1: 1}, {T0: 5, T1: 4}, {T0: 25, T1: 4})
    clock.seconds = 2.5
    watch.observe({T0: 5, T1: 1}, {T0: 5, T1: 4}, {T0: 25, T1: 4})
    assert source_gauges("offsets_behind_last_stable_offset") == {at[0]: 0, at[1]: 3}
    assert source_gauges("offsets_behind_high_watermark") == {at[0]: 20, at[1]: 3}
    assert source_gauges("last_stable_offset_standing_ms") == {at[0]: 2_500, at[1]: 0}
    watch.observe({T1: 4}, {T1: 4}, {T1: 4})
    assert source_gauges("offsets_behind_high_watermark") == {at[1]: 0}, "deleted partitions have no metrics"


def test_data_loss_is_counted_whether_or_not_the_query_continues() -> None:
    before = SOURCE_METRICS.snapshot().get("data_losses", 0)
    DataLossPolicy(fail=False).report(DataLoss.PARTITIONS_DELETED, "t-0")
    with pytest.raises(Exception, match="PARTITIONS_DELETED"):
        DataLossPolicy(fail=True).report(DataLoss.PARTITIONS_DELETED, "t-0")
    assert SOURCE_METRICS.snapshot()["data_losses"] == before + 2
