"""The rows of the table of metrics."""

from broker_core.broker.monitoring.metrics import GAUGE, one, take_metrics
from tests.support.direct import direct_cluster


def test_row_of_an_attribute_has_its_value_without_labels() -> None:
    cluster = direct_cluster()
    metrics = take_metrics(cluster, cluster.now_ms)
    row = one("name", GAUGE, "meaning", "group_load_time_ms.count")
    assert list(row.samples(metrics)) == [({}, metrics.group_load_time_ms.count)]
    assert row.labels == ()
