"""A user's function that returns OAUTHBEARER tokens: `kafka.sasl.oauthbearer.token.provider=module:function`.

The result has the form of confluent-kafka's `oauth_cb`: a tuple of the token, its expiration in seconds since 1970 or
None, and optionally the principal and the SASL extensions. Errors show the types of values, never the values.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from spark_eos.client.token import Token, expiration_s, is_bearer_token, is_time
from spark_eos.errors import AuthenticationError
from spark_eos.options.oauth import extension_problem
from spark_eos.runtime import Clock


def call_function(name: str, clock: Clock) -> Token:
    function = _imported(name)
    if not callable(function):
        raise _problem(name, f"is of type {type(function).__name__}, which cannot be called")
    result: object = None
    failed = ""
    try:
        result = function()
    except Exception as error:
        # Not the error itself, whose text may contain a secret.
        failed = type(error).__name__
    if failed:
        raise _problem(name, f"raised {failed}")
    return _token(name, result, clock)


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
        raise _problem(name, f"cannot be imported: {failed}")
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise _problem(name, f"does not exist: module {module_name!r} has no {path!r}")
    return found


def _token(name: str, result: object, clock: Clock) -> Token:
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        raise _problem(name, f"returned {_type(result)} instead of a tuple (token, expires_at, principal, extensions)")
    padded: list[Any] = [*result, None, None]
    value, expires_at, principal, extensions = padded[:4]
    if not isinstance(value, str) or not is_bearer_token(value):
        raise _problem(name, f"returned {_type(value)} as its first item, which is not a token that can be sent")
    if expires_at is not None and not is_time(expires_at):
        raise _problem(
            name, f"returned {_type(expires_at)} as its second item, which is not a time in seconds since 1970"
        )
    if not isinstance(principal, str | None):
        raise _problem(name, f"returned {_type(principal)} instead of a principal, as its third item")
    if not isinstance(extensions, Mapping | None) or not all(
        isinstance(text, str) for pair in (extensions or {}).items() for text in pair
    ):
        raise _problem(name, f"returned {_type(extensions)} instead of a dict of extensions, as its fourth item")
    bad = extension_problem(extensions or {})
    if bad:
        raise _problem(name, f"returned an extension that cannot be sent: {bad}")
    now_s = clock.time_ns() / 1e9
    expires_s = expiration_s(value) if expires_at is None else expires_at
    if expires_s is not None and expires_s <= now_s:
        raise _problem(name, f"returned a token that expired {now_s - expires_s:.0f} s ago by this machine's clock")
    return Token(
        value, None if expires_s is None else expires_s - now_s, principal, tuple(sorted((extensions or {}).items()))
    )


def _type(value: object) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _problem(name: str, what: str) -> AuthenticationError:
    module, _, function = name.partition(":")
    return AuthenticationError(
        f"The token provider {name} {what}",
        remedy=f"Try `python -c 'import {module}; {module}.{function}()'` on the driver and on an executor",
    )
