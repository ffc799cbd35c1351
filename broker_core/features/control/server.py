"""The server of the control port."""

from collections.abc import Collection
from types import TracebackType
from typing import Self

from broker_core.embedded import EmbeddedBroker
from broker_core.features.control.app import control_app
from broker_core.features.control.guard import Guard
from broker_core.server.http_thread import HttpThread


class ControlServer:
    """The control port of a broker, between `start` and `close` or for a `with` block.

    `names` are further names of this machine that may be in the Host of a request. Raises `ConfigError` for a port that
    is out of range, and OSError if it is in use.
    """

    def __init__(
        self, kafka: EmbeddedBroker, *, host: str = "127.0.0.1", port: int = 0, names: Collection[str] = ()
    ) -> None:
        self._http = HttpThread(Guard(control_app(kafka), names), "control port", host, port)
        self.url = self._http.url

    def start(self) -> Self:
        """Start to serve. The port is open from the creation on, so that a request waits until then."""
        self._http.start()
        return self

    def close(self) -> None:
        """Stop serving, and end the calls that wait."""
        self._http.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
