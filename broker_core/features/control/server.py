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
from broker_core.features.control.routing import router_of
from broker_core.features.control.views import Problem
from broker_core.server.http_thread import HttpThread
from broker_core.version import __version__

_DESCRIPTION = (
    "Controls a broker for tests. Each address is the name of a method of `broker_core.EmbeddedBroker`, which "
    "`x-python` names; arguments have the same names too. A refused request has the status 400 for arguments that "
    "cannot be used, 404 for what does not exist, or 409 if the state of the broker does not allow it or a wait ended."
)
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The arguments cannot be used"},
    404: {"model": Problem, "description": "What is named does not exist"},
    409: {"model": Problem, "description": "The state of the broker does not allow it"},
    403: {"model": Problem, "description": "The request may come from a page in a browser"},
    421: {"model": Problem, "description": "The Host is not a known name of the machine"},
}


class ControlServer(HttpThread):
    """The control port of a broker; `names` are further names of this machine that may be in the Host of a request."""

    def __init__(
        self, kafka: EmbeddedBroker, *, host: str = "127.0.0.1", port: int = 0, names: Collection[str] = ()
    ) -> None:
        super().__init__(Guard(control_app(kafka), names), "control port", host, port)


def control_app(kafka: EmbeddedBroker) -> FastAPI:
    app = FastAPI(
        title="broker_core",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=_REFUSALS,
        redirect_slashes=False,
    )
    app.include_router(router_of(calls(kafka)))
    refuse_properly(app)
    app.add_api_route("/docs", lambda: HTMLResponse(documentation(app.openapi())), include_in_schema=False)
    # FastAPI's own form of refused arguments is not used.
    described = app.openapi()
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(name, None)
    return app
