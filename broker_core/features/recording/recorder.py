"""The recorder of requests and responses: one JSON line for each, in the order of handling and sending.

The first line names the format. Requests and responses that can contain secrets are left out: only a line names them.
"""

import base64
import json
from collections.abc import Callable, Mapping

from broker_core.types import Frame
from broker_core.wire.framing import Request, has_secrets

FORMAT = "broker_core requests"
FORMAT_VERSION = 1


class Recorder:
    """The recorder of all connections of a cluster; `write` takes one line.

    A line that cannot be written ends the recording, not the broker: `failure` is the error.
    """

    def __init__(self, write: Callable[[str], object], topics: Mapping[str, int], broker_ids: range) -> None:
        self._write = write
        self._connections: dict[object, int] = {}
        self._count = 0
        # The requests that wait for their response, by connection and correlation id.
        self._waiting: set[tuple[int, int]] = set()
        self.failure: OSError | None = None
        self._line(format=FORMAT, version=FORMAT_VERSION, brokers=list(broker_ids), topics=dict(topics))

    def asked(
        self, connection: object, broker_id: int, frame: bytes | bytearray, request: Request, now_ms: int
    ) -> None:
        """Record a request that is about to be handled."""
        number = self._connections.get(connection)
        if number is None:
            self._count += 1
            number = self._connections[connection] = self._count
        about = self._about(number, request, now_ms) | {"broker": broker_id, "client_id": request.client_id}
        if has_secrets(request):
            self._line(kind="left out", **about)
            return
        self._waiting.add((number, request.correlation_id))
        self._line(kind="request", **about, frame=base64.b64encode(frame).decode())

    def answered(self, connection: object, request: Request, data: Frame, now_ms: int) -> None:
        """Record a response that is about to be sent, if its request is recorded."""
        number = self._connections.get(connection, 0)
        if (number, request.correlation_id) in self._waiting:
            self._waiting.remove((number, request.correlation_id))
            # Without the length in front, as in the line of the request.
            frame = base64.b64encode(b"".join(data)[4:]).decode()
            self._line(kind="response", **self._about(number, request, now_ms), frame=frame)

    def closed(self, connection: object) -> None:
        """Record the end of a connection that has sent a request."""
        number = self._connections.pop(connection, None)
        if number is not None:
            self._waiting = {each for each in self._waiting if each[0] != number}
            self._line(kind="closed", connection=number)

    @staticmethod
    def _about(number: int, request: Request, now_ms: int) -> dict[str, object]:
        return {
            "connection": number,
            "time_ms": now_ms,
            "correlation_id": request.correlation_id,
            "api": request.api.name,
            "version": request.version,
        }

    def _line(self, **fields: object) -> None:
        if self.failure is None:
            try:
                self._write(json.dumps(fields) + "\n")
            except OSError as error:
                self.failure = error
