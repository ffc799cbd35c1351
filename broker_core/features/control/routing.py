"""The table of the API: each function is a route whose address is its name, and names the Python method it calls."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from broker_core.features.control.views import Done, Problem

F = TypeVar("F", bound=Callable[..., Any])
Fields = dict[str, Any]

_OF_POST: dict[int | str, dict[str, Any]] = {
    413: {"model": Problem, "description": "The body is too large"},
    415: {"model": Problem, "description": "The Content-Type is not application/json"},
}


class Table:
    """The routes of one section of the API."""

    def __init__(self, section: str) -> None:
        self.router = APIRouter(tags=[section])

    def get(self, python: str, form: type[BaseModel] | None = None) -> Callable[[F], F]:
        """Return a decorator for a function that returns a form, or the fields of the given one."""
        return self._route("GET", python, form)

    def post(self, python: str, status: int = 200, form: type[BaseModel] | None = None) -> Callable[[F], F]:
        """Return a decorator for a function that acts; the answer to one that returns nothing is `Done`."""
        return self._route("POST", python, form, status)

    def _route(self, method: str, python: str, form: type[BaseModel] | None, status: int = 200) -> Callable[[F], F]:
        def add(function: F) -> F:
            name, result = function.__name__, form or inspect.signature(function).return_annotation
            self.router.add_api_route(
                f"/{name}",
                _done(function) if result is None else function,
                response_model=Done if result is None else None if issubclass(result, Response) else result,
                methods=[method],
                status_code=status,
                operation_id=name,
                responses=_OF_POST if method == "POST" else None,
                openapi_extra={"x-python": python},
            )
            return function

        return add


def _done(function: Callable[..., None]) -> Callable[..., Done]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Done:
        function(*arguments, **named)
        return Done()

    return call
