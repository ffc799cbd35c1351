"""The HTTP endpoint of a process that Prometheus scrapes."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from spark_eos.errors import OptionError
from spark_eos.metrics import PORT_OPTION, MetricsPlace, ProcessMetrics
from spark_eos.runtime import Runtime, shared_state

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger: Final = logging.getLogger("spark_eos.metrics")


def check_servable(place: MetricsPlace | None) -> None:
    """Refuse to serve metrics if the library for it is missing, before any data is read or written."""
    if place is None:
        return
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"Option '{PORT_OPTION}' needs the package prometheus-client, which is not installed on the driver",
            remedy=f"Run `pip install 'eos-kafka[metrics]'` on the driver, or remove '{PORT_OPTION}'",
        ) from error


class ServedPorts:
    """The ports of this process. None: the port was in use, which is logged once, and is tried again."""

    def __init__(self, runtime: Runtime) -> None:
        self.by_place: dict[MetricsPlace, int | None] = {}


def serve(metrics: ProcessMetrics, place: MetricsPlace | None) -> int | None:
    """Serve the metrics until the process ends, and return the port; further calls do nothing.

    A port in use does not stop a query: it is logged once and tried again the next time, because the process that uses
    it may be the one that served this query before.
    """
    if place is None:
        return None
    ports = shared_state().part(ServedPorts).by_place
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
                "cannot serve metrics on %s:%d: %s. The query continues without them. Every process of the "
                "driver needs its own port: give each source, sink and query a different '%s'",
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
    """The metrics as Prometheus reads them."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        """Yield every metric with its current value."""
        from prometheus_client.core import Metric

        for name, is_counter, values in self._metrics.families():
            full_name = f"{self._metrics.prefix}_{name}"
            known = self._metrics.definitions.get(name)
            meaning = name.replace("_", " ") if known is None else known.meaning
            family = Metric(full_name, meaning, "counter" if is_counter else "gauge")
            for labels, value in values.items():
                family.add_sample(f"{full_name}_total" if is_counter else full_name, dict(labels), value)
            yield family
