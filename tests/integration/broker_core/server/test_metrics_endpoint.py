"""The metrics endpoint has every metric; a broker without the client library runs and reports what is missing."""

import socket
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_core import EmbeddedBroker
from broker_core.broker.monitoring.metrics import BrokerMetrics, take_metrics
from broker_core.errors import ConfigError
from broker_core.server.metrics_endpoint import MetricsEndpoint
from tests.support.broker_core.broker_command import DEADLINE_S, refusal, running
from tests.support.broker_core.metrics_watch import Watch, begin, cluster, storage
from tests.support.broker_core.produce_consume import produce
from tests.support.broker_core.requests import TOPIC, init_producer, produced, records, transactional
from tests.support.direct import DirectClient

__all__ = ["cluster", "storage"]
URL = r"metrics at (\S+/metrics)"


class Measured:
    """A server of which only the metrics are read."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster

    def metrics(self) -> BrokerMetrics:
        return take_metrics(self.cluster, self.cluster.now_ms)


def scraped(url):
    """Read the endpoint as Prometheus does: values by name and labels."""
    with urlopen(url, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def served(measured):
    endpoint = MetricsEndpoint(measured.metrics, "127.0.0.1", 0)
    try:
        return scraped(endpoint.url)
    finally:
        endpoint.close()


def test_every_metric_is_served_with_its_value(cluster):
    watch = cluster.meters.stopwatch = Watch()
    watch.step_ms = 1.5
    client = DirectClient(cluster)
    identity = begin(client)
    other = init_producer(client, "other")
    assert produced(client, transactional(other, 2), transactional_id="other", version=11).error_code == 120
    produced(client, records(1), partition=9)
    cluster.now_ms += 10_000_000
    found = served(Measured(cluster))
    at = (("partition", "0"), ("topic", TOPIC))
    produced_by = tuple(
        found[("kafka_network_requestmetrics_requests_total", (("request", "Produce"), ("version", v)))]
        for v in ("9", "11", "12")
    )
    assert produced_by == (1, 1, 1)
    expected = {
        ("kafka_server_replicamanager_partitionswithlatetransactionscount", ()): 1,
        ("kafka_server_replicamanager_produceridcount", ()): 1,
        ("broker_core_producer_ids", ()): 1,
        ("broker_core_transactional_ids", (("state", "Ongoing"),)): 1,
        ("broker_core_transactional_ids", (("state", "Empty"),)): 1,
        ("kafka_cluster_partition_laststableoffsetlag", at): 2,
        ("broker_core_partition_last_stable_offset", at): 0,
        ("kafka_log_log_logstartoffset", at): 0,
        ("kafka_log_log_logendoffset", at): 2,
        ("kafka_server_addpartitionstotxnmanager_verificationtimems_count", ()): 2,
        ("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total", ()): 1,
        ("kafka_server_transaction_coordinator_metrics_partition_load_time_max", ()): 0,
        ("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", ()): 0,
        ("kafka_server_group_coordinator_metrics_partition_load_time_max", ()): 0,
        ("kafka_server_group_coordinator_metrics_partition_load_time_avg", ()): 0,
        ("kafka_server_share_coordinator_metrics_partition_load_time_max", ()): 0,
        ("kafka_server_share_coordinator_metrics_partition_load_time_avg", ()): 0,
        ("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", ()): 0,
        ("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize", ()): 0,
        (
            "kafka_network_requestmetrics_errors_total",
            (("error", "UNKNOWN_TOPIC_OR_PARTITION"), ("request", "Produce")),
        ): 1,
        ("kafka_network_requestmetrics_errors_total", (("error", "TRANSACTION_ABORTABLE"), ("request", "Produce"))): 1,
        ("kafka_network_requestmetrics_totaltimems_count", (("request", "Produce"),)): 3,
        ("kafka_network_requestmetrics_totaltimems", (("quantile", "0.5"), ("request", "InitProducerId"))): 1.5,
        ("kafka_network_requestmetrics_totaltimems_sum", (("request", "InitProducerId"),)): 3,
    }
    assert {key: found[key] for key in expected} == expected
    # This test covers every metric that the endpoint has.
    assert {name for name, _ in found} == {name for name, _ in expected} | {
        "kafka_network_requestmetrics_requests_total",
        # The tests of the metrics of share groups check its values.
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        "kafka_server_addpartitionstotxnmanager_verificationtimems_sum",
    }
    assert identity.producer_epoch == 0


def test_failing_metrics_collection_fails_only_that_request(cluster):
    class Broken(Measured):
        calls = 0

        def metrics(self):
            self.calls += 1
            if self.calls == 1:
                raise OSError("a full disk")
            return super().metrics()

    measured = Broken(cluster)
    with pytest.raises(HTTPError):
        served(measured)
    assert served(measured)


def test_occupied_metrics_port_is_reported_as_such(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}: "):
            MetricsEndpoint(Measured(cluster).metrics, "127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_invalid_metrics_port_is_refused(cluster, port):
    with pytest.raises(ConfigError, match=f"at port {port}: give one from 0 to 65535"):
        MetricsEndpoint(Measured(cluster).metrics, "127.0.0.1", port)


def test_closed_metrics_endpoint_stops_listening(cluster):
    endpoint = MetricsEndpoint(Measured(cluster).metrics, "127.0.0.1", 0)
    endpoint.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(endpoint.url, timeout=DEADLINE_S)


@pytest.fixture
def _without_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, MetricsEndpoint.__module__)


@pytest.mark.usefixtures("_without_library")
def test_broker_returns_its_metrics_without_the_client_library():
    with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:
        assert kafka.metrics.last_stable_offset_lag(("t", 0)) == 0


def test_standalone_broker_serves_its_metrics_until_stopped():
    with running("--port", "0", "--metrics-port", "0", pattern=rf"listening on (\S+, {URL})") as (process, found):
        address, _, url = found.partition(", metrics at ")
        produce(address, "t", [b"1"])
        metrics = scraped(url)
        assert metrics[("kafka_log_log_logendoffset", (("partition", "0"), ("topic", "t")))] == 1
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_occupied_port_is_reported_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(capsys, "--port", "0", "--metrics-port", str(taken.getsockname()[1]))
    assert "cannot serve metrics on 127.0.0.1:" in said


@pytest.mark.usefixtures("_without_library")
def test_missing_client_library_is_reported_in_one_line(capsys):
    assert "pip install prometheus-client" in refusal(capsys, "--port", "0", "--metrics-port", "0")
