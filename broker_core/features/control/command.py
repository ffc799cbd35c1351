"""`broker-core --control-port`: the embedded broker and its control port, until SIGINT or SIGTERM."""

import argparse
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack

from broker_core.embedded import EmbeddedBroker
from broker_core.features.control.server import ControlServer
from broker_core.features.schema_registry.starting import start_registry
from broker_core.server.listeners import started_line
from broker_core.server.metrics_endpoint import MetricsEndpoint

_LOOK_AGAIN_S = 1.0


def serve(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
    """Run a broker with the arguments of the command until a signal or a failure; return the exit code.

    The errors of `EmbeddedBroker` and `ControlServer` are those of the start; the broker logs a later one.
    """
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with ExitStack() as after:
        kafka = after.enter_context(
            EmbeddedBroker(
                brokers=arguments.brokers,
                config=settings,
                data_dir=arguments.data_dir,
                host=arguments.host,
                port=arguments.port,
                clock=arguments.clock,
            )
        )
        services = {}
        if arguments.metrics_port is not None:
            endpoint = MetricsEndpoint(lambda: kafka.metrics, arguments.host, arguments.metrics_port)
            after.callback(endpoint.close)
            services["metrics"] = endpoint.url
        if arguments.schema_registry_port is not None:
            registry = start_registry(
                kafka._call, kafka.produce, host=arguments.host, port=arguments.schema_registry_port
            )
            after.callback(registry.close)
            services["schema registry"] = registry.url
        names, port = arguments.control_name, arguments.control_port
        control = after.enter_context(ControlServer(kafka, host=arguments.control_host, port=port, names=names))
        level = kafka._call(lambda cluster: cluster.metadata.transaction_version)
        print(started_line(kafka.listeners, level, arguments.data_dir, services), flush=True)
        print(f"broker_core is controlled at {control.url}", flush=True)
        # It fails for example if it cannot write a log.
        while kafka._thread.failure is None and not stopping.wait(_LOOK_AGAIN_S):
            pass
    return 0 if kafka._thread.failure is None else 1
