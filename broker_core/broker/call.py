"""Hold one request on its way through a handler, until it is answered exactly once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import IsolationLevel
from broker_core.wire.framing import Request, encode_response

if TYPE_CHECKING:
    from broker_core.broker.broker import Broker


def _nothing() -> None:
    """Do nothing: the request does not wait."""


class Way(Protocol):
    """Lead back to the client."""

    @property
    def client_host(self) -> str:
        """Return the address the client connects from."""
        ...

    def finish(self, data: bytes | None) -> None:
        """Send the answer, if there is one, when it may leave; then take up the next request."""
        ...

    def hang_up(self, reason: str) -> None:
        """Close the connection."""
        ...


class Call:
    """Carry a request, the broker that received it, and the way back.

    A handler answers now or later, once: the answer is encoded at once (it speaks of the state it was
    decided on) and leaves when what it promises is durable.
    """

    __slots__ = ("_way", "abandon", "answered", "body", "broker", "now_ms", "request")

    def __init__(self, request: Request, broker: "Broker", way: Way, now_ms: int) -> None:
        self.request = request
        self.body: Any = request.body
        self.broker = broker
        self.now_ms = now_ms
        self.answered = False
        # Set by a handler that lets the request wait: called when the client is gone, so that nothing waits for it.
        self.abandon: Callable[[], None] = _nothing
        self._way = way

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
        return self._way.client_host

    def isolation(self) -> IsolationLevel:
        """Return which records the client may see; raise INVALID_REQUEST for a level there is not."""
        level = self.body.isolation_level
        if level not in tuple(IsolationLevel):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {level} is neither 0 nor 1")
        return IsolationLevel(level)

    def answer(self, response: Any) -> None:
        """Send the response."""
        self._finish_once(encode_response(self.request, response))

    def answer_nothing(self) -> None:
        """Finish without a response: Produce with acks=0 expects none."""
        self._finish_once(None)

    def hang_up(self, reason: str) -> None:
        """Close the connection instead of answering."""
        self.answered = True
        self._way.hang_up(reason)

    def _finish_once(self, data: bytes | None) -> None:
        assert not self.answered, f"{self.request.api.name} was answered twice"
        self.answered = True
        self._way.finish(data)
