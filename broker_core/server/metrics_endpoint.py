"""The HTTP endpoint for a broker's metrics, in Prometheus's text format, and the table of them.

`metrics.json` has the name, type, help text and attribute of each. Kafka's metrics are named as in the JMX exporter's
example configuration for Kafka (kafka-2_0_0.yml), so that Kafka dashboards can show them. The names of the others begin
with `broker_core_`.

prometheus-client handles requests in its own threads. The metrics are read in the broker's thread, so that all values
are of the same moment.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Final

from broker_core.broker.monitoring.metrics import COUNTER, BrokerMetrics, Durations, MetricRow, Samples, one
from broker_core.errors import ConfigError
from broker_core.installed import parts
from broker_core.server.acceptor import address_error
from broker_core.types import LAST_PORT, address_text

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import Metric
except ImportError as missing:
    raise ConfigError(
        "metrics need prometheus-client, which is not installed: "
        "run pip install prometheus-client, or omit --metrics-port"
    ) from missing

# The quantiles of Kafka's histograms.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


# The samples of metrics that are neither one attribute nor one value for each partition, and their labels.
_SAMPLES: Final[Mapping[str, tuple[Callable[[BrokerMetrics], Samples], tuple[str, ...]]]] = {
    "producer_ids": (lambda metrics: [({}, len(metrics.producer_ids))], ()),
    "transactional_ids": (
        lambda metrics: [({"state": state}, count) for state, count in sorted(metrics.transactional_ids.items())],
        ("state",),
    ),
    "requests(api).by_version": (
        lambda metrics: [
            ({"request": api, "version": str(version)}, count)
            for api, requests in metrics.by_api.items()
            for version, count in requests.by_version.items()
        ],
        ("request", "version"),
    ),
    "requests(api).errors": (
        lambda metrics: [
            ({"request": api, "error": error}, count)
            for api, requests in metrics.by_api.items()
            for error, count in requests.errors.items()
        ],
        ("request", "error"),
    ),
    "requests(api).latency_ms": (
        lambda metrics: [({"request": api}, requests.latency_ms) for api, requests in metrics.by_api.items()],
        ("request",),
    ),
}


def _row(name: str, kind: str, meaning: str, attribute: str) -> MetricRow:
    if attribute in _SAMPLES:
        return MetricRow(name, kind, meaning, attribute, *_SAMPLES[attribute])
    mark = attribute.removeprefix("partitions[partition].").removesuffix("(partition)")
    if mark == attribute:
        return one(name, kind, meaning, attribute)
    return MetricRow(name, kind, meaning, attribute, partial(_of_partitions, mark), ("topic", "partition"))


def _of_partitions(mark: str, metrics: BrokerMetrics) -> Samples:
    return [
        ({"topic": each.topic, "partition": str(each.partition)}, getattr(marks, mark))
        for each, marks in metrics.partitions.items()
    ]


_OF_THE_CORE: Final = [_row(*row) for row in json.loads(files(__package__).joinpath("metrics.json").read_text("utf-8"))]
_OF_FEATURES: Final = [row for feature in parts("metrics") for row in feature.ROWS]
# The metrics of requests, which are many, come last.
ROWS: Final = tuple(sorted([*_OF_THE_CORE, *_OF_FEATURES], key=lambda row: row.attribute.startswith("requests(api).")))


def families(metrics: BrokerMetrics) -> Iterator[Metric]:
    """Yield every metric with its samples; quantiles are of the latest 1,024 durations."""
    for row in ROWS:
        family = Metric(row.name, row.meaning, row.kind)
        for labels, value in row.samples(metrics):
            if isinstance(value, Durations):
                for share in _QUANTILES:
                    family.add_sample(row.name, {**labels, "quantile": str(share)}, value.quantile(share))
                family.add_sample(f"{row.name}_count", labels, value.count)
                family.add_sample(f"{row.name}_sum", labels, value.total_ms)
            else:
                family.add_sample(f"{row.name}_total" if row.kind == COUNTER else row.name, labels, value)
        yield family


class MetricsEndpoint:
    """The endpoint `http://host:port/metrics`, served until it is closed; `take` is called in its threads.

    Raises `ConfigError` if the port is invalid, `OSError` if it is in use.
    """

    def __init__(self, take: Callable[[], BrokerMetrics], host: str, port: int) -> None:
        if not 0 <= port <= LAST_PORT:
            raise ConfigError(f"metrics cannot be served at port {port}: give one from 0 to {LAST_PORT}")
        self._take = take
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise address_error("serve metrics", host, port, error) from error
        self.url: Final = f"http://{address_text(host, self._server.server_port)}/metrics"

    def collect(self) -> Iterator[Metric]:
        """Read the metrics for a request."""
        return families(self._take())

    def close(self) -> None:
        """Stop serving. Do not call it in the event loop's thread, for which a request may be waiting."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
