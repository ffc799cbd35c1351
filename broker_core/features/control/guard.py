"""The check of a request before anything else: its Host, its origin, its content type and its size.

The API has no password, because it listens on loopback. A page in a browser on the same machine must not reach it: the
Host is a name of this machine, so that a name that resolves to 127.0.0.1 (DNS rebinding) reaches nothing; requests from
other sites are refused; and a POST has the content type application/json, which a page cannot send to another site
without a permission (CORS) that this server never gives.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_core.features.control.problems import refusal

MOST_BODY_BYTES: Final = 32 * 1024 * 1024
_TOO_LARGE: Final = f"the body is larger than {MOST_BODY_BYTES} bytes"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI app around another one, which passes on what may pass; `names` are further names of this machine."""

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = frozenset({"localhost", *(name.lower() for name in names)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        problem = self._problem(scope["method"], Headers(scope=scope))
        app: ASGIApp = self._app if problem is None else problem
        await app(scope, _limited(receive), send_guarded)

    def _problem(self, method: str, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return refusal(
                421,
                f"the Host {', '.join(hosts)!r} is not a known name of this machine",
                "Use localhost or an address; start broker-core with --control-name for another name.",
            )
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or "origin" in headers:
            return refusal(403, "the request comes from a page in a browser", "Send requests from a program.")
        if method != "POST":
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refusal(415, "the Content-Type is not application/json", "Add Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > MOST_BODY_BYTES):
            return refusal(413, _TOO_LARGE, "Send fewer records in one request.")
        return None

    def _is_own(self, host: str) -> bool:
        """Return whether a Host is an address, which needs no DNS, or a known name; its port may be a mapped one."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _limited(receive: Receive) -> Receive:
    """Return `receive` for a body of limited size."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY_BYTES:
            raise HTTPException(413, f"{_TOO_LARGE}: send fewer records in one request")
        return message

    return limited
