"""The reader of brokers' responses: a malformed response costs no more than its connection.

kafka-python trusts a broker: malformed bytes end its reader with any exception of the decoder, and the connection stays
open, unread, until the request times out; a few bytes can make it allocate memory for the longest frame, or loop for
hours. Here a frame allocates memory as its bytes arrive, and is checked against Kafka's schema before it is decoded.
Any violation is a `KafkaProtocolError`, on which kafka-python closes the connection and fails the pending requests.
"""

import functools
import io
import ssl
import struct
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslBytesResponse

from broker_core.types import counted
from broker_core.wire.layout import API_VERSIONS_KEY, MalformedLayout, answer_has_tags, check_body, check_tags
from spark_eos.errors import UnansweredError

if TYPE_CHECKING:
    from kafka.net.connection import KafkaConnection
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.transport import KafkaTCPTransport
    from kafka.protocol.api_message import ApiMessage

Part = TypeVar("Part")
NoteVersions: TypeAlias = Callable[[ApiVersionsResponse], None]
ReadResponse: TypeAlias = Callable[[int, memoryview], object]

_LENGTH: Final = struct.Struct(">i")
_RECEIVED_AT_ONCE_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16
# The default size of a fetch. The operating system allocates memory only when it is written to.
_FRAME_STEP_BYTES: Final = 5 << 20
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")


class MalformedResponse(kafka_errors.KafkaProtocolError):  # type: ignore[misc]
    """Bytes that are not a response to the request."""

    def __str__(self) -> str:
        return str(self.args[0])


def install_response_reader(
    manager: "KafkaConnectionManager",
    note_versions: NoteVersions | None = None,
    prepare: Callable[[Any], None] | None = None,
) -> None:
    """Make every connection that kafka-python's manager opens from now on use this reader.

    `note_versions` is called with each ApiVersions response: kafka-python drops the features in it. `prepare` is called
    with each transport before it is used.
    """
    manager._connect = functools.partial(
        _connect, weakref.proxy(manager), type(manager)._connect, note_versions, prepare
    )


async def _connect(
    manager: "KafkaConnectionManager",
    connect: Any,
    note_versions: NoteVersions | None,
    prepare: Callable[[Any], None] | None,
    node: Any,
    connection: "KafkaConnection",
    **how: Any,
) -> None:
    made = connection.connection_made
    # The manager limits all connections to the versions of the first broker, although it may have been upgraded since.
    connection.broker_version_data = None

    def connection_made(transport: "KafkaTCPTransport") -> None:
        if prepare is not None:
            prepare(transport)
        made(transport)
        reader = ResponseReader(
            client_id=connection.config["client_id"],
            receive_message_max_bytes=connection.config["receive_message_max_bytes"],
        )
        reader.note_versions = note_versions
        connection.parser = reader
        transport._sock_recv = functools.partial(_receive, transport, reader.frame)

    connection.connection_made = connection_made
    await connect(manager, node, connection, **how)


def _receive(transport: "KafkaTCPTransport", frame: "_LargeFrame | None" = None) -> tuple[bytes, BaseException | None]:
    """Read what has arrived, up to a limit: a broker that never stops sending must not block the loop.

    The bytes of a large frame are received into its buffer; the others are returned.
    """
    sock = transport._sock
    is_tls = isinstance(sock, ssl.SSLSocket)
    pieces: list[bytes] = []
    size_bytes = 0
    # Data that TLS has already decrypted does not wake the selector, so read it now.
    while size_bytes < _RECEIVED_AT_ONCE_BYTES or (is_tls and sock.pending()):
        try:
            if frame is not None and frame.is_open() and not pieces:
                taken = frame.fill(sock.recv_into)
                full = frame.is_open()
            else:
                piece = sock.recv(_PIECE_BYTES)
                pieces.append(piece)
                taken, full = len(piece), len(piece) == _PIECE_BYTES
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except OSError as error:
            return b"", kafka_errors.KafkaConnectionError(error)
        if not taken:
            if size_bytes:
                break
            return b"", kafka_errors.KafkaConnectionError("socket disconnected")
        size_bytes += taken
        if not full and not is_tls:
            # There is no more: what arrives from now on wakes the selector.
            break
    return b"".join(pieces), None


class _LargeFrame:
    """A large frame that is being received directly from the socket."""

    def __init__(self) -> None:
        self._data = memoryview(b"")
        self._size_bytes = self._filled_bytes = 0

    def is_open(self) -> bool:
        return self._filled_bytes < self._size_bytes

    def open(self, size_bytes: int, first: bytes | bytearray | memoryview) -> None:
        """Begin a frame of which some bytes are there; memory is allocated in steps, because a length can be wrong."""
        self._size_bytes, self._filled_bytes = size_bytes, len(first)
        self._data = _space(min(size_bytes, max(_FRAME_STEP_BYTES, 2 * len(first))))
        self._data[: len(first)] = first

    def fill(self, receive_into: Callable[[memoryview], int]) -> int:
        if self._filled_bytes == len(self._data):
            space = _space(min(2 * len(self._data), self._size_bytes))
            space[: self._filled_bytes] = self._data
            self._data = space
        taken = receive_into(self._data[self._filled_bytes :])
        self._filled_bytes += taken
        return taken

    def take(self) -> memoryview | None:
        if self.is_open() or not self._size_bytes:
            return None
        data, self._data = self._data, memoryview(b"")
        self._size_bytes = self._filled_bytes = 0
        return data


