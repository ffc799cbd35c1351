"""A broker on a socket that sends arbitrary responses to a real client."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from broker_core.wire import messages as m
from tests.fuzz.answers import HEADER, framed
from tests.support.messages import filled

API_VERSIONS, METADATA = 18, 3
_RANGES = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    18: (0, 4),
    19: (2, 7),
    22: (0, 5),
    24: (0, 5),
    26: (0, 5),
    27: (1, 1),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
}

# A function of a request's API key, version and correlation id. It returns all bytes to send, with the length of the
# frame, or None for no response, or a function that uses the socket.
Attack = Callable[[int, int, int], "bytes | Callable[[socket.socket], None] | None"]


class HostileBroker:
    """A broker on a local port that answers every request, or those of one API, with an attack; counts requests."""

    def __init__(self, attack: Attack, *, attacked: int | None = None) -> None:
        self.asked: Counter[int] = Counter()
        self.open = 0
        self._attack = attack
        self._attacked = attacked
        self._lock = threading.Lock()
        self._closing = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        return self.asked.total()

    def __enter__(self) -> Self:
        """Start listening."""
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and wait for all threads."""
        self._closing = True
        # Closing the socket does not wake a thread in accept(); shutting it down does.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.open += 1
            self._sockets.append(accepted)
            self._start(self._serve, accepted)

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError):
            while (length := _exactly(accepted, 4)) and (request := _exactly(accepted, int.from_bytes(length, "big"))):
                self._answer(accepted, request)
        with self._lock:
            self.open -= 1

    def _answer(self, accepted: socket.socket, request: bytes) -> None:
        api_key, version, correlation_id = HEADER.unpack_from(request)
        with self._lock:
            self.asked[api_key] += 1
        if self._attacked in (None, api_key):
            answer = self._attack(api_key, version, correlation_id)
        else:
            answer = framed(correlation_id, self._honest(api_key, version))
        if callable(answer):
            answer(accepted)
        elif answer is not None:
            accepted.sendall(answer)

    def _honest(self, api_key: int, version: int) -> bytes:
        if api_key == API_VERSIONS:
            keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in _RANGES.items()]
            return bytes(filled(m.ApiVersionsResponse, api_keys=keys).encode(version=version))
        if api_key == METADATA:
            return metadata_content(self.port, version)
        # This broker coordinates every group and transactional id.
        found = {"key": "id", "node_id": 1, "host": "127.0.0.1", "port": self.port, "error_message": None}
        return b"\0" + bytes(filled(m.FindCoordinatorResponse, coordinators=[found]).encode(version=version))


def metadata_content(port: int, version: int, *, host: str = "127.0.0.1") -> bytes:
    """Return the metadata of one broker and one topic that it leads, after the tags of a response header."""
    partition = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
    content = filled(
        m.MetadataResponse,
        cluster_id="c",
        controller_id=1,
        brokers=[{"node_id": 1, "host": host, "port": port, "rack": None}],
        topics=[{"name": "t", "topic_id": None, "partitions": [partition]}],
    ).encode(version=version)
    return (b"\0" if version >= 9 else b"") + bytes(content)


def _exactly(source: socket.socket, size_bytes: int) -> bytes:
    """Read that many bytes; return none if the other side closes the connection first."""
    data = b""
    while len(data) < size_bytes:
        piece = source.recv(size_bytes - len(data))
        if not piece:
            return b""
        data += piece
    return data


def flood(accepted: socket.socket) -> None:
    """Send frames that are no response to any request until the other side closes the connection."""
    many = struct.pack(">ii", 4, 0) * (1 << 16)
    while True:
        accepted.sendall(many)


def drip(accepted: socket.socket, size_bytes: int = 1 << 20) -> None:
    """Announce a long response and send a byte of it now and then, until the other side closes the connection."""
    accepted.sendall(struct.pack(">i", size_bytes))
    accepted.settimeout(0.02)
    while True:
        accepted.sendall(b"\0")
        with contextlib.suppress(TimeoutError):
            if not accepted.recv(1 << 10):
                return
