"""The table of the API: each function is a route whose address is its name, and names the Python method it calls.

The arguments of a function are the fields of its request.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import anyio
import anyio.to_thread
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import BaseModel, create_model
from starlette.responses import Response

from broker_core.features.control.forms import Form, Query
from broker_core.features.control.views import Done, Problem

F = TypeVar("F", bound=Callable[..., Any])
Fields = dict[str, Any]

_OF_POST: dict[int | str, dict[str, Any]] = {
    413: {"model": Problem, "description": "The body is too large"},
    415: {"model": Problem, "description": "The Content-Type is not application/json"},
}
# Waiting requests have threads of their own, so that the request they wait for is always handled. Each looks at the
# broker a hundred times a second; further ones begin to wait when others have ended.
_MOST_WAITING = 50


class Table:
    """The routes of the API, section by section."""

    def __init__(self) -> None:
        self.router = APIRouter()
        self.section = ""
        # Made in the event loop that uses it.
        self._waiting: anyio.CapacityLimiter | None = None

    def get(self, python: str, form: type[BaseModel] | None = None, *, waits: bool = False) -> Callable[[F], F]:
        """Return a decorator for a function that returns a form, or the fields of the given one."""
        return self._route("GET", python, form, Query, waits=waits)

    def post(
        self, python: str, status: int = 200, form: type[BaseModel] | None = None, base: type[Form] = Form
    ) -> Callable[[F], F]:
        """Return a decorator for a function that acts; the answer to one that returns nothing is `Done`.

        The function gets the fields of `base` as further named arguments.
        """
        return self._route("POST", python, form, base, status)

    def _route(
        self,
        method: str,
        python: str,
        form: type[BaseModel] | None,
        base: type[BaseModel],
        status: int = 200,
        *,
        waits: bool = False,
    ) -> Callable[[F], F]:
        def add(function: F) -> F:
            name, result = function.__name__, form or inspect.signature(function).return_annotation
            call = self._waiting_call if waits else _call
            self.router.add_api_route(
                f"/{name}",
                _with_signature(call(function), _arguments(function, base), method),
                tags=[self.section],
                response_model=Done if result is None else None if issubclass(result, Response) else result,
                methods=[method],
                status_code=status,
                operation_id=name,
                description=inspect.getdoc(function),
                responses=_OF_POST if method == "POST" else None,
                openapi_extra={"x-python": python},
            )
            return function

        return add

    def _waiting_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(arguments: BaseModel) -> Any:
            if self._waiting is None:
                self._waiting = anyio.CapacityLimiter(_MOST_WAITING)
            # At the end of the server nothing waits for the thread.
            return await anyio.to_thread.run_sync(
                _call(function), arguments, limiter=self._waiting, abandon_on_cancel=True
            )

        return call


def _call(function: Callable[..., Any]) -> Callable[[BaseModel | None], Any]:
    def call(arguments: BaseModel | None) -> Any:
        found = function(**dict(arguments or ()))
        return Done() if found is None else found

    return call


def _arguments(function: Callable[..., Any], base: type[BaseModel]) -> type[BaseModel]:
    """Return the form of a function's arguments: `CreateTopic` for `create_topic`."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if each.default is each.empty else each.default)
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is not each.VAR_KEYWORD
    }
    name = "".join(word.capitalize() for word in function.__name__.split("_"))
    return create_model(f"{name}Request", __base__=base, __doc__=f"The arguments of `{function.__name__}`.", **fields)


def _with_signature(call: Callable[..., Any], form: type[BaseModel], method: str) -> Callable[..., Any]:
    """Return a function of FastAPI: its arguments are the query, or the body, which may be missing without any."""
    kind: Any = Annotated[form, InQuery()] if method == "GET" else form if form.model_fields else form | None
    default = inspect.Parameter.empty if form.model_fields else None
    argument = inspect.Parameter("arguments", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
    call.__signature__ = inspect.Signature([argument])  # type: ignore[attr-defined]
    return call
