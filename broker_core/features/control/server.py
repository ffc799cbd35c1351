"""The API as an ASGI app, whose `/openapi.json` FastAPI makes from its routes, and the server of the control port."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from broker_core.embedded import EmbeddedBroker
from broker_core.features.control.documentation import documentation
from broker_core.features.control.guard import Guard
from broker_core.features.control.problems import refuse_properly
from broker_core.features.control.routes import calls
from broker_core.features.control.routing import add_routes
from broker_core.features.control.views import Problem
from broker_core.server.http_thread import HttpThread
from broker_core.version import __version__

_DESCRIPTION = (
    "Controls a broker for tests. Each address is the name of a method of `broker_core.EmbeddedBroker`, which "
    "`x-python` names; arguments have the same names too. A refused request has the status 400 for arguments that "
    "cannot be used, 404 for what does not exist, or 409 if the state of the broker does not allow it or a wait ended."
)
_REFUSALS = {
    400: "The arguments cannot be used",
    404: "What is named does not exist",
    409: "The state of the broker does not allow it",
    403: "The request may come from a page in a browser",
    421: "The Host is not a known name of the machine",
}
_REFUSALS_OF_POST = {413: "The body is too large", 415: "The Content-Type is not application/json"}


class ControlServer(HttpThread):
    """The control port of a broker; `names` are further names of this machine that may be in the Host of a request."""

    def __init__(
        self, kafka: EmbeddedBroker, *, host: str = "127.0.0.1", port: int = 0, names: Collection[str] = ()
    ) -> None:
        super().__init__(Guard(control_app(kafka), names), "control port", host, port)


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the description, made when it is first asked for: that takes longer than to start a broker.

        Refusals are added here. FastAPI would make a form of each for each route, at each start.
        """
        if self.openapi_schema is not None:
            return self.openapi_schema
        described = super().openapi()
        problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations in described["paths"].values():
            for method, operation in operations.items():
                refusals = _REFUSALS | (_REFUSALS_OF_POST if method == "post" else {})
                answers = operation["responses"]
                answers.update({str(each): {"description": refusals[each], "content": problem} for each in refusals})
                # FastAPI's own form of refused arguments is not used.
                answers.pop("422", None)
        schemas = described["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = Problem.model_json_schema(mode="serialization")
        return described


def control_app(kafka: EmbeddedBroker) -> FastAPI:
    app = _App(
        title="broker_core",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_routes(app, calls(kafka))
    refuse_properly(app)

    async def page() -> HTMLResponse:
        return HTMLResponse(documentation(app.openapi()))

    app.add_api_route("/docs", page, include_in_schema=False)
    return app
