"""Frames of a byte stream, decoded requests and encoded responses.

A frame is an int32 length and that many bytes. A request starts with a header whose first eight bytes
(API key, version, correlation id) have never changed, so that a broker can answer even a version it does
not know: for ApiVersions it must, in the body format of version 0 (rules J.3).
"""

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.types import Frame
from broker_core.wire import messages as m
from broker_core.wire.fetch_response import FetchedRecords, encode_fetch_response
from broker_core.wire.layout import API_VERSIONS_KEY, MalformedLayout, answer_has_tags, check_body, check_tags
from broker_core.wire.plain_produce import (
    END_TXN_KEY,
    PRODUCE_KEY,
    encode_end_txn_response,
    encode_produce_response,
    read_end_txn_request,
    read_produce_request,
)
from broker_core.wire.served import Secrets, ServedApi

_MOST: Final = 64
_bodies: dict[tuple[Any, ...], bytes] = {}


def encode_api_versions_response(response: Any, version: int) -> bytes:
    """Return the body of a response, from an earlier equal one if there is one."""
    content = (
        version,
        response.error_code,
        response.throttle_time_ms,
        response.finalized_features_epoch,
        response.zk_migration_ready,
        tuple((each.api_key, each.min_version, each.max_version) for each in response.api_keys),
        tuple((each.name, each.min_version, each.max_version) for each in response.supported_features),
        tuple((each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features),
    )
    body = _bodies.get(content)
    if body is None:
        if len(_bodies) >= _MOST:
            _bodies.clear()
        body = _bodies[content] = bytes(response.encode(version=version))
    return body


Response: TypeAlias = m.ApiMessage | FetchedRecords

_LENGTH = struct.Struct(">i")
_FIXED_HEADER = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CLIENT_ID_START = _FIXED_HEADER.size + _CLIENT_ID_LENGTH.size
_RESPONSE_HEADER = struct.Struct(">ii")
_NO_TAGS = b"\0"
_HTTP_METHODS = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PRI "})
_TLS_HANDSHAKE = b"\x16\x03"
# The APIs with a reader and a writer of the plain form; what these leave is read and written by the schema.
_READERS = {PRODUCE_KEY: read_produce_request, END_TXN_KEY: read_end_txn_request}
_WRITERS = {
    PRODUCE_KEY: encode_produce_response,
    END_TXN_KEY: encode_end_txn_response,
    API_VERSIONS_KEY: encode_api_versions_response,
}
_BROKER_CONFIGS = 4


# Whether a header ends with tagged fields; the schema of a class does not change.
_answer_has_tags: Final = cache(answer_has_tags)


@cache
def _has_tags(kind: type[Any], version: int) -> bool:
    return bool(kind.flexible_version_q(version))


class MalformedFrame(ValueError):
    """Bytes that are not a Kafka request; the connection cannot be used any more."""


class UnsupportedVersion(ValueError):
    """A request of an API or version that is not served."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class Request(NamedTuple):
    """One decoded request: its header fields and its body, a `wire.messages` object."""

    api: ServedApi
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size_bytes: int


class FrameReader:
    """The received bytes of a connection, split into frames."""

    def __init__(self, max_frame_bytes: int, min_frame_bytes: int = _FIXED_HEADER.size) -> None:
        self._buffer = bytearray()
        self.allow(max_frame_bytes, min_frame_bytes)

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def allow(self, max_frame_bytes: int, min_frame_bytes: int = _FIXED_HEADER.size) -> None:
        """Set the maximum length of the frames that are cut from now on."""
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes

    def feed(self, data: bytes | bytearray) -> Iterator[bytes | bytearray]:
        """Take bytes from the stream; yield the frames they complete, without their length."""
        buffer = self._buffer
        if not buffer and len(data) >= 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            # One whole frame, as clients with one request in flight send it.
            self._check_length(len(data) - 4)
            yield data[4:]
            return
        buffer += data
        position = 0
        while (end := self._frame_end(position)) is not None:
            yield bytes(memoryview(buffer)[position + 4 : end])
            position = end
        if position:
            del buffer[:position]

    def keep(self, data: bytes | bytearray) -> None:
        """Take bytes from the stream without looking at them yet."""
        self._buffer += data

    def cut(self) -> bytes | None:
        """Return the next frame of what was kept, or None if it is not whole."""
        end = self._frame_end(0)
        if end is None:
            return None
        frame = bytes(memoryview(self._buffer)[4:end])
        del self._buffer[:end]
        return frame

    def _check_length(self, length: int) -> None:
        if not self._min_frame_bytes <= length <= self._max_frame_bytes:
            raise MalformedFrame(
                f"frame length {length} is outside {self._min_frame_bytes}..{self._max_frame_bytes}"
                f"{_other_protocol(_LENGTH.pack(length))}"
            )

    def _frame_end(self, position: int) -> int | None:
        """Return the end of the frame at `position`, None while it is incomplete; refuse an invalid length at once."""
        if len(self._buffer) - position < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, position)
        self._check_length(length)
        end: int = position + 4 + length
        return end if end <= len(self._buffer) else None


def _other_protocol(first: bytes) -> str:
    """Return what the first four bytes say about a client of another protocol, if anything."""
    if first in _HTTP_METHODS:
        return ": the client speaks HTTP, and this is a port of Kafka's protocol"
    if first.startswith(_TLS_HANDSHAKE):
        return ": the client begins TLS, and this listener is plaintext: look at the client's security.protocol"
    return ""


def api_key_of(frame: bytes | bytearray) -> int:
    """Return a frame's API key without decoding the rest; -1 if it is too short."""
    return _FIXED_HEADER.unpack_from(frame)[0] if len(frame) >= _FIXED_HEADER.size else -1


def bare_frame(data: bytes) -> bytes:
    """Return bytes that are not a Kafka message, preceded by their length."""
    return _LENGTH.pack(len(data)) + data


def decode_request(frame: bytes | bytearray, served: Mapping[int, ServedApi]) -> Request:
    """Decode a frame of one of the served APIs; raise `UnsupportedVersion` or `MalformedFrame`."""
    api_key, version, correlation_id = _FIXED_HEADER.unpack_from(frame)
    api = served.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise UnsupportedVersion(api_key, version, correlation_id)
    try:
        client_id, position = _read_client_id(frame)
        if _has_tags(api.request, version):
            position = check_tags(frame, position)
        read = _READERS.get(api_key)
        body = None if read is None else read(frame, position, version)
        if body is None:
            content = memoryview(frame)[position:]
            check_body(api.request, version, content)
            body = api.request.decode(content, version=version)
    except MalformedLayout as malformed:
        raise MalformedFrame(f"{api.name} v{version} cannot be decoded: {malformed}") from None
    except Exception as error:
        # Some exceptions quote the malformed bytes, which may be a password.
        what = type(error).__name__ if api.secrets is Secrets.ASKED else repr(error)
        raise MalformedFrame(f"{api.name} v{version} cannot be decoded: {what}") from None
    return Request(api, version, correlation_id, client_id, body, len(frame))


def has_secrets(request: Request) -> bool:
    """Return whether a request or its response can contain a password, a token or the like."""
    if request.api.secrets is Secrets.OF_BROKERS:
        return any(resource.resource_type == _BROKER_CONFIGS for resource in request.body.resources)
    return request.api.secrets is not Secrets.NONE


def _read_client_id(frame: bytes | bytearray) -> tuple[str | None, int]:
    """Return the client id in a request's header, which has the same form in all versions, and its end."""
    (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _CLIENT_ID_START - _CLIENT_ID_LENGTH.size)
    if length < 0:
        return None, _CLIENT_ID_START
    end = _CLIENT_ID_START + length
    if end > len(frame):
        raise MalformedLayout(f"the client id takes {length} bytes where {len(frame) - _CLIENT_ID_START} are left")
    return frame[_CLIENT_ID_START:end].decode(), end


def encode_response(request: Request, response: Any) -> Frame:
    api, version, correlation_id, *_ = request
    if isinstance(response, FetchedRecords):
        return encode_fetch_response(response, version, correlation_id)
    write = _WRITERS.get(api.key)
    body: bytes | bytearray | None = None if write is None else write(response, version)
    if body is None:
        body = response.encode(version=version)
    tags = _NO_TAGS if _answer_has_tags(api.response, version) else b""
    return (b"".join((_RESPONSE_HEADER.pack(4 + len(tags) + len(body), correlation_id), tags, body)),)


def refuse_api_versions(correlation_id: int, error_code: int, served: Mapping[int, ServedApi]) -> Frame:
    """Encode the response to an ApiVersions request of an unknown version, in version 0."""
    api = served[API_VERSIONS_KEY]
    response = m.ApiVersionsResponse(error_code=error_code, api_keys=[api.advertised()])
    return encode_response(Request(api, 0, correlation_id, None, None, 0), response)
