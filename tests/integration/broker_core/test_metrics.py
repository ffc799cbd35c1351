"""The metrics of an embedded broker under an independent client."""

import pytest

from broker_core import EmbeddedBroker
from tests.support.broker_core.produce_consume import produce as produce_with_librdkafka


def test_embedded_broker_returns_its_metrics():
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        produce_with_librdkafka(kafka.bootstrap_servers, "t", [b"1", b"2"])
        metrics = kafka.metrics
        assert metrics.last_stable_offset(("t", 0)) == 2
        assert metrics.last_stable_offset_lag(("t", 0)) == 0
        assert metrics.producer_ids == frozenset()
        requests = metrics.requests("Produce")
        assert requests.count >= 1
        assert requests.errors == {}
        assert 0 < requests.latency_ms.quantile(0.99) <= requests.latency_ms.max_ms
        produce_with_librdkafka(kafka.bootstrap_servers, "t", [b"3"])
        assert metrics.last_stable_offset(("t", 0)) == 2, "the metrics do not change"
        assert kafka.metrics.last_stable_offset(("t", 0)) == 3
    with pytest.raises(RuntimeError, match="not running"):
        _ = kafka.metrics
