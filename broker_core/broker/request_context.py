"""One request on its way through a handler, until it is answered exactly once."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from broker_core.broker.broker import Broker
from broker_core.broker.endpoints import Address, Listener
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.principals import Principal
from broker_core.security.sasl import SaslSession
from broker_core.types import IsolationLevel
from broker_core.wire.framing import Request, encode_response

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def _nothing() -> None:
    """Do nothing: the request does not wait."""


class ClientConnection(Protocol):
    """The connection a request came by: who the client is, and the way back to it."""

    @property
    def client_host(self) -> str:
        """Return the address the client connects from."""
        ...

    @property
    def principal(self) -> Principal:
        """Return who the client is."""
        ...

    @property
    def listener(self) -> Listener:
        """Return the listener the client came in by."""
        ...

    @property
    def sasl(self) -> SaslSession | None:
        """Return how far the client's authentication has come; None where the listener requires none."""
        ...

    def finish(self, data: bytes | None) -> None:
        """Send the answer, if there is one, when it may leave; then take up the next request."""
        ...

    def refuse(self, data: bytes | None, reason: str) -> None:
        """Send the answer to a client that is not let in, if there is one, and close; not before some time has gone."""
        ...

    def hang_up(self, reason: str) -> None:
        """Close the connection."""
        ...


class RequestContext:
    """A request, the broker that received it, and the way back.

    A handler answers now or later, once: the answer is encoded at once (it speaks of the state it was
    decided on) and is sent when the writes it confirms are durable.
    """

    __slots__ = ("_broker", "_connection", "abandon", "answered", "body", "now_ms", "on_answer", "refused", "request")

    def __init__(self, request: Request, broker: Broker, connection: ClientConnection, now_ms: int) -> None:
        self.request = request
        self.body: Any = request.body
        self._broker = broker
        self.now_ms = now_ms
        self.answered = False
        # Set by a handler that lets the request wait: called when the client is gone, so that nothing waits for it.
        self.abandon: Callable[[], None] = _nothing
        # Set by an interceptor that wants to see the answer before it goes; it passes it to `send`, or does not.
        self.on_answer: Callable[[Any | None], None] | None = None
        # What the client was refused, once it was; see `authorization`.
        self.refused: set[tuple[object, ...]] | None = None
        self._connection = connection

    @property
    def broker(self) -> Broker:
        """Return the broker that answers: asked each time, since a request that waits may see it cut off."""
        return self._broker.stale_twin or self._broker

    @property
    def version(self) -> int:
        """Return the version of the API the client speaks."""
        return self.request.version

    @property
    def client_id(self) -> str:
        """Return the client's name for itself, empty if it gave none."""
        return self.request.client_id or ""

    @property
    def client_host(self) -> str:
        """Return the address the client connects from."""
        return self._connection.client_host

    @property
    def principal(self) -> Principal:
        """Return who the client is, as its connection was authenticated."""
        return self._connection.principal

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Return where the client reaches each broker: by the listener it came in by."""
        return self.broker.addresses_of(self._connection.listener)

    @property
    def listener_name(self) -> str:
        """Return the name of the listener the client came in by."""
        return self._connection.listener.name

    @property
    def sasl(self) -> SaslSession | None:
        """Return how far the client's authentication has come; None where the listener requires none."""
        return self._connection.sasl

    def isolation(self) -> IsolationLevel:
        """Return which records the client may see; raise INVALID_REQUEST for a level there is not."""
        level = self.body.isolation_level
        if level not in tuple(IsolationLevel):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {level} is neither 0 nor 1")
        return IsolationLevel(level)

    def answer(self, response: Any) -> None:
        """Send the response."""
        self._finish_once(response)

    def answer_nothing(self) -> None:
        """Finish without a response: Produce with acks=0 expects none."""
        self._finish_once(None)

    def send(self, response: Any | None) -> None:
        """Send what was answered; None: nothing is sent, the next request may come."""
        self.answered = True
        if response is not None:
            self.broker.meters.answering(self.request, response)
        self._connection.finish(None if response is None else encode_response(self.request, response))

    def refuse(self, response: Any | None, reason: str) -> None:
        """Answer a client that is not let in, if there is an answer, and close; the reason is for the log."""
        assert not self.answered, f"{self.request.api.name} was answered twice"
        self.answered = True
        if response is not None:
            self.broker.meters.answering(self.request, response)
        self._connection.refuse(None if response is None else encode_response(self.request, response), reason)

    def hang_up(self, reason: str) -> None:
        """Close the connection instead of answering."""
        self.answered = True
        self._connection.hang_up(reason)

    def guarded(self, step: Callable[P, T], when_failed: T) -> Callable[P, T]:
        """Return a step of this request that is taken later, such that an error of ours in it hits this client alone.

        Later the step is taken in the turn of another request, or of none: an error in it must not reach what waits
        beside this request, nor stop the broker.
        """

        def take(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return step(*args, **kwargs)
            except Exception:
                logger.exception(
                    "broker %d: %s v%d from %s failed after waiting",
                    self.broker.broker_id,
                    self.request.api.name,
                    self.version,
                    self.client_host,
                )
                self.hang_up("the request could not be handled")
                return when_failed

        return take

    def _finish_once(self, response: Any | None) -> None:
        assert not self.answered, f"{self.request.api.name} was answered twice"
        self.answered = True
        if self.on_answer is None:
            self.send(response)
        else:
            self.on_answer(response)
