"""The SASL state of one connection: the allowed next step, the client's principal, and the session lifetime.

The steps are Kafka's: ApiVersions at most once, SaslHandshake, then tokens until the mechanism is complete. If
sessions expire, a new handshake then starts re-authentication (KIP-368), with the same mechanism and user.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from broker_core.errors import ErrorCode
from broker_core.security.principals import ANONYMOUS, Principal, user
from broker_core.types import LONG_MAX

logger = logging.getLogger(__name__)

# Limits re-authentication: checking a password takes time, during which other clients wait.
_MIN_REAUTH_INTERVAL_MS: Final = 1000


class AuthenticationFailed(Exception):
    """The error for a failed authentication, with a message for the client.

    The default message contains only the mechanism, so that it does not reveal whether the user exists.
    """

    def __init__(self, message: str = "", code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Mechanism(Protocol):
    """The server's side of one SASL exchange.

    `user_name` is None while the client is not authenticated, `expires_ms` when the credentials do not expire.
    `has_token` tells whether they are a delegation token.
    """

    user_name: str | None
    expires_ms: int | None
    has_token: bool

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Evaluate the client's next token and return the response; raise `AuthenticationFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """A listener's SASL settings: its mechanisms, and the lifetime of a session (0: unlimited)."""

    # Not in the repr: a mechanism has references to passwords.
    mechanisms: Mapping[str, Callable[[], Mechanism]] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failure_delay_ms: int


class Step(Enum):
    """A step of authentication."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKEN = auto()


class SaslState(Enum):
    """The state of a client's authentication."""

    FRESH = auto()
    VERSIONS_TOLD = auto()
    EXCHANGE = auto()
    # The client requested a different mechanism for re-authentication: its next step ends the connection.
    WRONG_MECHANISM = auto()
    OPEN = auto()


# All other steps are refused. ApiVersions changes the state only if its response has no error.
ADMITTED: Final[Mapping[SaslState, frozenset[Step]]] = {
    SaslState.FRESH: frozenset({Step.VERSIONS, Step.HANDSHAKE}),
    SaslState.VERSIONS_TOLD: frozenset({Step.HANDSHAKE}),
    SaslState.EXCHANGE: frozenset({Step.TOKEN}),
    SaslState.WRONG_MECHANISM: frozenset(),
    SaslState.OPEN: frozenset(),
}


class SaslSession:
    """The authentication of one connection."""

    def __init__(self, settings: SaslSettings) -> None:
        self.settings = settings
        self.state = SaslState.FRESH
        self.principal: Principal = ANONYMOUS
        self.expires_ms: int | None = None
        # Whether the client authenticated with a delegation token.
        self.has_token = False
        # After SaslHandshake version 0, tokens are sent without Kafka's request header.
        self.has_bare_tokens = False
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""
        self._again_at_ms: int | None = None
        self._is_again = False

    @property
    def is_open(self) -> bool:
        return self.state is SaslState.OPEN

    @property
    def wants_bare_token(self) -> bool:
        """Return whether the next frame is a token without a request header."""
        return self.state is SaslState.EXCHANGE and self.has_bare_tokens

    def admits(self, step: Step | None) -> bool:
        return step in ADMITTED[self.state]

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the session has expired, so that only a new handshake is allowed."""
        return self.expires_ms is not None and now_ms > self.expires_ms

    def versions_told(self) -> None:
        if self.state is SaslState.FRESH:
            self.state = SaslState.VERSIONS_TOLD

    def may_begin_again(self, now_ms: int) -> bool:
        """Return whether a handshake may begin re-authentication: if sessions expire, and not too often."""
        is_early = self._again_at_ms is not None and now_ms - self._again_at_ms < _MIN_REAUTH_INTERVAL_MS
        return self.is_open and self.expires_ms is not None and not is_early

    def handshake(self, mechanism: str, version: int, now_ms: int) -> None:
        """Start an exchange with the requested mechanism; raise UNSUPPORTED_SASL_MECHANISM."""
        if self.is_open:
            self._is_again = True
            self._again_at_ms = now_ms
        if mechanism not in self.settings.mechanisms:
            raise AuthenticationFailed(
                "the client's SASL mechanism is not enabled", ErrorCode.UNSUPPORTED_SASL_MECHANISM
            )
        self.has_bare_tokens = version == 0
        if self._is_again and mechanism != self._mechanism_name:
            self.state = SaslState.WRONG_MECHANISM
            return
        self._mechanism_name = mechanism
        self._mechanism = self.settings.mechanisms[mechanism]()
        self.state = SaslState.EXCHANGE

    def evaluate(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        mechanism = self._mechanism
        assert mechanism is not None, "a token before the handshake"
        try:
            reply = mechanism.evaluate(token, now_ms)
        except AuthenticationFailed as failure:
            raise AuthenticationFailed(failure.message or self._failure_message(), failure.code) from None
        except Exception as error:
            # For example an error in a custom validator of tokens. Its text may contain the token, so it is not logged.
            logger.error("SASL mechanism %s failed: %s", self._mechanism_name, type(error).__name__)
            raise AuthenticationFailed(self._failure_message()) from None
        if mechanism.user_name is None:
            return reply, 0
        principal = user(mechanism.user_name)
        if self._is_again and principal != self.principal:
            raise AuthenticationFailed("Cannot change principals during re-authentication")
        lifetime_ms = self._lifetime_ms(mechanism.expires_ms, now_ms)
        self.principal = principal
        self.has_token = mechanism.has_token
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self.state = SaslState.OPEN
        # Drop the reference to the password.
        self._mechanism = None
        return reply, lifetime_ms or 0

    def _lifetime_ms(self, credentials_expire_ms: int | None, now_ms: int) -> int | None:
        """Return the session's lifetime: limited by the broker's setting and the expiration of the credentials."""
        bounds = [] if credentials_expire_ms is None else [credentials_expire_ms - now_ms]
        allowed_ms = self.settings.max_reauth_ms.get(self._mechanism_name, 0)
        if allowed_ms > 0:
            bounds.append(allowed_ms)
        return max(0, min(*bounds, LONG_MAX)) if bounds else None

    def _failure_message(self) -> str:
        what = "re-authentication" if self._is_again else "authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism_name}"
        )
