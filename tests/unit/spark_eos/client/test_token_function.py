"""A user's function that returns tokens: what it may return, and words for everything else."""

import json
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spark_eos.client.oauth_endpoint import Token, describe
from spark_eos.client.oauth_tokens import call_function
from spark_eos.errors import AuthenticationError
from spark_eos.runtime import REAL
from tests.support.oidc_provider import encoded

SECRET = "tell-no-one"
MODULE = "own_tokens_of_a_test"


def now_s() -> float:
    return REAL.clock.time_ns() / 1e9


class AccessToken(NamedTuple):
    """The form that azure-identity returns."""

    token: str
    expires_on: int


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


def called(module: types.ModuleType, function: Any, name: str = f"{MODULE}:get") -> Token:
    module.get = function  # type: ignore[attr-defined]
    return call_function(name, REAL.clock)


def jwt(expires_s: float) -> str:
    return f"{encoded(b'{}')}.{encoded(json.dumps({'exp': expires_s}).encode())}.signature"


def test_token_with_everything_is_returned(module: types.ModuleType) -> None:
    token = called(module, lambda: ("abc", now_s() + 3600, "alice", {"logicalCluster": "lkc-1"}))
    assert (token.value, token.principal, token.extensions) == ("abc", "alice", (("logicalCluster", "lkc-1"),))
    assert token.lifetime_s == pytest.approx(3600, abs=60)


@pytest.mark.parametrize(
    ("function", "lifetime_s"),
    [
        (lambda: ("abc", None), None),
        (lambda: ("abc", None, None, None), None),
        (lambda: ("abc", now_s() + 100, "alice"), 100),
        (lambda: (jwt(now_s() + 100), None), 100),
        (lambda: AccessToken("abc", int(now_s() + 100)), 100),
    ],
)
def test_expiration_may_be_the_tokens_own_or_unknown(
    module: types.ModuleType, function: Callable[[], Any], lifetime_s: float | None
) -> None:
    found = called(module, function).lifetime_s
    assert found == (None if lifetime_s is None else pytest.approx(lifetime_s, abs=60))


def test_function_may_be_a_method(module: types.ModuleType) -> None:
    class Tokens:
        @staticmethod
        def get() -> tuple[str, None]:
            return "abc", None

    module.Tokens = Tokens  # type: ignore[attr-defined]
    assert call_function(f"{MODULE}:Tokens.get", REAL.clock).value == "abc"


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raising(ValueError(SECRET)), "raised ValueError"),
        (raising(KeyError(SECRET)), "raised KeyError"),
        (lambda extra: SECRET, "raised TypeError"),
        (lambda: None, "returned a NoneType instead of a tuple"),
        (lambda: SECRET, "returned a str instead of a tuple"),
        (lambda: (SECRET,), "returned a tuple of 1 instead of a tuple"),
        (lambda: (SECRET, 1, 2, 3, 4), "returned a tuple of 5 instead of a tuple"),
        (lambda: {"token": SECRET}, "returned a dict instead of a tuple"),
        (lambda: (SECRET.encode(), None), "returned a bytes as its first item, which is not a token"),
        (lambda: (f"{SECRET} {SECRET}", None), "returned a str as its first item, which is not a token"),
        (lambda: ("", None), "returned a str as its first item, which is not a token"),
        (lambda: (SECRET, "soon"), "returned a str as its second item, which is not a time in seconds since 1970"),
        (lambda: (SECRET, float("nan")), "returned a float as its second item, which is not a time"),
        (lambda: (SECRET, True), "returned a bool as its second item, which is not a time"),
        (lambda: (SECRET, 10**400), "returned a int as its second item, which is not a time"),
        (lambda: (SECRET, now_s() - 100), r"returned a token that expired 1\d\d s ago by this machine's clock"),
        (lambda: (jwt(now_s() - 100), None), "returned a token that expired"),
        (lambda: (SECRET, None, 5), "returned a int instead of a principal"),
        (lambda: (SECRET, None, None, [SECRET]), "returned a list instead of a dict of extensions"),
        (lambda: (SECRET, None, None, {"a": 1}), "returned a dict instead of a dict of extensions"),
        (lambda: (SECRET, None, None, {"auth": SECRET}), "cannot have the name 'auth'"),
        (lambda: (SECRET, None, None, {"a": f"{SECRET}\x01"}), "extension a has an invalid value"),
        (5, "is of type int, which cannot be called"),
        (None, f"does not exist: module '{MODULE}' has no 'get'"),
    ],
)
def test_error_names_the_step_and_not_the_secret(module: types.ModuleType, function: Any, text: str) -> None:
    with pytest.raises(AuthenticationError, match=text) as raised:
        called(module, function)
    assert f"The token provider {MODULE}:get " in str(raised.value)
    assert f"python -c 'import {MODULE}; {MODULE}.get()'" in str(raised.value)
    assert SECRET not in f"{raised.value} {raised.value.__cause__!r} {raised.value.__context__!r}"


def test_module_that_is_missing_or_broken_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationError, match="cannot be imported: there is no module 'no_such_module'"):
        call_function("no_such_module:get", REAL.clock)
    (tmp_path / "broken_tokens.py").write_text(f"raise RuntimeError({SECRET!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AuthenticationError, match="module 'broken_tokens' raised RuntimeError") as raised:
        call_function("broken_tokens:get", REAL.clock)
    assert SECRET not in f"{raised.value} {raised.value.__context__!r}"


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        (
            '{"iss": "i", "aud": ["a", "b"], "exp": 160}',
            'The token has iss \'i\', aud ["a", "b"], and it expires in 60 s',
        ),
        ('{"exp": 40}', "and it expired 60 s ago by this machine's clock"),
        ("{}", "has no issuer, audience or expiration"),
        ("[]", "not a JSON web token"),
        (f'{{"exp": 1{"0" * 400}}}', "has no issuer"),
        ('{"exp": Infinity, "iss": 5}', "has iss 5"),
        ("{", "not a JSON web token"),
    ],
)
def test_token_is_described_by_its_claims(claims: str, text: str) -> None:
    assert text in describe(f"h.{encoded(claims.encode())}.s", 100)
