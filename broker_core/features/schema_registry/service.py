"""The registry as a service beside a broker; its libraries are imported when it starts."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker_core.errors import MissingExtraError

if TYPE_CHECKING:
    from broker_core.features.schema_registry.schema_topic import Producer
    from broker_core.features.schema_registry.server import RegistryServer

NAME: Final = "schema registry"

Call = Callable[[Callable[[Any], Any]], Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema-registry-port",
        type=int,
        help="serve a schema registry at this port of --host, 0 for a free one; needs the extra registry; without the "
        "option there is none",
    )


def start(arguments: argparse.Namespace, access: "Callable[[], tuple[Call, Producer]]") -> "RegistryServer | None":
    """Return a registry that serves at the port of the option; None without the option."""
    port = arguments.schema_registry_port
    return None if port is None else start_registry(*access(), host=arguments.host, port=port)


def start_registry(call: Call, produce: "Producer", *, host: str = "127.0.0.1", port: int = 0) -> "RegistryServer":
    """Return a registry that serves, as `RegistryServer` describes.

    Raises `MissingExtraError` if a library is not installed, OSError if the port is in use.
    """
    try:
        from broker_core.features.schema_registry.server import RegistryServer
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "a library", "registry") from error
    return RegistryServer(call, produce, host=host, port=port)
