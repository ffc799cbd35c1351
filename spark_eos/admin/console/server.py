"""The local server: who may open a page, and what each address returns.

Starlette and uvicorn serve it: both are widely used and maintained, and bring routing and a strict HTTP parser (h11).

A page is open to who knows its address: the token is the first part of the path, so no other site can build an address,
and there is no cookie that a browser would add to a request of another site. The Host of each request must be what
the command printed, so that a name that resolves to 127.0.0.1 (DNS rebinding) reaches nothing. A change requires a
POST from a page of this origin, with a header that no other origin may send, and the name of a plan that was shown.
"""

import argparse
import json
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from spark_eos.admin.console import pages
from spark_eos.admin.console.actions import Actions
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.log_views import DEFAULT_LAST_OFFSETS, MOST_LAST_OFFSETS
from spark_eos.admin.decision_operator import RefusedError
from spark_eos.admin.output import ExitCode
from spark_eos.errors import EosKafkaError, OptionError

HOST: Final = "127.0.0.1"
CHANGE_HEADER: Final = "x-eos-kafka-console"
_OVERVIEW: Final = "overview"
_PAGES: Final = ("partition", "transaction", "query")
_MOST_BODY_BYTES: Final = 64 * 1024
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Guard:
    """The check before anything else: the host, the token, and for changes the origin."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token
        # Known when the server listens; until then nothing is accepted.
        self.port: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        problem = self._problem(Request(scope))
        response: ASGIApp = self._app if problem is None else PlainTextResponse(problem[1], problem[0], _HEADERS)
        await response(scope, receive, send)

    def _problem(self, request: Request) -> tuple[int, str] | None:
        origin = f"http://{HOST}:{self.port}"
        headers = request.headers
        if self.port is None or headers.getlist("host") != [f"{HOST}:{self.port}"]:
            return 421, f"This server is {origin} and no other name"
        given = request.url.path.split("/", 2)[1]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return 404, "Use the whole address that eos-kafka console printed"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "Requests from other sites are refused. Paste the address into the browser"
        if request.method in ("GET", "HEAD"):
            return None
        is_own = headers.getlist("origin") == [origin] and headers.get(CHANGE_HEADER) == "1"
        if not is_own or headers.get("content-type") != "application/json":
            return 403, "Changes are accepted from pages of this server only"
        return None


class Console:
    """The answers to requests."""

    def __init__(self, documents: Documents, *, allow_changes: bool) -> None:
        self.documents, self.allow_changes = documents, allow_changes

    def routes(self, token: str) -> list[Route]:
        root = f"/{token}"
        found = [Route(f"{root}/assets/{{name}}", self.asset), Route(f"{root}/", self.page)]
        found += [Route(f"{root}/{kind}", self.page) for kind in _PAGES]
        found += [Route(f"{root}/api/{kind}", self.api) for kind in (_OVERVIEW, *_PAGES)]
        if self.allow_changes:
            actions = Actions(self.documents)

            def carry_out(wanted: dict[str, Any]) -> dict[str, Any]:
                return actions.carry_out(str(wanted.get("plan")), str(wanted.get("reason", "")))

            found += [
                Route(f"{root}/api/plan", self._change(actions.plan), methods=["POST"]),
                Route(f"{root}/api/carry-out", self._change(carry_out), methods=["POST"]),
            ]
        return found

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.ASSETS:
            return PlainTextResponse("There is no such file", 404, _HEADERS)
        return Response(pages.asset(name), headers={**_HEADERS, "Content-Type": pages.ASSETS[name]})

    async def page(self, request: Request) -> Response:
        # Only the overview has its data at once: others look it up, and the page is there before.
        kind = _kind(request)
        document: dict[str, Any] = {"live": {"kind": kind, "changes": self.allow_changes}}
        if kind == _OVERVIEW:
            document |= await run_in_threadpool(self.documents.overview)
        return HTMLResponse(pages.page(kind, _title(kind, request), document), headers=_HEADERS)

    async def api(self, request: Request) -> Response:
        try:
            return _json(await run_in_threadpool(self._document, _kind(request), request))
        except EosKafkaError as error:
            status = 400 if isinstance(error, OptionError) else 502
            return _json({"error": str(error), "poll": self.documents.poll()}, status)

    def _document(self, kind: str, request: Request) -> dict[str, Any]:
        wanted = request.query_params
        if kind == "partition":
            last = min(_number(wanted.get("last"), DEFAULT_LAST_OFFSETS), MOST_LAST_OFFSETS)
            return self.documents.partition(wanted.get("topic", ""), _number(wanted.get("partition"), 0), max(last, 1))
        if kind == "transaction":
            return self.documents.transaction(wanted.get("id", ""))
        if kind == "query":
            return self.documents.query(wanted.get("prefix", ""), wanted.get("query", ""))
        return self.documents.overview(wanted.get("filter", ""))

    def _change(self, do: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body = b""
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BODY_BYTES:
                    return _json({"error": "The request is too long"}, 413)
            try:
                document = json.loads(body)
                if not isinstance(document, dict):
                    raise OptionError("The request is not an object")
                return _json(await run_in_threadpool(do, document))
            except RefusedError as error:
                return _json({"error": f"{error.was_done}: {error}"}, 409)
            except (OptionError, ValueError) as error:
                return _json({"error": str(error)}, 400)
            except EosKafkaError as error:
                return _json({"error": str(error)}, 502)

        return answer


def _kind(request: Request) -> str:
    return request.url.path.rpartition("/")[2] or _OVERVIEW


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(document, status, headers=_HEADERS)


def _title(kind: str, request: Request) -> str:
    wanted = request.query_params
    if kind == "partition":
        return f"{wanted.get('topic', '')}-{wanted.get('partition', '0')}"
    return {"transaction": wanted.get("id", ""), "query": wanted.get("query", "")}.get(kind, "Transactions")


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise OptionError(f"{text!r} is not a number")
    return int(text)


class ConsoleServer(uvicorn.Server):
    """The server of one console; `address` is known when `ready` is set."""

    def __init__(self, documents: Documents, *, port: int, allow_changes: bool) -> None:
        self.token = secrets.token_urlsafe(24)
        self.ready = threading.Event()
        console = Console(documents, allow_changes=allow_changes)
        self.guard = Guard(Starlette(routes=console.routes(self.token)), self.token)
        # Access logs would contain the token.
        super().__init__(
            uvicorn.Config(
                self.guard,
                host=HOST,
                port=port,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                http="h11",
                loop="asyncio",
                timeout_graceful_shutdown=2,
            )
        )

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.guard.port}/{self.token}/"

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.guard.port = self.servers[0].sockets[0].getsockname()[1]
            self.ready.set()


class _AnnouncedServer(ConsoleServer):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"The console is at {self.address}", flush=True)
            print("Who has this address can open it. Interrupt with Ctrl-C to end.", file=sys.stderr, flush=True)


def serve(chosen: argparse.Namespace) -> int:
    documents = Documents(chosen, pages.LiveLinks())
    collecting = threading.Thread(target=documents.collector.run, name="console-collector", daemon=True)
    server = _AnnouncedServer(documents, port=chosen.port, allow_changes=chosen.allow_changes)
    collecting.start()
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    except SystemExit as error:
        # uvicorn has logged why it cannot listen.
        return ExitCode.FAILED if error.code else ExitCode.DONE
    finally:
        documents.collector.stop()
        collecting.join(timeout=5)
        if not collecting.is_alive():
            documents.close()
    return ExitCode.DONE if server.started else ExitCode.FAILED
