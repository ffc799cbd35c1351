"""The dispatch of requests to the handlers of their APIs.

A handler gets the context of a request and answers it now or later. A `KafkaError` that a handler does not turn into
a response is a bug, like any other exception: the connection is closed and the broker continues.
"""

from functools import partial
from typing import Any, Protocol

from broker_core.broker.api import Handler
from broker_core.broker.apis import APIS
from broker_core.broker.request_context import ApiCall
from broker_core.errors import KafkaError
from broker_core.types import Frame
from broker_core.wire.error_responses import error_response
from broker_core.wire.framing import Request


def _handle_without_controller(handler: Handler, context: ApiCall[Any]) -> None:
    """Run the handler on a broker that is cut off; a `KafkaError` becomes the error of the whole response."""
    try:
        handler(context)
    except KafkaError as error:
        if context.answered:
            raise
        context.answer(error_response(context.request, error.code))


class Recorder(Protocol):
    """What connections tell of their requests and responses, while something records them."""

    def asked(
        self, connection: object, broker_id: int, frame: bytes | bytearray, request: Request, now_ms: int
    ) -> None:
        """Take a request that is about to be handled."""
        ...

    def answered(self, connection: object, request: Request, data: Frame, now_ms: int) -> None:
        """Take a response that is about to be sent."""
        ...

    def closed(self, connection: object) -> None:
        """Take the end of a connection."""
        ...


class RequestInterceptor(Protocol):
    """The interface of fault injection: it gets each request before its handler."""

    # What records requests and responses, while a test asks for it.
    recorder: Recorder | None

    def intercept(self, context: ApiCall[Any], handler: Handler) -> None:
        """Pass the request to its handler, now or later, or drop it."""
        ...


def dispatch(context: ApiCall[Any], interceptor: RequestInterceptor | None = None) -> None:
    """Pass the request to the handler of its API, or to the interceptor if there is one."""
    handler = APIS[context.request.api.name].handle
    if context.broker.is_stale:
        handler = partial(_handle_without_controller, handler)
    if interceptor is None:
        handler(context)
    else:
        interceptor.intercept(context, handler)
