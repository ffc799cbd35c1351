"""The start of the registry, whose libraries are imported only then."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_core.errors import MissingExtraError
from broker_core.features.schema_registry.schema_topic import Producer

if TYPE_CHECKING:
    from broker_core.features.schema_registry.server import RegistryServer


def start_registry(
    call: Callable[[Callable[[Any], Any]], Any], produce: Producer, *, host: str = "127.0.0.1", port: int = 0
) -> "RegistryServer":
    """Return a registry that serves, as `RegistryServer` describes.

    Raises `MissingExtraError` if a library is not installed, OSError if the port is in use.
    """
    try:
        from broker_core.features.schema_registry.server import RegistryServer
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "a library", "registry") from error
    return RegistryServer(call, produce, host=host, port=port)
