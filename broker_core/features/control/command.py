"""`broker-core --control-port`: the embedded broker and its control port, until SIGINT or SIGTERM.

The libraries of the control port are imported when it starts.
"""

import argparse
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from broker_core.errors import ConfigError, MissingExtraError
from broker_core.installed import parts

_HOST: Final = "127.0.0.1"
_LOOK_AGAIN_S: Final = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--control-port",
        type=int,
        help="serve an HTTP/JSON API that controls the broker in tests, 0 for a free port, which is printed; needs the "
        "extra control; without the option it is not served",
    )
    parser.add_argument(
        "--control-host", default=_HOST, help="host of the control port, which has no password (%(default)s)"
    )
    parser.add_argument(
        "--control-name",
        action="append",
        default=[],
        help="a name of this machine that requests to the control port may use, besides localhost; may be repeated",
    )
    parser.add_argument(
        "--clock",
        choices=("real", "virtual"),
        default="real",
        help="virtual for a time that only the control port advances (%(default)s)",
    )


def run(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int | None:
    """Run a broker with the arguments of the command until a signal or a failure; return the exit code.

    Returns None without `--control-port`; `ConfigError` for an option that needs it. The other errors are those
    of the start: the broker logs a later one.
    """
    if arguments.control_port is None:
        if arguments.clock != "real":
            raise ConfigError("--clock virtual needs --control-port, which advances the time")
        is_other_host = arguments.control_host != _HOST
        for option, given in (("--control-host", is_other_host), ("--control-name", arguments.control_name)):
            if given:
                raise ConfigError(f"{option} needs --control-port: without it the control API is not served")
        return None
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "control") from error
    return _serve(arguments, settings)


def _serve(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
    from broker_core.embedded import EmbeddedBroker
    from broker_core.features.control.server import ControlServer
    from broker_core.server.listeners import started_line
    from broker_core.server.metrics_endpoint import MetricsEndpoint

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
        for beside in parts("service"):
            service = beside.start(arguments, lambda: (kafka._call, kafka.produce))
            if service is not None:
                after.callback(service.close)
                services[beside.NAME] = service.url
        names, port = arguments.control_name, arguments.control_port
        control = after.enter_context(ControlServer(kafka, host=arguments.control_host, port=port, names=names))
        level = kafka._call(lambda cluster: cluster.metadata.transaction_version)
        print(started_line(kafka.listeners, level, arguments.data_dir, services), flush=True)
        print(f"broker_core is controlled at {control.url}", flush=True)
        # It fails for example if it cannot write a log.
        while kafka._thread.failure is None and not stopping.wait(_LOOK_AGAIN_S):
            pass
    return 0 if kafka._thread.failure is None else 1
