"""Let in clients that bear a token (RFC 7628); who vouches for tokens is the operator's choice."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker_core.security.sasl import AuthenticationFailed

_KEY_VALUES: Final = r"(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+))?,\x01(?P<pairs>{_KEY_VALUES})\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ERROR_SEEN: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class ValidToken:
    """Say whom a token names, and when it expires (ms since the epoch)."""

    principal_name: str
    expires_ms: int | None = None


class InvalidToken(Exception):
    """Refuse a token; the client is told `status`, and the scope it would need, nothing else."""

    def __init__(self, reason: str = "", *, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


# validator(token, now_ms) returns a ValidToken or raises InvalidToken.
TokenValidator = Callable[[str, int], ValidToken]


class OAuthBearer:
    """Be the server's side of one OAUTHBEARER exchange.

    A refused token is answered with the reason first; the client says that it has seen it, and fails then.
    """

    def __init__(self, validator: TokenValidator) -> None:
        self.user_name: str | None = None
        self.expires_ms: int | None = None
        self._validator = validator
        self._error = ""

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Take the client's message with the token in it."""
        if token == _ERROR_SEEN and self._error:
            raise AuthenticationFailed(self._error)
        authorization_id, bearer_token = _parse(token)
        try:
            valid = self._validator(bearer_token, now_ms)
        except InvalidToken as refused:
            scope = {} if refused.scope is None else {"scope": refused.scope}
            self._error = json.dumps({"status": refused.status, **scope}, separators=(", ", ":"))
            return self._error.encode()
        if authorization_id not in ("", valid.principal_name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is "
                "different from the token's principal name"
            )
        self.user_name = valid.principal_name
        self.expires_ms = valid.expires_ms
        return b""


def _parse(message: bytes) -> tuple[str, str]:
    """Return authorization id and token."""
    first = _FIRST.fullmatch(message.decode(errors="replace"))
    if first is None:
        raise AuthenticationFailed
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise AuthenticationFailed
    return first["authorization_id"] or "", bearer["token"]
