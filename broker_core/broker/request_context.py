"""The context of one request in its handler, which answers it exactly once."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from broker_core.broker.broker import Broker
from broker_core.broker.endpoints import Address, Listener
from broker_core.broker.purgatory import Waiting
from broker_core.errors import invalid_request
from broker_core.security.principals import Principal
from broker_core.security.sasl import SaslSession
from broker_core.types import Frame, IsolationLevel, TopicPartition
from broker_core.wire.framing import Request, Response, encode_response
from broker_core.wire.messages import ApiMessage

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Body = TypeVar("Body", bound="ApiMessage", covariant=True)


def _nothing() -> None:
    """Do nothing: the request does not wait."""


class ClientConnection(Protocol):
    """The connection that a request arrived on."""

    client_host: str
    listener: Listener
    sasl: SaslSession | None
    on_lost: Callable[[int], None] | None

    @property
    def principal(self) -> Principal: ...

    def finish(self, data: Frame | None, throttle_ms: int = 0, refusal: str | None = None) -> None:
        """Send the response, if there is one, when its writes are durable; then handle the next request.

        A throttled client's next request is handled when its time has passed, a refused client's never.
        """
        ...

    def hang_up(self, reason: str) -> None: ...


class RequestContext:
    """A request, the broker that received it, and its connection.

    A handler answers once, now or later: the response is encoded at once, since it describes the state at that
    moment, and is sent when the writes it confirms are durable.
    """

    __slots__ = (
        "_broker", "abandon", "answered", "began_ms", "body", "broker", "client_host", "client_id", "connection",
        "now_ms", "on_answer", "refused", "request", "sasl", "throttle_ms", "version",
    )  # fmt: skip

    def __init__(self, request: Request, broker: Broker, connection: ClientConnection, now_ms: int) -> None:
        self.request = request
        self.body = request.body
        self.version = request.version
        self.client_id = request.client_id or ""
        self.connection = connection
        self.client_host = connection.client_host
        # How far the client's authentication has come; None where the listener requires none.
        self.sasl = connection.sasl
        self._broker = broker
        # The broker that answers; each step after a wait looks it up again, since it may be cut off meanwhile.
        self.broker = broker.stale_twin or broker
        self.now_ms = now_ms
        # The stopwatch's time.
        self.began_ms = broker.meters.stopwatch()
        self.answered = False
        # How long the client is throttled because of this request; handlers raise it.
        self.throttle_ms = 0
        # Called when the client is gone, to cancel a wait.
        self.abandon: Callable[[], None] = _nothing
        # Set by an interceptor to get the response before it is sent; it passes it to `send` or drops it.
        self.on_answer: Callable[[Response | None], None] | None = None
        # The refusals that were logged for this request; see `authorization`.
        self.refused: set[tuple[object, ...]] | None = None

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def addresses(self) -> Mapping[int, Address]:
        return self.broker.addresses_of(self.connection.listener)

    def own_addresses(self) -> list[tuple[str, str, int]]:
        listener, broker_id = self.connection.listener, self.broker.broker_id
        by_name = self.broker.stale_addresses or listener.all_addresses or {listener.name: listener.addresses}
        return [(name, *addresses[broker_id]) for name, addresses in by_name.items()]

    def wait(
        self,
        keys: Collection[TopicPartition],
        deadline_ms: int,
        attempt: Callable[[int], bool],
        expire: Callable[[int], None],
    ) -> None:
        """Let the request wait, as `Waiting` describes, until its client is gone."""
        waiting = Waiting(keys, deadline_ms, self.guarded(attempt, True), self.guarded(expire, None))
        self.broker.purgatory.wait(waiting)
        self.abandon = lambda: self.broker.purgatory.cancel(waiting)

    def answer(self, response: Response | None, refusal: str | None = None) -> None:
        """Send the response, or finish without one: Produce with acks=0 expects none.

        A client that failed to authenticate is refused: the connection is closed after the response, and the reason is
        logged.
        """
        assert not self.answered, f"{self.request.api.name} was answered twice"
        self.answered = True
        if self.on_answer is None or refusal is not None:
            self.send(response, refusal)
        else:
            self.on_answer(response)

    def send(self, response: Any | None, refusal: str | None = None) -> None:
        """Send the response, or with None only continue with the next request."""
        if response is None:
            self.connection.finish(None, self.throttle_ms, refusal)
            return
        broker = self.broker
        broker.meters.answering(self.request, response)
        if broker.quotas.stored and refusal is None:
            duration_ms = broker.meters.stopwatch() - self.began_ms
            user, client_id = self.principal.name, self.client_id
            spent_ms = broker.quotas.spent(self.request.api.name, user, client_id, duration_ms, broker.now_ms())
            self.throttle_ms = max(self.throttle_ms, spent_ms)
        if self.throttle_ms:
            response.throttle_time_ms = self.throttle_ms
        self.connection.finish(encode_response(self.request, response), self.throttle_ms, refusal)

    def hang_up(self, reason: str) -> None:
        """Close the connection instead of answering."""
        self.answered = True
        self.connection.hang_up(reason)

    def guarded(self, step: Callable[P, T], when_failed: T) -> Callable[P, T]:
        """Return a wrapper for a later step of this request, so that an exception in it affects only this client.

        A later step runs during another request, or during none: an exception in it must neither affect other waiting
        requests nor stop the broker.
        """

        # With quotes, since annotations of an inner function are evaluated each time.
        def take(*args: "P.args", **kwargs: "P.kwargs") -> T:
            try:
                self.broker = self._broker.stale_twin or self._broker
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


class ApiCall(RequestContext, Generic[Body]):
    """The context of a request of one API, with the request's fields."""

    __slots__ = ()
    body: Body


def isolation_of(level: int) -> IsolationLevel:
    """Return a request's isolation level; raise INVALID_REQUEST for an unknown one."""
    try:
        return IsolationLevel(level)
    except ValueError:
        raise invalid_request(f"isolation level {level} is neither 0 nor 1") from None
