"""Options of the metrics endpoint, and the metrics."""

import sys
from collections.abc import Mapping

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from broker_core.types import TopicPartition
from spark_eos.errors import OptionError
from spark_eos.metrics import SOURCE_METRICS, MetricsPlace, ProcessMetrics
from spark_eos.metrics_endpoint import check_servable
from spark_eos.options.sink import sink_options
from spark_eos.options.source import stream_options
from spark_eos.sink.columns import KEY, VALUE
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.lag import LagWatch

ANY_PORT = MetricsPlace("127.0.0.1", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SINK = {"kafka.bootstrap.servers": "h:1"}
SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


# Options


@pytest.mark.parametrize(
    "read", [lambda more: sink_options(SINK | more), lambda more: stream_options(SOURCE | more)], ids=["sink", "source"]
)
class TestOptions:
    def test_metrics_are_not_served_by_default(self, read) -> None:
        assert read({}).metrics_place is None

    def test_metrics_are_served_on_loopback_by_default(self, read) -> None:
        assert read({"metricsport": " 9404 "}).metrics_place == ("127.0.0.1", 9404)
        assert read({"metricsport": "9404", "metricshost": "0.0.0.0"}).metrics_place == ("0.0.0.0", 9404)

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


def test_missing_metrics_library_refuses_the_query_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    check_servable(None)
    with pytest.raises(OptionError, match=r"pip install 'eos-kafka\[metrics\]'` on the driver"):
        check_servable(ANY_PORT)
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    for writer in (StreamWriter, BatchWriter):
        with pytest.raises(OptionError, match="prometheus-client, which is not installed on the driver"):
            writer(SINK | {"topic": "t", "metricsport": "9404"}, schema, False)


# The source


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def source_gauges(name: str) -> Mapping[str, int]:
    return {key.removeprefix(name): value for key, value in SOURCE_METRICS.snapshot().items() if key.startswith(name)}


def test_source_reports_lag_and_stalled_seconds_of_every_partition() -> None:
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
    assert source_gauges("offsets_behind_high_watermark") == {at[1]: 0}, "deleted partitions have no metrics"


def test_data_loss_is_counted_whether_or_not_the_query_continues() -> None:
    before = SOURCE_METRICS.snapshot().get("data_losses", 0)
    DataLossPolicy(fail=False).report(DataLoss.PARTITIONS_DELETED, "t-0")
    with pytest.raises(Exception, match="PARTITIONS_DELETED"):
        DataLossPolicy(fail=True).report(DataLoss.PARTITIONS_DELETED, "t-0")
    assert SOURCE_METRICS.snapshot()["data_losses"] == before + 2
