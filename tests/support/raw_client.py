"""Kafka's protocol over one plain socket, one request at a time, without retries or checks."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from kafka.protocol.api_header import ResponseClassRegistry

DEADLINE_S = 30


class RawClient:
    """A client that sends a request at exactly the given version and returns the decoded response."""

    def __init__(self, bootstrap_servers: str, *, client_id: str = "raw-client", deadline_s: float = DEADLINE_S):
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=deadline_s)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def wait_at_most(self, seconds: float) -> None:
        """Set the deadline of each further step."""
        self._socket.settimeout(seconds)

    def send(self, request: Any, version: int) -> Any:
        """Send one request at the given version and return its response."""
        self.post(request, version)
        return self.collect(request)

    def post(self, request: Any, version: int) -> None:
        """Send one request without waiting for its response."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id=self._client_id)
        self.send_bytes(request.encode(header=True, framed=True))

    def collect(self, request: Any) -> Any:
        """Read the response to the request that was posted last."""
        response_class = ResponseClassRegistry.get_response_class(request.header)
        assert response_class is not None, f"no response class for {request!r}"
        response = response_class.decode(self.read_frame(), header=True)
        assert response.header.correlation_id == self._correlation_id
        return response

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(data)

    def read_frame(self) -> bytes:
        """Read one length-prefixed frame; ConnectionError when the peer has closed the connection."""
        (size_bytes,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(size_bytes)

    def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes the connection; return False if it sends something instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read_exactly(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            part = self._socket.recv(size_bytes - len(data))
            if not part:
                raise ConnectionError(f"connection closed after {len(data)} of {size_bytes} bytes")
            data += part
        return bytes(data)
