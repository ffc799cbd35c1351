"""Check a name and a password that come in the clear (RFC 4616)."""

from collections.abc import Mapping
from hmac import compare_digest

from broker_core.security.sasl import AuthenticationFailed


class Plain:
    """Be the server's side of one PLAIN exchange: one token, and the client is known or refused."""

    expires_ms = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user_name: str | None = None

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Take `authorization id, NUL, name, NUL, password`."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        # An unknown user costs a comparison too, so that the time tells no names; no password is empty.
        if not compare_digest(self._passwords.get(name, "").encode(), password.encode()):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user_name = name
        return b""