def _space(size_bytes: int) -> memoryview:
    """Return memory as it is; to fill it with zeros, as a bytearray does, takes half as long as to receive a frame."""
    try:
        import numpy as np
    except ImportError:
        # The operator's command is installed without it.
        return memoryview(bytearray(size_bytes))
    return np.empty(size_bytes, np.uint8).data


class ResponseReader(KafkaProtocol):  # type: ignore[misc]
    """The reader of one connection: splits its stream into frames, and decodes them as responses to requests."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.frame = _LargeFrame()
        self._received = bytearray()
        self._readers: dict[int, ReadResponse] = {}
        self.note_versions: NoteVersions | None = None

    def send_request(self, request: "ApiMessage", correlation_id: int | None = None) -> int:
        """Encode a request for sending; one with a method `read_response` decodes the body of its response itself."""
        number: int = super().send_request(request, correlation_id)
        reader = getattr(request, "read_response", None)
        if reader is not None:
            self._readers[number] = reader
        return number

    def receive_bytes(self, data: bytes) -> list[tuple[int, object]]:
        """Process bytes; return the responses they complete with their correlation ids, or raise KafkaProtocolError."""
        rest = memoryview(data)
        while rest and self.frame.is_open():
            taken = self.frame.fill(functools.partial(_copy_into, rest))
            rest = rest[taken:]
        whole = self.frame.take()
        answers = [] if whole is None else [self._answer(whole)]
        if self.frame.is_open():
            return answers
        self._received += rest
        position = 0
        while len(self._received) - position >= _LENGTH.size:
            (size_bytes,) = _LENGTH.unpack_from(self._received, position)
            self._validate_frame_size(size_bytes)
            begin = position + _LENGTH.size
            end = begin + size_bytes
            if end > len(self._received):
                if size_bytes > _PIECE_BYTES:
                    self.frame.open(size_bytes, memoryview(self._received)[begin:])
                    position = len(self._received)
                break
            frame = bytes(memoryview(self._received)[begin:end])
            position = end
            answers.append(self._answer(frame))
        del self._received[:position]
        return answers

    def _answer(self, frame: bytes | memoryview) -> tuple[int, object]:
        if not self.in_flight_requests:
            raise MalformedResponse("response without a request")
        request = self.in_flight_requests.popleft()
        kind = request.get_response_class()
        if kind is None:
            raise MalformedResponse(f"no response type is known for API key {request.request_api_key}")
        reader = self._readers.pop(request.correlation_id, None)
        try:
            if isinstance(kind, SaslBytesResponse):
                stream = io.BytesIO(frame)
                _check_number(request, kind.parse_header(stream).correlation_id)
                return request.correlation_id, kind.decode(stream)
            version = request.request_api_version
            body = _body(frame, kind, request)
            if reader is not None:
                return request.correlation_id, reader(version, body)
            check_body(kind, _version_of(kind, version, body), body)
            answer = kind.decode(body)
            if kind.API_KEY == API_VERSIONS_KEY and self.note_versions is not None:
                self.note_versions(answer)
            return request.correlation_id, answer
        except kafka_errors.KafkaProtocolError:
            raise
        except MalformedLayout as error:
            what = f"{kind.name} version {request.request_api_version}"
            raise MalformedResponse(f"{what} cannot be decoded: {error}") from None
        except Exception as error:
            raise MalformedResponse(f"a response cannot be decoded, {type(error).__name__}: {error}") from None


def _copy_into(source: memoryview, space: memoryview) -> int:
    size_bytes = min(len(source), len(space))
    space[:size_bytes] = source[:size_bytes]
    return size_bytes


def _body(frame: bytes | memoryview, kind: "type[ApiMessage]", request: Any) -> memoryview:
    view = memoryview(frame).toreadonly()
    _check_number(request, *_CORRELATION_ID.unpack_from(view))
    position = _CORRELATION_ID.size
    return view[check_tags(view, position) if answer_has_tags(kind, request.request_api_version) else position :]


def _check_number(request: Any, answered: int) -> None:
    if answered != request.correlation_id:
        raise MalformedResponse(f"request {request.correlation_id} received the response to request {answered}")


def _version_of(kind: "type[ApiMessage]", version: int, body: memoryview) -> int:
    if kind.API_KEY == API_VERSIONS_KEY and len(body) >= _ERROR_CODE.size and _ERROR_CODE.unpack_from(body)[0]:
        # A broker that does not support the requested version reports that in the oldest one.
        return 0
    return version


def asked_part(parts: Iterable[Part], is_asked: Callable[[Part], bool], what: str) -> Part:
    """Return the item of a response that was asked for; raise `UnansweredError` if it is missing."""
    for each in parts:
        if is_asked(each):
            return each
    raise UnansweredError(f"{what}: the broker's response does not include the requested item")


def whole_code(code: int, asked: Collection[object], answered: Collection[object], what: str) -> int:
    """Return the code of a response; raise `UnansweredError` if one without an error omits a requested item."""
    left_out = [] if code else [each for each in asked if each not in answered]
    if left_out:
        others = f" and {counted(len(left_out) - 1, 'other')}" if len(left_out) > 1 else ""
        raise UnansweredError(f"{what}: the broker's response omits {left_out[0]}{others}")
    return code
