"""One OAUTHBEARER token: its text, its lifetime, and what may be shown of it."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

# RFC 6750; kafka-python sends the token as it is.
_BEARER: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_MOST_SHOWN: Final = 120
_LATEST_S: Final = 2**40


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and how long it is valid from the moment it was asked for, if that is known."""

    value: str = field(repr=False)
    lifetime_s: float | None = None
    principal: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()


def base64url(data: bytes) -> str:
    """Encode as the parts of a JSON web token (RFC 7515): without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def is_bearer_token(text: str) -> bool:
    return _BEARER.fullmatch(text) is not None


def claims_of(token: str) -> Mapping[str, Any] | None:
    """Return the claims of a JSON web token without verifying them, None for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def expiration_s(token: str) -> float | None:
    """Return when a token expires by its own claim, in seconds since 1970."""
    found = (claims_of(token) or {}).get("exp")
    return float(found) if is_time(found) else None


def is_time(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a time in seconds since 1970, and not NaN or beyond all calendars."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST_S


def describe(token: str, now_s: float) -> str:
    """Describe a token by claims that are no secrets: who issued it, for which audience, until when."""
    claims = claims_of(token)
    if claims is None:
        return "The token is not a JSON web token"
    named = [f"{name} {_shown(claims[name])}" for name in ("iss", "aud", "scope") if name in claims]
    expires_s = expiration_s(token)
    if expires_s is not None:
        left_s = round(expires_s - now_s)
        when = f"expires in {left_s} s" if left_s > 0 else f"expired {-left_s} s ago"
        named.append(f"and it {when} by this machine's clock")
    return f"The token has {', '.join(named)}" if named else "The token has no issuer, audience or expiration"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
