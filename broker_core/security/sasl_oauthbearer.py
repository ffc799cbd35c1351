"""The SASL mechanism OAUTHBEARER (RFC 7628), and the validator for unsigned tokens.

The validator of tokens is configurable. The default accepts unsigned tokens, as in Kafka; it is for tests only.
"""

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from broker_core.security.sasl import AuthenticationFailed
from broker_core.types import check_number, check_text

_KEY_VALUES: Final = r"(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+))?,\x01(?P<pairs>{_KEY_VALUES})\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ERROR_SEEN: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class ValidToken:
    """The user of a valid token, and its expiration in milliseconds since the epoch.

    Raises TypeError for a name that is not text, and an expiration that is not a number.
    """

    principal_name: str
    expires_ms: int | None = None

    def __post_init__(self) -> None:
        check_text("principal_name", self.principal_name)
        if self.expires_ms is not None:
            check_number("expires_ms", self.expires_ms)
            object.__setattr__(self, "expires_ms", int(self.expires_ms))


class InvalidToken(Exception):
    """The error for a refused token; the client receives only `status` and the required `scope`."""

    def __init__(self, reason: str = "", *, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


# `validator(token, now_ms)` returns a `ValidToken` or raises `InvalidToken`.
TokenValidator = Callable[[str, int], ValidToken]


class OAuthBearer:
    """The server's side of one OAUTHBEARER exchange.

    The response to a refused token contains the status. Authentication fails when the client has confirmed it.
    """

    has_token = False

    def __init__(self, validator: TokenValidator) -> None:
        self.user_name: str | None = None
        self.expires_ms: int | None = None
        self._validator = validator
        self._error = ""

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
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
    first = _FIRST.fullmatch(message.decode(errors="replace"))
    if first is None:
        raise AuthenticationFailed
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise AuthenticationFailed
    return first["authorization_id"] or "", bearer["token"]


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """The validator of unsigned tokens: well-formed, issued, not expired, with the required scope."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    def __call__(self, token: str, now_ms: int) -> ValidToken:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise InvalidToken("an unsigned token is two sections and an empty third, with dots between")
        header, claims = (token_section(part) for part in parts[:2])
        if header.get("alg") != "none":
            raise InvalidToken("the algorithm is not none")
        name = token_name(claims, self.principal_claim)
        expires_ms, issued_ms = token_time_ms(claims, "exp"), token_time_ms(claims, "iat")
        if expires_ms is None:
            raise InvalidToken("the token has no expiration time")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired")
        if issued_ms is not None and not now_ms + self.clock_skew_ms >= issued_ms < expires_ms:
            raise InvalidToken("the token was issued in the future or after it expires")
        scope = claims.get(self.scope_claim)
        held = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
        if any(needed not in held for needed in self.required_scope):
            raise InvalidToken(
                "a required scope is missing", status="insufficient_scope", scope=f"[{', '.join(self.required_scope)}]"
            )
        return ValidToken(name, int(expires_ms))


def token_section(text: str) -> dict[str, Any]:
    """Decode one section of a JSON web token; tokens occur in both base64 alphabets."""
    padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    try:
        content = json.loads(base64.b64decode(padded, validate=True))
    except (ValueError, RecursionError):
        raise InvalidToken("a section is not JSON in base64") from None
    if not isinstance(content, dict):
        raise InvalidToken("a section is not a JSON object")
    return content


def token_name(claims: dict[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"the claim {claim} is missing or empty")
    return name


def token_time_ms(claims: dict[str, Any], claim: str) -> float | None:
    """Return a time among the claims, in milliseconds since the epoch."""
    seconds = claims.get(claim)
    if seconds is None:
        return None
    if isinstance(seconds, int) and not isinstance(seconds, bool):
        return 1000 * seconds
    if not isinstance(seconds, float) or not math.isfinite(1000 * seconds):
        raise InvalidToken(f"the claim {claim} is not a number")
    return 1000 * seconds
