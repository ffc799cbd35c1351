"""One client connection, which reads frames and sends responses in order.

As in Kafka, a connection handles one request at a time: the next frame is read when the response to the previous
one has been sent. Clients may pipeline requests and rely on responses in the same order.

Produce requests in sequence are the exception: the next is handled as soon as the previous one is answered, and the
answers wait for one sync together. Otherwise a producer with five requests in flight would need five syncs.

A handler gets the context of a request, and returns the response or answers later. If it lets `Unauthorized` pass, the
whole request is answered with that error; at a broker that is cut off, with any `KafkaError`. All other exceptions are
bugs: the connection is closed and the broker continues.

On a listener with SASL, only the steps of authentication are accepted until it is complete: other requests are
not decoded, and a frame may be no longer than a token.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from functools import partial
from typing import Any, Final, Protocol

from broker_core.broker.apis import APIS
from broker_core.broker.authorization import Unauthorized
from broker_core.broker.broker import Broker
from broker_core.broker.endpoints import PLAINTEXT, Listener
from broker_core.broker.fault_injection import FaultInjector
from broker_core.broker.handlers.security import answer_out_of_turn
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.principals import ANONYMOUS, Principal
from broker_core.security.sasl import AuthenticationFailed, SaslSession, Step
from broker_core.types import Frame
from broker_core.wire.error_responses import error_response
from broker_core.wire.framing import (
    FrameReader,
    MalformedFrame,
    Request,
    UnsupportedVersion,
    api_key_of,
    bare_frame,
    decode_request,
    refuse_api_versions,
)
from broker_core.wire.layout import API_VERSIONS_KEY
from broker_core.wire.plain_produce import PRODUCE_KEY
from broker_core.wire.served import SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY

logger = logging.getLogger(__name__)

# The approximate overhead of a frame in addition to its bytes, so that many tiny requests count too.
_FRAME_OVERHEAD_BYTES = 100
_STEPS = {API_VERSIONS_KEY: Step.VERSIONS, SASL_HANDSHAKE_KEY: Step.HANDSHAKE, SASL_AUTHENTICATE_KEY: Step.TOKEN}


class State(StrEnum):
    """What a connection does with requests."""

    # The next request is handled.
    READY = auto()
    # A request is handled, or waits for its response.
    HANDLING = auto()
    # Responses to Produce wait for a sync; of requests, only another Produce is handled.
    PIPELINING = auto()
    # A Produce is handled while responses to earlier ones wait for a sync.
    OVERLAPPING = auto()
    # A response waits for a sync, and the next request waits for that response.
    ANSWERING = auto()
    # The connection is closed when the responses that wait have left.
    ENDING = auto()
    # Nothing is read or sent.
    CLOSED = auto()


class Event(StrEnum):
    """What changes the state of a connection."""

    # A request begins.
    FRAME = auto()
    # A Produce has a response, which does not make the next one wait.
    PRODUCED = auto()
    # Any other request has a response.
    ANSWERED = auto()
    # No response waits any more.
    ALL_LEFT = auto()
    # The broker gives the connection up.
    ENDED = auto()


# The next state. What is missing cannot happen: a response there would have no request, or be its second one.
NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.READY, Event.FRAME): State.HANDLING,
    (State.READY, Event.ENDED): State.CLOSED,
    (State.HANDLING, Event.PRODUCED): State.PIPELINING,
    (State.HANDLING, Event.ANSWERED): State.ANSWERING,
    (State.HANDLING, Event.ENDED): State.CLOSED,
    (State.PIPELINING, Event.FRAME): State.OVERLAPPING,
    (State.PIPELINING, Event.ALL_LEFT): State.READY,
    (State.PIPELINING, Event.ENDED): State.ENDING,
    (State.OVERLAPPING, Event.PRODUCED): State.PIPELINING,
    (State.OVERLAPPING, Event.ANSWERED): State.ANSWERING,
    (State.OVERLAPPING, Event.ALL_LEFT): State.HANDLING,
    (State.OVERLAPPING, Event.ENDED): State.ENDING,
    (State.ANSWERING, Event.ALL_LEFT): State.READY,
    (State.ANSWERING, Event.ENDED): State.ENDING,
    # A request that was given up may still be answered.
    (State.ENDING, Event.PRODUCED): State.ENDING,
    (State.ENDING, Event.ANSWERED): State.ENDING,
    (State.ENDING, Event.ENDED): State.ENDING,
    (State.ENDING, Event.ALL_LEFT): State.CLOSED,
    **dict.fromkeys(((State.CLOSED, event) for event in Event), State.CLOSED),
}
# Where a request may begin, and where no bytes are read.
_OPEN: Final = (State.READY, State.PIPELINING)
_OVER: Final = (State.ENDING, State.CLOSED)


class Hold(StrEnum):
    """What else the next request waits for."""

    # The client does not read its responses.
    CLIENT = auto()
    # The client is throttled.
    QUOTA = auto()
    # The connection moves to another cluster.
    CLUSTER = auto()


class ClientTransport(Protocol):
    """The socket to the client, as a connection sees it."""

    def send(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class Connection:
    """The state of one connection to one broker."""

    def __init__(
        self,
        broker: Broker,
        transport: ClientTransport,
        client_host: str,
        listener: Listener | None = None,
        principal: Principal = ANONYMOUS,
        interceptor: FaultInjector | None = None,
    ) -> None:
        self._broker = broker
        self._transport = transport
        self._interceptor = interceptor
        self.client_host = client_host
        self.listener = listener or Listener(PLAINTEXT, broker.controller.addresses)
        self.sasl = SaslSession(self.listener.sasl) if self.listener.sasl is not None else None
        self._principal = principal
        if self.sasl is None:
            self._reader = FrameReader(broker.config.socket_request_max_bytes)
        else:
            # A bare token may be empty.
            self._reader = FrameReader(self.sasl.settings.max_receive_bytes, 0)
        # Whether the client's requests are read ahead, which includes re-authentication.
        self._is_let_in = self.sasl is None
        self._frames: deque[bytes | bytearray] = deque()
        self._current: RequestContext | None = None
        self.state = State.READY
        self._holds: set[Hold] = set()
        # The number of responses that wait for a sync.
        self._unsent = 0
        # Why no further frame can be cut, and why the connection ends.
        self._damage: str | None = None
        self._reason = ""
        self._now_ms = 0
        self.waiting_bytes = 0
        # Called with the time when the connection is lost.
        self.on_lost: Callable[[int], None] | None = None

    @property
    def principal(self) -> Principal:
        return self._principal if self.sasl is None else self.sasl.principal

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def is_busy(self) -> bool:
        return self.state is not State.READY

    def is_far_ahead(self, max_waiting_bytes: int) -> bool:
        """Return whether the pending requests exceed the limit for reading; it is lower before authentication."""
        if self._is_let_in or self.sasl is None:
            return self.waiting_bytes > max_waiting_bytes
        return self._reader.buffered_bytes > min(self.sasl.settings.max_receive_bytes + 4, max_waiting_bytes)

    def receive(self, data: bytes | bytearray, now_ms: int) -> bool:
        """Process bytes from the client; return False if they only continue a frame, so that nothing has changed."""
        if self.state in _OVER:
            return False
        if self._is_let_in:
            self._cut(data)
            if not self._frames and self._damage is None:
                return False
        else:
            # The limit on a frame's length is known only when the previous frame has been handled.
            self._reader.keep(data)
        self._work(now_ms)
        return True

    def _cut(self, data: bytes | bytearray) -> None:
        try:
            for frame in self._reader.feed(data):
                self._frames.append(frame)
                self.waiting_bytes += len(frame) + _FRAME_OVERHEAD_BYTES
        except MalformedFrame as error:
            # Whole frames before the malformed one are still handled.
            self._damage = str(error)

    def lost(self) -> bool:
        """Handle the loss of the connection; pending responses are dropped. Return whether the cluster must settle."""
        if not self.closed and self._interceptor is not None and self._interceptor.recorder is not None:
            self._interceptor.recorder.closed(self)
        self.state = State.CLOSED
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            # What it writes is synced like the writes of a request, and a cluster that has crashed does not run it.
            self._broker.sync_queue.put(on_lost)
        self._frames.clear()
        if self._current is not None:
            self._current.abandon()
            self._current = None
        return on_lost is not None

    def hold(self, why: Hold) -> None:
        """Handle no further request until `release` or `attach`."""
        self._holds.add(why)

    def release(self, why: Hold, now_ms: int) -> None:
        self._holds.discard(why)
        self._work(now_ms)

    def attach(self, broker: Broker, listener: Listener, now_ms: int) -> None:
        """Continue with a broker of another cluster, with the client's principal and the requests that are queued."""
        assert not self.is_busy, "the request in progress belongs to the other cluster"
        self._broker, self.listener = broker, listener
        self.on_lost = None
        if self.sasl is not None and listener.sasl is not None:
            self.sasl.settings = listener.sasl
        self._holds &= {Hold.CLIENT}
        self._work(now_ms)

    def finish(self, data: Frame | None, throttle_ms: int = 0, refusal: str | None = None) -> None:
        """Send the response once the writes it confirms are durable, then handle the next request.

        A throttled client gets its response at once; its next request is handled after the given time (KIP-219).
        After a refusal, which says why, the connection is closed; a delay before it slows down password guessing.
        """
        current, self._current = self._current, None
        request = None
        if current is not None:
            api, version, correlation_id, client_id, _, size_bytes = current.request
            # Without the body, so that records are freed before the response leaves, not kept for all in flight.
            request = Request(api, version, correlation_id, client_id, None, size_bytes)
        is_produce = request is not None and request.api.key == PRODUCE_KEY and not throttle_ms
        leave = partial(self._leave, data, request, 0.0 if current is None else current.began_ms, throttle_ms)
        self.state = NEXT[self.state, Event.PRODUCED if is_produce else Event.ANSWERED]
        self._unsent += 1
        delay_ms = 0
        if refusal is not None:
            self.hang_up(refusal)
            assert self.listener.sasl is not None
            delay_ms = self.listener.sasl.failure_delay_ms
        if delay_ms:
            self._broker.purgatory.at(self._now_ms + delay_ms, leave)
        else:
            self._broker.sync_queue.put(leave)

    def _leave(
        self, data: Frame | None, request: Request | None, began_ms: float, throttle_ms: int, now_ms: int
    ) -> None:
        if self.state is State.CLOSED:
            return
        if request is not None:
            # Before the response is sent, so that a client that has it finds its request counted.
            self._broker.meters.answered(request, began_ms)
        if data is not None:
            if request is not None and self._interceptor is not None and self._interceptor.recorder is not None:
                self._interceptor.recorder.answered(self, request, data, now_ms)
            self._transport.send(data)
        if throttle_ms:
            self.hold(Hold.QUOTA)
            self._broker.throttled.at(now_ms + throttle_ms, partial(self.release, Hold.QUOTA))
        self._unsent -= 1
        if not self._unsent:
            self._enter(Event.ALL_LEFT)
        self._work(now_ms)

    def hang_up(self, reason: str) -> None:
        """Close the connection after the responses that wait for a sync, and log the reason in one line."""
        if self.state not in _OVER:
            self._reason = reason
            self._frames.clear()
            self.waiting_bytes = 0
        self._enter(Event.ENDED)

    def _enter(self, event: Event) -> None:
        state = NEXT[self.state, event]
        if state is not State.CLOSED or self.closed:
            self.state = state
            return
        logger.warning(
            "broker %d: closing connection from %s: %s", self._broker.broker_id, self.client_host, self._reason
        )
        self.lost()
        self._transport.close()

    def _work(self, now_ms: int) -> None:
        self._now_ms = now_ms
        while (self._frames or not self._is_let_in) and not self._holds and self.state in _OPEN:
            if self.state is State.PIPELINING and not (self._frames and api_key_of(self._frames[0]) == PRODUCE_KEY):
                break
            frame = self._next_frame()
            if frame is None:
                break
            self.state = NEXT[self.state, Event.FRAME]
            if self.sasl is None:
                self._serve(frame, now_ms)
            else:
                self._handle(frame, self.sasl, now_ms)
        if self._damage is not None and not self._frames and self.state in _OPEN:
            self.hang_up(self._damage)

    def _next_frame(self) -> bytes | bytearray | None:
        if self._frames:
            frame = self._frames.popleft()
            self.waiting_bytes -= len(frame) + _FRAME_OVERHEAD_BYTES
            return frame
        try:
            return self._reader.cut()
        except MalformedFrame as error:
            self._damage = str(error)
            return None

    def _handle(self, frame: bytes | bytearray, session: SaslSession, now_ms: int) -> None:
        if session.is_open:
            begins_again = api_key_of(frame) == SASL_HANDSHAKE_KEY and session.may_begin_again(now_ms)
            if session.has_expired(now_ms) and not begins_again:
                self.hang_up("the session expired and the client did not authenticate again")
            else:
                self._serve(frame, now_ms)
        else:
            self._authenticate(frame, session, now_ms)
        if session.is_open and not self._is_let_in:
            self._is_let_in = True
            self._reader.allow(self._broker.config.socket_request_max_bytes)
            self._cut(b"")

    def _authenticate(self, frame: bytes | bytearray, session: SaslSession, now_ms: int) -> None:
        """Handle the next step of authentication; refuse any other request."""
        if len(frame) > session.settings.max_receive_bytes:
            self.finish(None, refusal=f"an authentication frame has {len(frame)} bytes")
            return
        if session.wants_bare_token:
            try:
                reply, _ = session.evaluate(bytes(frame), now_ms)
            except AuthenticationFailed as failure:
                self.finish(None, refusal=failure.message)
                return
            self.finish((bare_frame(reply),))
            return
        if session.admits(_STEPS.get(api_key_of(frame))):
            self._serve(frame, now_ms)
        else:
            self.finish(
                answer_out_of_turn(bytes(frame), session, self._broker.served),
                refusal="the client sent a request before it authenticated",
            )

    def _serve(self, frame: bytes | bytearray, now_ms: int) -> None:
        try:
            request = decode_request(frame, self._broker.served)
        except UnsupportedVersion as unsupported:
            if unsupported.api_key == API_VERSIONS_KEY:
                code = ErrorCode.UNSUPPORTED_VERSION
                self.finish(refuse_api_versions(unsupported.correlation_id, code, self._broker.served))
            else:
                self.hang_up(str(unsupported))
            return
        except MalformedFrame as malformed:
            self.hang_up(str(malformed))
            return
        if self._interceptor is not None and self._interceptor.recorder is not None:
            self._interceptor.recorder.asked(self, self._broker.broker_id, frame, request, now_ms)
        context: ApiCall[Any] = ApiCall(request, self._broker, self, now_ms)
        self._current = context
        try:
            if self._interceptor is None:
                _handle(context)
            else:
                self._interceptor.intercept(context, _handle)
        except Exception:
            # A bug of ours must not affect other clients; this one sees a lost connection and retries.
            logger.exception(
                "broker %d: %s v%d from %s failed",
                self._broker.broker_id,
                request.api.name,
                request.version,
                self.client_host,
            )
            self.hang_up("the request could not be handled")


def _handle(context: ApiCall[Any]) -> None:
    try:
        response = APIS[context.request.api.name].handle(context)
    except KafkaError as error:
        if context.answered or not (isinstance(error, Unauthorized) or context.broker.is_stale):
            raise
        response = error_response(context.request, error.code)
    if response is not None:
        context.answer(response)
