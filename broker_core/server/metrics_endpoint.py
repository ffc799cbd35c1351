"""The HTTP endpoint for a broker's metrics, in Prometheus's text format.

prometheus-client handles requests in its own threads. The metrics are read in the broker's thread, so that all values
are of the same moment.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker_core.broker.monitoring.metrics import BrokerMetrics
from broker_core.errors import ConfigError
from broker_core.server.acceptor import address_error
from broker_core.types import LAST_PORT, address_text

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# A request may have to open and recover logs that were not used since the start.
class MetricsEndpoint:
    """The endpoint `http://host:port/metrics`, served until it is closed; `take` is called in its threads.

    Raises `ConfigError` if prometheus-client is not installed or the port is invalid, `OSError` if the port is in use.
    """

    def __init__(self, take: Callable[[], BrokerMetrics], host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise ConfigError(
                "metrics need prometheus-client, which is not installed: "
                "run pip install prometheus-client, or omit --metrics-port"
            ) from error
        if not 0 <= port <= LAST_PORT:
            raise ConfigError(f"metrics cannot be served at port {port}: give one from 0 to {LAST_PORT}")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_MetricsCollector(take))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise address_error("serve metrics", host, port, error) from error
        self.url: Final = f"http://{address_text(host, self._server.server_port)}/metrics"

    def close(self) -> None:
        """Stop serving. Do not call it in the event loop's thread, for which a request may be waiting."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _MetricsCollector:
    """The collector that reads the metrics for each request."""

    def __init__(self, take: Callable[[], BrokerMetrics]) -> None:
        self._take = take

    def collect(self) -> "Iterable[Metric]":
        from broker_core.server.metrics_families import families

        return list(families(self._take()))
