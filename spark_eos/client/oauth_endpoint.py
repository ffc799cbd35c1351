"""Tokens of OAUTHBEARER, and requests for them: client credentials and signed assertions.

Certificates are verified, proxies of the environment are used (`https_proxy`, `no_proxy`), redirects are refused, and
no error contains the secret or what the endpoint returned.
"""

import base64
import binascii
import http.client
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard

from spark_eos.backoff import backoff_ms
from spark_eos.client.tls import identify, trust
from spark_eos.errors import AuthenticationError, OptionError
from spark_eos.options.oauth import JWT_BEARER, AssertionOptions, EndpointOptions
from spark_eos.runtime import Runtime

# RFC 6750; kafka-python sends the token as it is.
_BEARER: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_MOST_SHOWN: Final = 120
_LATEST_S: Final = 2**40
_ES256_BYTES: Final = 32
_ID_BYTES: Final = 16
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_RETRIED: Final = frozenset({408, 425, 429})
_MOST_BYTES: Final = 1024 * 1024
# The error codes of OAuth (RFC 6749); other text from the endpoint is not shown, it could repeat the secret.
_OAUTH_ERRORS: Final = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
_REMEDIES: Final = {
    "invalid_client": "Check the client's id and secret, or the key and the claims of its assertion",
    "invalid_grant": "Check the assertion: its key, its claims, and this machine's clock",
    "invalid_scope": "Check kafka.sasl.oauthbearer.scope",
}
_REMEDY: Final = "Check kafka.sasl.oauthbearer.* against your identity provider"
_REACH_REMEDY: Final = (
    "Check kafka.sasl.oauthbearer.token.endpoint.url, and that the driver and every executor reach it, with the proxy "
    "in https_proxy if there is one"
)


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


def signed_assertion(options: AssertionOptions, runtime: Runtime) -> str:
    """Return an assertion (RFC 7523, KIP-1139): the one in the file, or one that is signed now.

    Files are read for each request, because they may be replaced. The library `cryptography` is needed to sign only.
    """
    if options.file is not None:
        text = _read(options.file, "assertion").strip()
        if not is_bearer_token(text):
            raise _assertion_problem(
                f"The assertion file {options.file} does not contain one assertion and nothing else"
            )
        return text
    now_s = runtime.clock.time_ns() // 1_000_000_000
    template = _template(options.template_path)
    header = {**template.get("header", {}), "alg": options.algorithm, "typ": "JWT"}
    payload = {
        **dict(options.claims),
        **template.get("payload", {}),
        "iat": now_s,
        "exp": now_s + options.lifetime_s,
        "nbf": now_s - options.not_before_s,
    }
    if options.has_id:
        payload["jti"] = runtime.random.token_hex(_ID_BYTES)
    signed = f"{base64url(json.dumps(header).encode())}.{base64url(json.dumps(payload).encode())}"
    return f"{signed}.{base64url(_signature(options, signed.encode()))}"


