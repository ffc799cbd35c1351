"""Serve one client connection: frames in, answers out, in order.

As in Kafka, a connection has one request in work at a time: the next frame is looked at when the answer to
the one before has left. Clients may send ahead and rely on answers in the order of their requests.
"""

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from broker_core.broker.call import Call
from broker_core.broker.dispatch import dispatch
from broker_core.errors import ErrorCode
from broker_core.wire.framing import (
    FrameReader,
    MalformedFrame,
    UnsupportedVersion,
    decode_request,
    refuse_api_versions,
)
from broker_core.wire.versions import API_VERSIONS_KEY

if TYPE_CHECKING:
    from broker_core.broker.broker import Broker

log = logging.getLogger(__name__)

# About what a frame costs besides its bytes, so that many tiny requests count too.
_FRAME_OVERHEAD_BYTES = 100


class Transport(Protocol):
    """Carry bytes to the client."""

    def send(self, data: bytes) -> None:
        """Send bytes, in order."""
        ...

    def close(self) -> None:
        """Close the connection after what was sent."""
        ...


class Connection:
    """Hold the state of one connection to one broker."""

    def __init__(self, broker: "Broker", transport: Transport, client_host: str) -> None:
        self._broker = broker
        self._transport = transport
        self.client_host = client_host
        self._reader = FrameReader(broker.config.socket_request_max_bytes)
        self._frames: deque[bytes] = deque()
        self._current: Call | None = None
        self._busy = False
        self._paused = False
        self._damage: str | None = None
        self.waiting_bytes = 0
        self.closed = False

    def receive(self, data: bytes, now_ms: int) -> None:
        """Take bytes from the client."""
        if self.closed:
            return
        try:
            for frame in self._reader.feed(data):
                self._frames.append(frame)
                self.waiting_bytes += len(frame) + _FRAME_OVERHEAD_BYTES
        except MalformedFrame as error:
            # What came whole before the damage is still a request.
            self._damage = str(error)
        self._work(now_ms)

    def lost(self) -> None:
        """Note that the client is gone; answers under way have nobody to go to."""
        self.closed = True
        self._frames.clear()
        if self._current is not None:
            self._current.abandon()
            self._current = None

    def pause(self) -> None:
        """Take up no further request: the client does not read its answers."""
        self._paused = True

    def resume(self, now_ms: int) -> None:
        """Go on: the client has read."""
        self._paused = False
        self._work(now_ms)

    def finish(self, data: bytes | None) -> None:
        """Send the answer once what it promises is durable, then take up the next request."""
        def leave(now_ms: int) -> None:
            if self.closed:
                return
            if data is not None:
                self._transport.send(data)
            self._busy = False
            self._current = None
            self._work(now_ms)

        self._broker.outbox.put(leave)

    def hang_up(self, reason: str) -> None:
        """Close the connection, with one line in the log that says why."""
        log.warning("broker %d: closing connection from %s: %s", self._broker.broker_id, self.client_host, reason)
        self.lost()
        self._transport.close()

    def _work(self, now_ms: int) -> None:
        while self._frames and not (self._busy or self._paused or self.closed):
            self._busy = True
            frame = self._frames.popleft()
            self.waiting_bytes -= len(frame) + _FRAME_OVERHEAD_BYTES
            self._handle(frame, now_ms)
        if self._damage is not None and not (self._frames or self._busy or self.closed):
            self.hang_up(self._damage)

    def _handle(self, frame: bytes, now_ms: int) -> None:
        try:
            request = decode_request(frame)
        except UnsupportedVersion as error:
            if error.api_key == API_VERSIONS_KEY:
                self.finish(refuse_api_versions(error.correlation_id, ErrorCode.UNSUPPORTED_VERSION))
            else:
                self.hang_up(str(error))
            return
        except MalformedFrame as error:
            self.hang_up(str(error))
            return
        call = self._current = Call(request, self._broker, self, now_ms)
        try:
            dispatch(call)
        except Exception:
            # A bug of ours must not take other clients down with it; this one sees a lost connection and retries.
            log.exception("broker %d: %s v%d from %s failed", self._broker.broker_id, request.api.name,
                          request.version, self.client_host)
            self.hang_up("the request could not be handled")
