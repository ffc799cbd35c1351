"""An HTTP server in a thread of its own, on uvicorn, so that the broker's loop never runs its code."""

import socket
import threading
from typing import TYPE_CHECKING, Final, Self

import uvicorn

from broker_core.errors import ConfigError
from broker_core.server.acceptor import address_error
from broker_core.types import LAST_PORT, address_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STOP_S: Final = 5


class HttpThread:
    """The server of an ASGI app between `start` and `close` or for a `with` block; `url` is its address.

    The port is open from the creation on, so that a request waits until the start. Raises `ConfigError` for a port that
    is out of range, and OSError if it is in use; both call the app `what`.
    """

    def __init__(self, app: "ASGIApp", what: str, host: str, port: int) -> None:
        if not 0 <= port <= LAST_PORT:
            raise ConfigError(f"cannot serve the {what}: there is no port {port}; give one from 0 to {LAST_PORT}")
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise address_error(f"serve the {what}", host, port, error) from error
        self.url: Final = f"http://{address_text(host, self._socket.getsockname()[1])}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                http="h11",
                loop="asyncio",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name=what.replace(" ", "-"), daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving, and end the requests that wait; no effect if it has stopped."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
