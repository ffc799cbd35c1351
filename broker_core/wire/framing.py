"""Cut a byte stream into frames, decode requests and encode responses.

A frame is an int32 length and that many bytes. A request starts with a header whose first eight bytes
(API key, version, correlation id) have never changed, so that a broker can answer even a version it does
not know: for ApiVersions it must, in the body format of version 0 (facts J.3).
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker_core.wire import messages as m
from broker_core.wire.nulls import check_nulls
from broker_core.wire.versions import API_VERSIONS_KEY, SERVED, Api

_LENGTH = struct.Struct(">i")
_FIXED_HEADER = struct.Struct(">hhi")
_RESPONSE_HEADER = struct.Struct(">ii")
_NO_TAGS = b"\0"


class MalformedFrame(ValueError):
    """Report bytes that are no Kafka request; the connection they came on is of no further use."""


class UnsupportedVersion(ValueError):
    """Report a request of an API or version that is not served."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one decoded request: its header fields and its body, a `wire.messages` object."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size_bytes: int


class FrameReader:
    """Collect bytes as they come and hand out whole frames."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes wait for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes from the stream; yield the frames they complete, without their length."""
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= 4:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if not 8 <= length <= self._max_frame_bytes:
                raise MalformedFrame(f"frame length {length} is outside 8..{self._max_frame_bytes}")
            if len(buffer) - position - 4 < length:
                break
            yield bytes(memoryview(buffer)[position + 4 : position + 4 + length])
            position += 4 + length
        if position:
            del buffer[:position]


def decode_request(frame: bytes) -> Request:
    """Decode a frame; raise `UnsupportedVersion` or `MalformedFrame`."""
    api_key, version, correlation_id = _FIXED_HEADER.unpack_from(frame)
    api = SERVED.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise UnsupportedVersion(api_key, version, correlation_id)
    try:
        stream = io.BytesIO(frame)
        header = m.RequestHeader.decode(stream, flexible=api.request.flexible_version_q(version))
        body = api.request.decode(memoryview(frame)[stream.tell() :], version=version)
        check_nulls(body, version)
    except Exception as error:  # noqa: BLE001 - the decoder raises many kinds on hostile bytes
        raise MalformedFrame(f"{api.name} v{version} cannot be decoded: {error!r}") from error
    return Request(api, version, correlation_id, header.client_id, body, len(frame))


def encode_response(request: Request, response: Any) -> bytes:
    """Encode a response for the version of its request, with length and header in front."""
    return _encode(response, request.version, request.correlation_id)


def refuse_api_versions(correlation_id: int, error_code: int) -> bytes:
    """Encode the answer to an ApiVersions request of a version we do not know: always in version 0."""
    api = SERVED[API_VERSIONS_KEY]
    ranges = [m.ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.advertised_min,
                                               max_version=api.max_version)]
    return _encode(m.ApiVersionsResponse(error_code=error_code, api_keys=ranges), 0, correlation_id)


def _encode(response: Any, version: int, correlation_id: int) -> bytes:
    body = response.encode(version=version)
    # ApiVersions has the short header in every version: who asks for it does not know yet what the broker speaks.
    is_flexible = response.flexible_version_q(version) and response.API_KEY != API_VERSIONS_KEY
    tags = _NO_TAGS if is_flexible else b""
    return b"".join((_RESPONSE_HEADER.pack(4 + len(tags) + len(body), correlation_id), tags, body))
