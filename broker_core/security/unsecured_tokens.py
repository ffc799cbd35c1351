"""Take unsigned JSON web tokens at their word, as Kafka's own default for OAUTHBEARER does: for tests only."""

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

from broker_core.security.sasl_oauthbearer import InvalidToken, ValidToken


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Validate unsigned tokens: well-formed, issued, not expired, with the scope that is asked for."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    def __call__(self, token: str, now_ms: int) -> ValidToken:
        """Return whom the token names; raise `InvalidToken`."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise InvalidToken("an unsigned token is two sections and an empty third, with dots between")
        header, claims = (_section(part) for part in parts[:2])
        if header.get("alg") != "none":
            raise InvalidToken("the algorithm is not none")
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise InvalidToken(f"the claim {self.principal_claim} names nobody")
        expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
        if expires_ms is None:
            raise InvalidToken("the token does not say when it expires")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired")
        if issued_ms is not None and not now_ms + self.clock_skew_ms >= issued_ms < expires_ms:
            raise InvalidToken("the token was issued in the future or after it expires")
        self._check_scope(claims.get(self.scope_claim))
        return ValidToken(name, int(expires_ms))

    def _check_scope(self, scope: Any) -> None:
        held = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
        if any(needed not in held for needed in self.required_scope):
            raise InvalidToken(
                "a required scope is missing", status="insufficient_scope", scope=f"[{', '.join(self.required_scope)}]"
            )


def _section(text: str) -> dict[str, Any]:
    """Decode one section; both base64 alphabets are met in the wild."""
    padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    try:
        content = json.loads(base64.b64decode(padded, validate=True))
    except (ValueError, RecursionError):
        raise InvalidToken("a section is not JSON in base64") from None
    if not isinstance(content, dict):
        raise InvalidToken("a section is not a JSON object")
    return content


def _time_ms(claims: dict[str, Any], claim: str) -> float | None:
    seconds = claims.get(claim)
    if seconds is None:
        return None
    if isinstance(seconds, int) and not isinstance(seconds, bool):
        return 1000 * seconds
    if not isinstance(seconds, float) or not math.isfinite(1000 * seconds):
        raise InvalidToken(f"the claim {claim} is not a number")
    return 1000 * seconds
