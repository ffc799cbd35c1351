"""The client's side of the protocol for requests inside the process: encoded requests, decoded responses."""

from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry

_LENGTH_BYTES = 4


def encode_request(request: Any, version: int, client_id: str | None, correlation_id: int = 0) -> bytes:
    # A body that was read in its plain form has no such attribute.
    request._header = None
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    frame: bytes = request.encode(header=True, framed=True)
    return frame


def decode_response(request: Any, frame: bytes) -> Any:
    form = ResponseClassRegistry.get_response_class(request.header)
    assert form is not None, f"{type(request).__name__} has no response"
    return form.decode(frame[_LENGTH_BYTES:], header=True)
