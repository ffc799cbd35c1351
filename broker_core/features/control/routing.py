"""The routes of the API from `routes.json`, whose addresses are names of Python methods.

A line of the file has the HTTP method and what the route does, and where they differ from the defaults: the form of the
result (`Done`), the status (200), the base of the request's form, the method's name for people (the route's own), and
whether the route waits.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Annotated, Any, get_args

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi import Query as InQuery
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from broker_core.features.control import forms, views

# Waiting requests have threads of their own, so that the request they wait for is always handled. Each looks at the
# broker a hundred times a second; further ones begin to wait when others have ended.
_MOST_WAITING = 50


def add_routes(app: FastAPI, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Add the routes of the file; `calls` has the function of each."""
    waits = _Waits()
    sections = json.loads(files(__package__).joinpath("routes.json").read_text("utf-8"))
    for section, routes in sections.items():
        for name, route in routes.items():
            is_post, result = route["method"] == "POST", route.get("result", "Done")
            form = HTMLResponse if result == "HTMLResponse" else getattr(views, result)
            base = getattr(forms, route.get("base", "Form" if is_post else "Query"))
            request, answer = _request_form(name, calls[name], base), _answer(calls[name], form)
            app.add_api_route(
                f"/{name}",
                _signed(waits.around(answer) if route.get("waits") else answer, request, in_body=is_post),
                tags=[section],
                response_model=None if issubclass(form, Response) else form,
                methods=[route["method"]],
                status_code=route.get("status", 200),
                operation_id=name,
                description=route["meaning"],
                openapi_extra={"x-python": route.get("python", name)},
            )


class _Waits:
    """The threads of the requests that wait; made in the event loop that uses it."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    def around(self, answer: Callable[[Any], Any]) -> Callable[..., Any]:
        async def waiting(arguments: Any) -> Any:
            if self._limiter is None:
                self._limiter = anyio.CapacityLimiter(_MOST_WAITING)
            # At the end of the server nothing waits for the thread.
            return await anyio.to_thread.run_sync(answer, arguments, limiter=self._limiter, abandon_on_cancel=True)

        return waiting


def _answer(call: Callable[..., Any], form: Any) -> Callable[[Any], Any]:
    def answer(arguments: BaseModel | None) -> Any:
        found = call(**dict(arguments or ()))
        if form is views.Done:
            return form()
        if isinstance(found, BaseModel | Response):
            return found
        if issubclass(form, views.View):
            return form.of(found)
        [(name, field)] = form.model_fields.items()
        views_of = [
            each for each in get_args(field.annotation) if isinstance(each, type) and issubclass(each, views.View)
        ]
        return {name: [views_of[0].of(each) for each in found] if views_of else found}

    return answer


def _request_form(name: str, call: Callable[..., Any], base: type[BaseModel]) -> type[BaseModel]:
    """Return the form of a function's arguments: `CreateTopicRequest` for `create_topic`."""
    fields: dict[str, Any] = {
        each.name: _field(forms.ARGUMENTS[each.name], each.default)
        for each in inspect.signature(call).parameters.values()
        if each.kind is not each.VAR_KEYWORD and each.name not in base.model_fields
    }
    form = "".join(word.capitalize() for word in name.split("_"))
    return create_model(f"{form}Request", __base__=base, __doc__=f"The arguments of `{name}`.", **fields)


def _field(argument: forms.Argument, default: Any) -> tuple[Any, Any]:
    needed: Any = ... if default is inspect.Parameter.empty else default
    bounds: dict[str, Any] = dict(argument.bounds)
    kind = argument.kind | None if default is None else argument.kind
    return kind, Field(needed, description=argument.description, **bounds)


def _signed(call: Callable[..., Any], form: Any, *, in_body: bool) -> Callable[..., Any]:
    """Return a function with the signature that FastAPI takes the form of its argument from.

    A body without fields may be missing.
    """
    has_fields = not in_body or bool(form.model_fields)
    kind: Any = Annotated[form, InQuery()] if not in_body else form if has_fields else form | None
    default = inspect.Parameter.empty if has_fields else None
    argument = inspect.Parameter("arguments", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
    call.__signature__ = inspect.Signature([argument])  # type: ignore[attr-defined]
    return call
