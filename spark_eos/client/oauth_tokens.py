"""OAUTHBEARER tokens: one for each source and process, renewed ahead of its expiration.

A token is fetched in a thread, because a token endpoint and a user's function take time, and the event loop serves
other connections meanwhile. A token that is due for renewal is used until the new one is there or it expires.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_eos.client.oauth_endpoint import (
    Token,
    base64url,
    describe,
    expiration_s,
    fetch_token,
    is_bearer_token,
    is_time,
    shown_url,
)
from spark_eos.errors import AuthenticationError, EosKafkaError
from spark_eos.options.client import ClientOptions
from spark_eos.options.oauth import OAuthOptions, RefreshOptions, extension_problem
from spark_eos.runtime import Clock, Randomness, Runtime, now_ms

LOG: Final = logging.getLogger(__name__)
# How long a connection waits for a new token while the old one is valid.
_PATIENCE_S: Final = 1.0
# How long a token without a known expiration is used, and when a failed renewal is tried again.
_UNKNOWN_LIFETIME_S: Final = 60.0
_RENEW_AGAIN_S: Final = 10.0
# By process: a forked child does not use its parent's locks and threads.
_shared: Final["dict[int, dict[OAuthOptions, SharedToken]]"] = {}
# kafka-python logs each request with these loggers at DEBUG, as an object and as bytes; a request that
# authenticates contains the password or the token.
_REQUEST_LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_UNSIGNED_LIFETIME_S: Final = 3_600


def call_function(name: str, clock: Clock) -> Token:
    """Call a user's function, `kafka.sasl.oauthbearer.token.provider=module:function`, and check what it returns.

    That has the form of confluent-kafka's `oauth_cb`: a tuple of the token, its expiration in seconds since 1970 or
    None, and optionally the principal and the SASL extensions. Errors show the types of values, never the values.
    """
    function = _imported(name)
    if not callable(function):
        raise _function_problem(name, f"is of type {type(function).__name__}, which cannot be called")
    result: object = None
    failed = ""
    try:
        result = function()
    except Exception as error:
        # Not the error itself, whose text may contain a secret.
        failed = type(error).__name__
    if failed:
        raise _function_problem(name, f"raised {failed}")
    return _token_of(name, result, clock)


def _imported(name: str) -> object:
    module_name, _, path = name.partition(":")
    found: Any = None
    failed = ""
    try:
        found = import_module(module_name)
    except ModuleNotFoundError as error:
        failed = f"there is no module {error.name or module_name!r}"
    except Exception as error:
        failed = f"module {module_name!r} raised {type(error).__name__}"
    if failed:
        raise _function_problem(name, f"cannot be imported: {failed}")
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise _function_problem(name, f"does not exist: module {module_name!r} has no {path!r}")
    return found


def _token_of(name: str, result: object, clock: Clock) -> Token:
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        raise _function_problem(
            name, f"returned {_type(result)} instead of a tuple (token, expires_at, principal, extensions)"
        )
    padded: list[Any] = [*result, None, None]
    value, expires_at, principal, extensions = padded[:4]
    if not isinstance(value, str) or not is_bearer_token(value):
        raise _function_problem(
            name, f"returned {_type(value)} as its first item, which is not a token that can be sent"
        )
    if expires_at is not None and not is_time(expires_at):
        raise _function_problem(
            name, f"returned {_type(expires_at)} as its second item, which is not a time in seconds since 1970"
        )
    if not isinstance(principal, str | None):
        raise _function_problem(name, f"returned {_type(principal)} instead of a principal, as its third item")
    if not isinstance(extensions, Mapping | None) or not all(
        isinstance(text, str) for pair in (extensions or {}).items() for text in pair
    ):
        raise _function_problem(
            name, f"returned {_type(extensions)} instead of a dict of extensions, as its fourth item"
        )
    bad = extension_problem(extensions or {})
    if bad:
        raise _function_problem(name, f"returned an extension that cannot be sent: {bad}")
    now_s = clock.time_ns() / 1e9
    expires_s = expiration_s(value) if expires_at is None else expires_at
    if expires_s is not None and expires_s <= now_s:
        raise _function_problem(
            name, f"returned a token that expired {now_s - expires_s:.0f} s ago by this machine's clock"
        )
    return Token(
        value, None if expires_s is None else expires_s - now_s, principal, tuple(sorted((extensions or {}).items()))
    )


def _type(value: object) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _function_problem(name: str, what: str) -> AuthenticationError:
    module, _, function = name.partition(":")
    return AuthenticationError(
        f"The token provider {name} {what}",
        remedy=f"Try `python -c 'import {module}; {module}.{function}()'` on the driver and on an executor",
    )


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A source of tokens for kafka-python's connections."""

    def __init__(self, clock: Clock, extensions: tuple[tuple[str, str], ...], current: Callable[[], str]) -> None:
        super().__init__()
        self._clock = clock
        self._extensions = extensions
        self._current = current
        self._sent = ""

    def attempt(self) -> "Attempt | None":
        return None

    def token(self) -> str:
        self._sent = self._current()
        return self._sent

    def extensions(self) -> dict[str, str]:
        return dict(self._extensions)

    def rejected(self) -> str:
        return describe(self._sent, self._clock.time_ns() / 1e9)


