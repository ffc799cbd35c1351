"""The registry's HTTP server, on Starlette."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_core.errors import AllBrokersCrashed
from broker_core.features.schema_registry.errors import RegistryError
from broker_core.features.schema_registry.parsed_schema import compact_json
from broker_core.features.schema_registry.registry import Registry
from broker_core.features.schema_registry.routes import ROUTES, Call, Text
from broker_core.features.schema_registry.schema_topic import Producer, SchemaTopic
from broker_core.server.http_thread import HttpThread

logger = logging.getLogger(__name__)

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryServer(HttpThread):
    """A registry that serves from its creation until `close`; its state is the topic `_schemas`.

    `call` runs a function in the broker's thread; `produce` writes records. Raises `ConfigError` for a port that is out
    of range, and OSError if it is in use.
    """

    def __init__(
        self, call: Callable[[Callable[[Any], Any]], Any], produce: Producer, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._registry = Registry(SchemaTopic(call, produce))
        app = Starlette(
            routes=[Route(path, self._endpoint(function), methods=[method]) for method, path, function in ROUTES],
            exception_handlers={404: _of_path, 405: _of_path},
        )
        super().__init__(_raw_paths(app), "schema registry", host, port)
        self.start()

    def _endpoint(self, function: Callable[[Call], Any]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def endpoint(request: HttpRequest) -> Response:
            try:
                body = _body(await request.body())
                path = {name: unquote(value) for name, value in request.path_params.items()}
                # Requests are handled one after the other, in this thread, so that each sees those before it.
                found = function(Call(self._registry, path, request.query_params.multi_items(), body))
            except RegistryError as error:
                return _error(error.status, error.code, error.message)
            except Exception as error:
                if not isinstance(error, AllBrokersCrashed):
                    logger.exception("the schema registry failed to handle %s %s", request.method, request.url.path)
                return _error(500, 50001, f"Error in the schema registry: {error}")
            if found is None:
                return Response(status_code=204)
            if isinstance(found, Text):
                return PlainTextResponse(found, media_type=_MEDIA_TYPE)
            return JSONResponse(found, media_type=_MEDIA_TYPE)

        return endpoint


def _body(data: bytes) -> dict[str, Any]:
    if not data:
        return {}
    try:
        found = json.loads(data, parse_constant=_no_constant)
        compact_json(found).encode()
    except UnicodeEncodeError as error:
        raise RegistryError(400, "Malformed JSON: half of a surrogate pair is not a character") from error
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"Malformed JSON: {error}") from error
    if not isinstance(found, dict):
        raise RegistryError(400, "Malformed JSON: expected an object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _error(status: int, code: int, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, status_code=status, media_type=_MEDIA_TYPE)


async def _of_path(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}")


def _raw_paths(app: ASGIApp) -> ASGIApp:
    """Return an application whose routes see paths as they were sent: a subject may contain an encoded slash."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii").rstrip("/") or "/"}
        await app(scope, receive, send)

    return wrapped
