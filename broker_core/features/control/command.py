"""`broker-core --control-port`: the embedded broker and its control port, until SIGINT or SIGTERM.

The libraries of the control port are imported when it starts.
"""

import argparse
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from broker_core.errors import ConfigError, MissingExtraError

_HOST: Final = "127.0.0.1"


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


def start(arguments: argparse.Namespace, settings: Mapping[str, str]) -> Callable[[ExitStack], Any] | None:
    """Return what starts a broker with a control port, as the command wants it; None without `--control-port`.

    Raises `ConfigError` for an option that needs the port.
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
    return partial(_start, arguments, settings)


def _start(arguments: argparse.Namespace, settings: Mapping[str, str], after: ExitStack) -> Any:
    from broker_core.embedded import EmbeddedBroker
    from broker_core.features.control.server import ControlServer

    kafka = EmbeddedBroker(
        brokers=arguments.brokers,
        config=settings,
        data_dir=arguments.data_dir,
        host=arguments.host,
        port=arguments.port,
        clock=arguments.clock,
    )
    after.enter_context(kafka)
    names, port = arguments.control_name, arguments.control_port
    control = after.enter_context(ControlServer(kafka, host=arguments.control_host, port=port, names=names))
    return kafka._thread, kafka._call, kafka.produce, f"\nbroker_core is controlled at {control.url}"