def _template(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(_read(path, "template"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in ("header", "payload")):
        raise _assertion_problem(f"The assertion template {path} is not a JSON object with header and payload")
    return found


def _signature(options: AssertionOptions, signed: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    except ImportError:
        raise AuthenticationError(
            "Assertions cannot be signed: the package cryptography is missing",
            remedy="Install cryptography on the driver and on every executor",
        ) from None
    pem = options.key_pem or _read(options.key_path or "", "key")
    passphrase = options.key_passphrase.encode() if options.key_passphrase else None
    try:
        key = serialization.load_pem_private_key(pem.encode(), passphrase)
    except Exception:
        # The library's errors vary with its version, and may name parts of the key.
        key = None
    if options.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if (
        options.algorithm == "ES256"
        and isinstance(key, ec.EllipticCurvePrivateKey)
        and isinstance(key.curve, ec.SECP256R1)
    ):
        pair = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b"".join(number.to_bytes(_ES256_BYTES, "big") for number in pair)
    what = "cannot be read" if key is None else f"does not fit the algorithm {options.algorithm}"
    raise _assertion_problem(f"The key that signs assertions {what}: {options.key_path or 'private.key.pem'}")


def _read(path: str, what: str) -> str:
    reason = "it is not text"
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        pass
    # A key in the wrong option is not shown.
    shown = "in the options" if "-----BEGIN" in path else path
    raise _assertion_problem(f"The {what} file {shown} cannot be read: {reason}")


def _assertion_problem(what: str) -> AuthenticationError:
    return AuthenticationError(
        what, remedy="Check kafka.sasl.oauthbearer.assertion.* and its files on the driver and on every executor"
    )


class _Temporary(Exception):
    """A failure that may go away; its text may be shown."""


def shown_url(url: str) -> str:
    """Return an endpoint's URL without its query, which may contain a secret."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def fetch_token(endpoint: EndpointOptions, runtime: Runtime) -> Token:
    """Ask for a token; repeat requests that failed for reasons that may go away, for as long as the options say."""
    opener = _opener(endpoint)
    until = runtime.clock.monotonic() + endpoint.retry_max_ms / 1000
    attempt = 0
    while True:
        try:
            return _token(endpoint, _send(opener, endpoint, runtime), runtime)
        except _Temporary as problem:
            failed = str(problem)
        attempt += 1
        left_s = until - runtime.clock.monotonic()
        if left_s <= 0:
            raise _problem(endpoint, f"{failed} (tried for {endpoint.retry_max_ms} ms)", _REACH_REMEDY)
        delay_s = backoff_ms(attempt - 1, endpoint.retry_backoff_ms, endpoint.retry_max_ms) / 1000
        runtime.clock.sleep(min(delay_s * runtime.random.uniform(0.8, 1.2), left_s))


def _send(opener: urllib.request.OpenerDirector, endpoint: EndpointOptions, runtime: Runtime) -> bytes:
    request = _request(endpoint, runtime)
    # Raised after the handlers, so that no error of the standard library is its context.
    problem: Exception
    try:
        with opener.open(request, timeout=endpoint.connect_timeout_ms / 1000) as response:
            body = bytes(response.read(_MOST_BYTES + 1))
        if len(body) <= _MOST_BYTES:
            return body
        problem = _problem(endpoint, "returned more than 1 MiB", _REMEDY)
    except urllib.error.HTTPError as error:
        problem = _refused(endpoint, error)
    except urllib.error.URLError as error:
        problem = _unreached(endpoint, error.reason)
    except (OSError, http.client.HTTPException) as error:
        problem = _unreached(endpoint, error)
    raise problem


def _refused(endpoint: EndpointOptions, error: urllib.error.HTTPError) -> Exception:
    with error:
        code = _oauth_error(error)
    status = f"returned status {error.code}{f' ({code})' if code else ''}"
    if error.code >= 500 or error.code in _RETRIED:
        return _Temporary(status)
    if 300 <= error.code < 400:
        return _problem(endpoint, f"{status}, a redirect, which is not followed", _REACH_REMEDY)
    return _problem(endpoint, status, _REMEDIES.get(code, _REMEDY))


def _oauth_error(error: urllib.error.HTTPError) -> str:
    try:
        code = json.loads(error.read(_MOST_BYTES)).get("error")
    except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
        return ""
    return code if isinstance(code, str) and code in _OAUTH_ERRORS else ""


def _unreached(endpoint: EndpointOptions, reason: object) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _problem(
            endpoint,
            f"has a certificate that is not trusted: {reason.verify_message}",
            "Set kafka.https.ca.location to a PEM file with the authority that signs it, or ssl.truststore.location "
            "in kafka.sasl.jaas.config",
        )
    text = reason.strerror or str(reason) if isinstance(reason, OSError) else type(reason).__name__
    return _Temporary(f"cannot be reached: {text}")


def _problem(endpoint: EndpointOptions, what: str, remedy: str) -> AuthenticationError:
    return AuthenticationError(f"The token endpoint {shown_url(endpoint.url)} {what}", remedy=remedy)


def _request(endpoint: EndpointOptions, runtime: Runtime) -> urllib.request.Request:
    fields = {"grant_type": endpoint.grant_type}
    headers = {"Accept": "application/json", "Cache-Control": "no-cache", "User-Agent": "spark-eos"}
    if endpoint.scope is not None:
        fields["scope"] = endpoint.scope
    if endpoint.grant_type == JWT_BEARER:
        assert endpoint.assertion is not None, "the options were checked"
        fields["assertion"] = signed_assertion(endpoint.assertion, runtime)
    elif endpoint.assertion is not None:
        fields["client_assertion_type"] = _ASSERTION_TYPE
        fields["client_assertion"] = signed_assertion(endpoint.assertion, runtime)
        if endpoint.client_id is not None:
            fields["client_id"] = endpoint.client_id
    else:
        pair = (endpoint.client_id or "", endpoint.client_secret or "")
        if endpoint.encodes_header:
            pair = (urllib.parse.quote_plus(pair[0]), urllib.parse.quote_plus(pair[1]))
        headers["Authorization"] = f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"
    body = urllib.parse.urlencode(fields).encode()
    return urllib.request.Request(endpoint.url, body, headers, method="POST")


def _token(endpoint: EndpointOptions, body: bytes, runtime: Runtime) -> Token:
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        response = None
    found = response if isinstance(response, dict) else {}
    value = found.get("access_token") or found.get("id_token")
    if not isinstance(value, str) or not is_bearer_token(value.strip()):
        raise _problem(endpoint, "returned status 200 without a token", _REMEDY)
    return Token(value.strip(), _lifetime_s(value.strip(), found.get("expires_in"), runtime))


def _lifetime_s(value: str, expires_in: object, runtime: Runtime) -> float | None:
    """Return how long a token is valid: as the endpoint says, because this machine's clock may be wrong."""
    if isinstance(expires_in, str) and expires_in.isdecimal():
        expires_in = int(expires_in)
    if isinstance(expires_in, int | float) and not isinstance(expires_in, bool) and 0 <= expires_in < 2**31:
        return float(expires_in)
    expires_s = expiration_s(value)
    return None if expires_s is None else max(0.0, expires_s - runtime.clock.time_ns() / 1e9)


def _opener(endpoint: EndpointOptions) -> urllib.request.OpenerDirector:
    context, read_timeout_s = _context(endpoint), endpoint.read_timeout_ms / 1000

    class Connection(http.client.HTTPConnection):
        """A connection with a timeout of its own for reading."""

        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(read_timeout_s)

    class TlsConnection(Connection, http.client.HTTPSConnection):
        """The same with TLS."""

    class TokenHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, request)

        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(TlsConnection, request, context=context)

    return urllib.request.build_opener(TokenHandler, _NoRedirect)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: the secret is for the configured endpoint only."""

    def redirect_request(self, *_args: Any) -> None:
        """Return no request."""


def _context(endpoint: EndpointOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust(context, endpoint.stores)
        identify(context, endpoint.stores)
    except OptionError as error:
        raise AuthenticationError(
            f"The TLS connection to {shown_url(endpoint.url)} cannot be prepared: {error.happened}",
            checked=error.checked,
            remedy=error.remedy,
        ) from None
    return context
