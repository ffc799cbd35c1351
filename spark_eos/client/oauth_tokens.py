"""OAUTHBEARER tokens: one for each source and process, renewed ahead of its expiration.

A token is fetched in a thread, because a token endpoint and a user's function take time, and the event loop serves
other connections meanwhile. A token that is due for renewal is used until the new one is there or it expires.
"""

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_eos.client.oauth_endpoint import fetch_token, shown_url
from spark_eos.client.token import Token, describe
from spark_eos.client.token_function import call_function
from spark_eos.errors import AuthenticationError, EosKafkaError
from spark_eos.options.oauth import OAuthOptions, RefreshOptions
from spark_eos.runtime import Clock, Randomness, Runtime

LOG: Final = logging.getLogger(__name__)
# How long a connection waits for a new token while the old one is valid.
_PATIENCE_S: Final = 1.0
# How long a token without a known expiration is used, and when a failed renewal is tried again.
_UNKNOWN_LIFETIME_S: Final = 60.0
_RENEW_AGAIN_S: Final = 10.0


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A source of tokens for kafka-python's connections."""

    def __init__(self, clock: Clock, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__()
        self._clock = clock
        self._extensions = extensions
        self._sent = ""

    @abstractmethod
    def current(self) -> str:
        """Return the token for a connection."""

    def attempt(self) -> "Attempt | None":
        """Return a request for a token that may take time, or None if there is nothing to wait for."""
        return None

    def token(self) -> str:
        self._sent = self.current()
        return self._sent

    def extensions(self) -> dict[str, str]:
        return dict(self._extensions)

    def rejected(self) -> str:
        """Note that the broker refused the token; describe it without showing it."""
        return describe(self._sent, self._clock.time_ns() / 1e9)


class Attempt:
    """A request for a token, shared by all that wait for it."""

    def __init__(self, name: str, fallback: Token | None = None) -> None:
        self.name = name
        self.fallback = fallback
        self.result: Token | EosKafkaError | None = None
        self.done = threading.Event()

    @property
    def patience_s(self) -> float | None:
        """Return for how long to wait at most, or None if there is no valid token to use instead."""
        return None if self.fallback is None else _PATIENCE_S

    def finish(self, result: Token | EosKafkaError) -> None:
        self.result = result
        self.done.set()

    def token(self) -> Token:
        """Return the token; raise `AuthenticationError` if there is none."""
        if isinstance(self.result, Token):
            return self.result
        if self.fallback is not None:
            return self.fallback
        if self.result is None:
            raise AuthenticationError(
                f"{self.name} returned no token in time",
                remedy="Check that this machine reaches it, or raise kafka.default.api.timeout.ms",
            )
        raise self.result


@dataclass(frozen=True, slots=True)
class _Held:
    token: Token
    renew_at: float
    expires_at: float


class SharedToken:
    """The token of one source, for all clients of this process."""

    def __init__(self, name: str, fetch: Callable[[], Token], refresh: RefreshOptions, runtime: Runtime) -> None:
        self.name = name
        self._fetch = fetch
        self._refresh = refresh
        self._runtime = runtime
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._running: Attempt | None = None

    def attempt(self) -> Attempt:
        """Return a finished attempt with the current token, or the one that fetches the next."""
        now = self._runtime.clock.monotonic()
        with self._lock:
            held = self._held
            if held is not None and now < held.renew_at:
                fresh = Attempt(self.name)
                fresh.finish(held.token)
                return fresh
            if self._running is None:
                valid = held.token if held is not None and now < held.expires_at else None
                self._running = Attempt(self.name, valid)
                threading.Thread(target=self._run, args=(self._running,), name="token", daemon=True).start()
            return self._running

    def forget(self, value: str) -> None:
        """Fetch another token for the next connection, because the broker refused this one."""
        with self._lock:
            if self._held is not None and self._held.token.value == value:
                self._held = None

    def _run(self, attempt: Attempt) -> None:
        asked = self._runtime.clock.monotonic()
        result: Token | EosKafkaError
        try:
            result = self._fetch()
        except EosKafkaError as error:
            result = error
        except BaseException as error:
            # Its text may contain the secret.
            result = AuthenticationError(f"{self.name} failed with {type(error).__name__}")
        with self._lock:
            self._running = None
            if isinstance(result, Token):
                self._held = _held(result, asked, self._refresh, self._runtime.random)
            elif attempt.fallback is not None and self._held is not None:
                LOG.warning("The token is not renewed, the previous one remains in use: %s", result)
                now = self._runtime.clock.monotonic()
                self._held = _Held(self._held.token, now + _RENEW_AGAIN_S, self._held.expires_at)
        attempt.finish(result)


class SharedTokenProvider(TokenProvider):
    """The token that this process shares."""

    def __init__(self, shared: SharedToken, clock: Clock, extensions: tuple[tuple[str, str], ...], wait_s: float):
        super().__init__(clock, extensions)
        self._shared = shared
        self._own_extensions = extensions
        self._wait_s = wait_s

    def attempt(self) -> Attempt:
        return self._shared.attempt()

    def current(self) -> str:
        """Return the current token; it is there already, except when a session is renewed."""
        attempt = self._shared.attempt()
        attempt.done.wait(self._wait_s if attempt.fallback is None else 0)
        token = attempt.token()
        self._extensions = (*self._own_extensions, *token.extensions)
        return token.value

    def rejected(self) -> str:
        self._shared.forget(self._sent)
        return super().rejected()


# By process: a forked child does not use its parent's locks and threads.
_shared: Final[dict[int, dict[OAuthOptions, SharedToken]]] = {}


def shared_token(options: OAuthOptions, runtime: Runtime) -> SharedToken:
    of_process = _shared.setdefault(runtime.process.getpid(), {})
    found = of_process.get(options)
    return found or of_process.setdefault(options, _shared_token(options, runtime))


def _shared_token(options: OAuthOptions, runtime: Runtime) -> SharedToken:
    endpoint, function = options.endpoint, options.function
    if endpoint is not None:
        name = f"The token endpoint {shown_url(endpoint.url)}"
        return SharedToken(name, lambda: fetch_token(endpoint, runtime), options.refresh, runtime)
    assert function is not None, "the options name no source"
    name = f"The token provider {function}"
    return SharedToken(name, lambda: call_function(function, runtime.clock), options.refresh, runtime)


def _held(token: Token, asked: float, refresh: RefreshOptions, random: Randomness) -> _Held:
    """Return when to renew a token, by the Java client's rule."""
    if token.lifetime_s is None:
        until = asked + _UNKNOWN_LIFETIME_S
        return _Held(token, until, until)
    lifetime_s = token.lifetime_s
    renew_s = lifetime_s * (refresh.window_factor + random.uniform(0, refresh.window_jitter))
    if refresh.min_period_s + refresh.buffer_s < lifetime_s:
        renew_s = max(refresh.min_period_s, min(renew_s, lifetime_s - refresh.buffer_s))
    return _Held(token, asked + renew_s, asked + lifetime_s)
