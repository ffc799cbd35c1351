"""The dispatch of requests to the handlers of their APIs.

A handler gets the context of a request, and returns the response or answers later. If it lets `Unauthorized` pass, the
whole request is answered with that error; at a broker that is cut off, with any `KafkaError`. All other exceptions are
bugs: the connection is closed and the broker continues.
"""

from collections.abc import Callable
from typing import Any, Protocol

from broker_core.broker.apis import APIS
from broker_core.broker.authorization import Unauthorized
from broker_core.broker.request_context import ApiCall
from broker_core.errors import KafkaError
from broker_core.types import Frame
from broker_core.wire.error_responses import error_response
from broker_core.wire.framing import Request


class Recorder(Protocol):
    """What connections tell of their requests and responses, while something records them."""

    def asked(
        self, connection: object, broker_id: int, frame: bytes | bytearray, request: Request, now_ms: int
    ) -> None: ...

    def answered(self, connection: object, request: Request, data: Frame, now_ms: int) -> None: ...

    def closed(self, connection: object) -> None: ...


class RequestInterceptor(Protocol):
    """The interface of fault injection: it gets each request before its handler."""

    # What records requests and responses, while a test asks for it.
    recorder: Recorder | None

    def intercept(self, context: ApiCall[Any], handler: Callable[[ApiCall[Any]], None]) -> None: ...


def dispatch(context: ApiCall[Any], interceptor: RequestInterceptor | None = None) -> None:
    """Pass the request to the handler of its API, or to the interceptor if there is one."""
    if interceptor is None:
        _handle(context)
    else:
        interceptor.intercept(context, _handle)


def _handle(context: ApiCall[Any]) -> None:
    try:
        response = APIS[context.request.api.name].handle(context)
    except KafkaError as error:
        if context.answered or not (isinstance(error, Unauthorized) or context.broker.is_stale):
            raise
        response = error_response(context.request, error.code)
    if response is not None:
        context.answer(response)