@dataclass(eq=False)
class Attempt:
    """A request for a token, shared by all that wait for it."""

    name: str
    fallback: Token | None = None
    result: Token | EosKafkaError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def patience_s(self) -> float | None:
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
        self._ahead_s = runtime.clock.time_ns() / 1e9 - runtime.clock.monotonic()
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._running: Attempt | None = None

    def _now(self) -> float:
        """Return the monotonic time, or a later one: that clock stands while a machine is suspended."""
        return max(self._runtime.clock.monotonic(), self._runtime.clock.time_ns() / 1e9 - self._ahead_s)

    def attempt(self) -> Attempt:
        """Return a finished attempt with the current token, or the attempt to fetch the next."""
        now = self._now()
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
        asked = self._now()
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
                self._held = _Held(self._held.token, self._now() + _RENEW_AGAIN_S, self._held.expires_at)
        attempt.finish(result)


class SharedTokenProvider(TokenProvider):
    """The token that this process shares."""

    def __init__(self, shared: SharedToken, clock: Clock, extensions: tuple[tuple[str, str], ...], wait_s: float):
        super().__init__(clock, extensions, self._current_token)
        self._shared = shared
        self._own_extensions = extensions
        self._wait_s = wait_s

    def attempt(self) -> Attempt:
        return self._shared.attempt()

    def _current_token(self) -> str:
        """Return the current token; it is there already, except when a session is renewed."""
        attempt = self._shared.attempt()
        attempt.done.wait(self._wait_s if attempt.fallback is None else 0)
        token = attempt.token()
        self._extensions = (*self._own_extensions, *token.extensions)
        return token.value

    def rejected(self) -> str:
        self._shared.forget(self._sent)
        return super().rejected()


def shared_token(options: OAuthOptions, runtime: Runtime) -> SharedToken:
    of_process, options = _shared.setdefault(runtime.process.getpid(), {}), replace(options, extensions=())
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


def token_provider(options: ClientOptions, runtime: Runtime) -> TokenProvider | None:
    oauth, clock = options.sasl_oauth, runtime.clock
    if oauth is None:
        return None
    if oauth.token_path is not None:
        return TokenProvider(clock, oauth.extensions, partial(_token_in_file, oauth.token_path))
    if oauth.unsigned_subject is not None:
        return TokenProvider(clock, oauth.extensions, partial(_unsigned_token, oauth.unsigned_subject, clock))
    wait_s = min(options.request_timeout_ms, options.api_timeout_ms) / 1000
    return SharedTokenProvider(shared_token(oauth, runtime), clock, oauth.extensions, wait_s)


def _token_in_file(path: str) -> str:
    """Read a token for one connection, because the file is replaced before the token expires.

    The error for an invalid token shows nothing of it.
    """
    text = ""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
        problem = "" if text and text.isprintable() and " " not in text else "contains more than a token"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        problem = "contains no token"
    if problem:
        raise AuthenticationError(
            f"The token file {path} {problem}",
            remedy="Keep a valid token in this file on the driver and on every executor, or correct "
            "kafka.sasl.oauthbearer.token.endpoint.url",
        )
    return text


def _unsigned_token(subject: str, clock: Clock) -> str:
    """Make one of Kafka's unsecured JSON web tokens (RFC 7515, appendix A.5), for test brokers: they prove nothing."""
    now_s = now_ms(clock) // 1_000
    claims = {"sub": subject, "iat": now_s, "exp": now_s + _UNSIGNED_LIFETIME_S}
    return "".join(f"{base64url(json.dumps(part).encode())}." for part in ({"alg": "none"}, claims))


def keep_out_of_logs() -> None:
    """Make kafka-python log authentication requests by name only, and bytes by length; safe to call again."""
    for name in _REQUEST_LOGGERS:
        logging.getLogger(name).addFilter(_hide)


def _hide(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_shown(each) for each in record.args)
    return True


def _shown(argument: object) -> object:
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"{len(argument)} bytes"
    return f"{type(argument).__name__}([hidden])" if hasattr(argument, "auth_bytes") else argument
