"""The HTTP endpoint of a process, where Prometheus reads its numbers."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from spark_eos.errors import OptionError
from spark_eos.metrics import PORT_OPTION, MetricsPlace, ProcessMetrics
from spark_eos.runtime import Runtime, process_state

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger: Final = logging.getLogger("spark_eos.metrics")


def check_servable(place: MetricsPlace | None) -> None:
    """Refuse to serve metrics where the library for it is missing, before any data is read or written."""
    if place is None:
        return
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"Option '{PORT_OPTION}' needs the package prometheus-client, which the driver does not have",
            remedy=f"pip install 'eos-kafka[metrics]' on the driver, or remove '{PORT_OPTION}'",
        ) from error


class ServedPorts:
    """Where this process serves numbers. None: the port was taken, which is warned of once and tried again."""

    def __init__(self, runtime: Runtime) -> None:
        self.by_place: dict[MetricsPlace, int | None] = {}


def serve(metrics: ProcessMetrics, place: MetricsPlace | None) -> int | None:
    """Serve the numbers from now on until the process ends; asked again, do nothing. Return the port.

    A taken port does not stop a query: it is warned of once and tried again the next time, for the process that has it
    may be the one that served this query before.
    """
    if place is None:
        return None
    ports = process_state().part(ServedPorts).by_place
    if ports.get(place) is not None:
        return ports[place]
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_PrometheusCollector(metrics))
    try:
        server, _ = start_http_server(place.port, place.host, registry)
    except OSError as error:
        if place not in ports:
            logger.warning(
                "metrics cannot be served on %s:%d: %s. The query goes on without; every process of the driver needs a "
                "port of its own: give source and sink, and each query, another '%s'",
                *place,
                error,
                PORT_OPTION,
            )
        ports[place] = None
        return None
    ports[place] = port = int(server.server_port)
    logger.info("metrics are served at http://%s:%d/metrics", place.host, port)
    return port


class _PrometheusCollector:
    """The numbers as Prometheus reads them."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        """Yield every number as it is now."""
        from prometheus_client.core import Metric

        for name, is_counter, values in self._metrics.families():
            full_name = f"{self._metrics.prefix}_{name}"
            family = Metric(full_name, name.replace("_", " "), "counter" if is_counter else "gauge")
            for labels, value in values.items():
                family.add_sample(f"{full_name}_total" if is_counter else full_name, dict(labels), value)
            yield family
