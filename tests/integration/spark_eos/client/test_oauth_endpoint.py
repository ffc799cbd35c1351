"""Requests for tokens: what is sent, which failures are repeated, and which words they end with."""

import contextlib
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from spark_eos.client.oauth_endpoint import Token, fetch_token
from spark_eos.client.oauth_tokens import SharedToken, SharedTokenProvider, shared_token, token_provider
from spark_eos.errors import AuthenticationError
from spark_eos.options.client import ClientOptions
from spark_eos.options.key_stores import OF_JAAS, KeyStores
from spark_eos.options.oauth import JWT_BEARER, AssertionOptions, EndpointOptions, OAuthOptions, RefreshOptions
from spark_eos.runtime import REAL, Runtime
from tests.support.clocks import StandingClock, runtime_by
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, LIFETIME_S, Provider, decoded, oidc_provider, pem_of
from tests.support.spark_eos.secret_search import spellings


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    running.requests.clear()
    yield running
    running.claims, running.answers, running.expires_in = {}, [], LIFETIME_S
    running.client_key, running.encodes_header = running.signer.key.public_key(), False
    running.goes_on.set()


@pytest.fixture
def endpoint(provider: Provider) -> EndpointOptions:
    return EndpointOptions(
        url=f"{provider.token_url}?key=in-the-query",
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        stores=KeyStores(trusted_pem=provider.authority.cert_pem.bytes().decode()),
        retry_backoff_ms=1,
        retry_max_ms=100,
        connect_timeout_ms=2_000,
        read_timeout_ms=2_000,
    )


def fails(endpoint: EndpointOptions, runtime: Runtime = REAL) -> str:
    """Return the text of the error, which contains no secret."""
    began = time.monotonic()
    with pytest.raises(AuthenticationError) as raised:
        fetch_token(endpoint, runtime)
    assert time.monotonic() - began < 5
    shown = f"{raised.value!r} {raised.value} {raised.value.__cause__!r} {raised.value.__context__!r}".encode()
    for secret in (CLIENT_SECRET, "in-the-query"):
        assert not any(form in shown for form in spellings(secret)), shown
    return str(raised.value)


def test_token_and_its_lifetime_are_returned(provider: Provider, endpoint: EndpointOptions) -> None:
    assert fetch_token(endpoint, REAL) == Token(provider.tokens[-1], float(LIFETIME_S))
    provider.expires_in = None
    token = fetch_token(endpoint, REAL)
    assert token.lifetime_s == pytest.approx(LIFETIME_S, abs=5), "by the token's own claim"


def test_id_and_secret_are_encoded_if_asked_for(provider: Provider, endpoint: EndpointOptions) -> None:
    provider.encodes_header = True
    assert fetch_token(replace(endpoint, encodes_header=True), REAL).value
    assert "invalid_client" in fails(endpoint)


def test_wrong_secret_is_not_repeated(provider: Provider, endpoint: EndpointOptions) -> None:
    text = fails(replace(endpoint, client_secret=f"{CLIENT_SECRET}."))
    assert f"{provider.token_url} returned status 401 (invalid_client)" in text
    assert "Check the client's id and secret" in text
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_temporary_failure_is_repeated(provider: Provider, endpoint: EndpointOptions, status: int) -> None:
    provider.answers = [status, status, 200]
    # Its time to retry passes in pauses only, however slow the requests are.
    assert fetch_token(endpoint, runtime_by(StandingClock())).value
    assert len(provider.requests) == 3


def test_failure_that_lasts_is_reported_with_its_status(provider: Provider, endpoint: EndpointOptions) -> None:
    provider.answers = [500]
    assert "returned status 500 (server_error) (tried for 100 ms)" in fails(endpoint, runtime_by(StandingClock()))
    assert len(provider.requests) > 1


WITHOUT_TOKEN = (b"", b"<html>", b"[1]", b"{}", b"[" * 100_000)
WITHOUT_TOKEN += tuple(b'{"access_token": %b}' % value for value in (b"1", b'"two words"', b'"a\\u0001auth=b"'))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        *((body, "returned status 200 without a token") for body in WITHOUT_TOKEN),
        (b" " * (1024 * 1024 + 1), "more than 1 MiB"),
        (302, "a redirect, which is not followed"),
    ],
)
def test_response_without_a_token_is_reported(
    provider: Provider, endpoint: EndpointOptions, answer: bytes | int, words: str
) -> None:
    provider.answers = [answer]
    assert words in fails(endpoint)
    assert len(provider.requests) == 1


def test_endpoint_that_does_not_respond_is_given_up(provider: Provider, endpoint: EndpointOptions) -> None:
    provider.goes_on.clear()
    assert "timed out" in fails(replace(endpoint, read_timeout_ms=100))


def test_unreachable_endpoint_is_reported(endpoint: EndpointOptions) -> None:
    assert "https://127.0.0.1:1/token cannot be reached: Connection refused" in fails(
        replace(endpoint, url="https://127.0.0.1:1/token")
    )


def test_certificate_of_another_authority_is_refused(provider: Provider, endpoint: EndpointOptions) -> None:
    text = fails(replace(endpoint, stores=KeyStores(trusted_pem=trustme.CA().cert_pem.bytes().decode())))
    assert "has a certificate that is not trusted" in text
    assert "kafka.https.ca.location" in text
    assert "not trusted" in fails(replace(endpoint, stores=KeyStores())), "the system does not trust it either"
    assert provider.requests == []


def test_authorities_that_cannot_be_read_are_reported(endpoint: EndpointOptions, tmp_path: Path) -> None:
    missing = KeyStores(trusted_path=str(tmp_path / "missing.pem"), named=OF_JAAS)
    text = fails(replace(endpoint, stores=missing))
    assert f"connection to {endpoint.url.partition('?')[0]} cannot be prepared: Cannot read the trusted" in text
    assert "missing.pem (ssl.truststore.location in kafka.sasl.jaas.config)" in text
    assert "Cannot read the trusted certificates" in fails(replace(endpoint, stores=KeyStores(trusted_pem="none")))


def test_proxy_of_the_environment_is_used(
    provider: Provider, endpoint: EndpointOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:proxy-password@127.0.0.1:1")
    text = fails(endpoint)
    assert "cannot be reached: Connection refused" in text
    assert "proxy-password" not in text
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch_token(endpoint, REAL).value


class Proxy(socketserver.StreamRequestHandler):
    """A proxy that connects to any address, and notes what it was asked for."""

    seen: list[str] = []

    def handle(self) -> None:
        target = self.rfile.readline().decode().split()[1]
        headers = list(iter(self.rfile.readline, b"\r\n"))
        self.seen.extend([target, *(each.decode() for each in headers if each.lower().startswith(b"proxy-auth"))])
        host, _, port = target.partition(":")
        with socket.create_connection((host, int(port))) as out:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(out, self.connection))
            back.start()
            _copy(self.connection, out)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_token_comes_through_a_proxy(
    provider: Provider, endpoint: EndpointOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        monkeypatch.setenv("https_proxy", f"http://me:password@127.0.0.1:{proxy.server_address[1]}")
        try:
            assert fetch_token(endpoint, REAL).value == provider.tokens[-1]
        finally:
            proxy.shutdown()
            thread.join()
    target, authorization = Proxy.seen
    assert target == f"127.0.0.1:{provider.port}"
    assert decoded(authorization.split()[2]) == b"me:password"


def test_plain_http_works_as_in_java(provider: Provider, endpoint: EndpointOptions) -> None:
    class Plain(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "abc", "expires_in": 60}')

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Plain) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/token"
        assert fetch_token(replace(endpoint, url=url), REAL) == Token("abc", 60.0)
        thread.join()


# Assertions


def asserting(endpoint: EndpointOptions, **changes: object) -> EndpointOptions:
    claims = (("iss", CLIENT_ID), ("sub", CLIENT_ID), ("aud", "https://issuer.example"))
    assertion = replace(AssertionOptions(claims=claims), **changes)  # type: ignore[arg-type]
    return replace(endpoint, client_secret=None, assertion=assertion)


@pytest.mark.parametrize("grant_type", ["client_credentials", JWT_BEARER])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_client_signs_an_assertion(
    provider: Provider, endpoint: EndpointOptions, tmp_path: Path, grant_type: str, algorithm: str
) -> None:
    key = provider.signer.key if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    provider.client_key = key.public_key()
    path = tmp_path / "key.pem"
    path.write_text(pem_of(key, "open"))
    template = tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "mine"}, "payload": {"extra": [1]}}))
    given = asserting(
        endpoint,
        key_path=str(path),
        key_passphrase="open",
        algorithm=algorithm,
        has_id=True,
        template_path=str(template),
    )
    assert fetch_token(replace(given, grant_type=grant_type, scope="all"), REAL).value
    [fields] = provider.requests
    header, claims = (
        json.loads(decoded(part))
        for part in fields["assertion" if grant_type == JWT_BEARER else "client_assertion"].split(".")[:2]
    )
    assert header == {"kid": "mine", "alg": algorithm, "typ": "JWT"}
    assert (claims["extra"], claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == ([1], 300, 60)
    assert {"iss", "sub", "aud", "jti"} < set(claims)
    assert (fields["grant_type"], fields["scope"]) == (grant_type, "all")
    path.write_text(pem_of(rsa.generate_private_key(65_537, 2048), "open"))
    assert ("invalid_client" if algorithm == "RS256" else "does not fit the algorithm") in fails(given)


def test_assertion_may_come_from_a_file(provider: Provider, endpoint: EndpointOptions, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    now_s = int(time.time())
    path.write_text(provider.signer.token(iss=CLIENT_ID, nbf=now_s - 5) + "\n")
    assert fetch_token(asserting(endpoint, file=str(path)), REAL).value
    path.write_text("no assertion\n")
    assert "does not contain one assertion and nothing else" in fails(asserting(endpoint, file=str(path)))


def test_key_that_cannot_be_used_is_reported(provider: Provider, endpoint: EndpointOptions, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    assert f"The key file {missing} cannot be read: No such file" in fails(asserting(endpoint, key_path=missing))
    assert "cannot be read: private.key.pem" in fails(asserting(endpoint, key_pem="rubbish"))
    locked = provider.signer.pem("open")
    for passphrase in (None, "wrong"):
        assert "cannot be read" in fails(asserting(endpoint, key_pem=locked, key_passphrase=passphrase))
    template = tmp_path / "template.json"
    template.write_text("[]")
    given = asserting(endpoint, key_pem=provider.signer.pem(), template_path=str(template))
    assert "is not a JSON object with header and payload" in fails(given)


# One token for each source and process


class StoppedClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.suspended_seconds = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int((self.now + self.suspended_seconds) * 1e9)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


class Source:
    """A source of numbered tokens, or of an error."""

    def __init__(self, lifetime_s: float | None = 1000.0, refresh: RefreshOptions | None = None) -> None:
        self.clock = StoppedClock()
        self.lifetime_s = lifetime_s
        self.count = 0
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        runtime = Runtime(self.clock, REAL.random, REAL.process)
        self.shared = SharedToken("The source", self.fetch, refresh or RefreshOptions(), runtime)

    def fetch(self) -> Token:
        self.goes_on.wait(30)
        if self.error is not None:
            raise self.error
        self.count += 1
        return Token(f"token{self.count}", self.lifetime_s, extensions=(("n", str(self.count)),))

    def token(self) -> str:
        attempt = self.shared.attempt()
        assert attempt.done.wait(30)
        return attempt.token().value


def test_token_is_renewed_ahead_of_its_expiration() -> None:
    source = Source()
    assert [source.token(), source.token()] == ["token1"] * 2
    source.clock.now += 690
    assert source.token() == "token1", "it is renewed 300 s before it expires"
    source.clock.now += 20
    source.goes_on.clear()
    waiting = source.shared.attempt()
    assert waiting.patience_s == 1
    assert waiting.token().value == "token1", "the token is valid while the next is fetched"
    assert source.shared.attempt() is waiting, "it is fetched once"
    source.goes_on.set()
    assert waiting.done.wait(30)
    assert source.token() == "token2"


@pytest.mark.parametrize(("lifetime_s", "fresh_s"), [(100.0, 79.0), (None, 59.0)])
def test_short_token_is_used_for_most_of_its_life(lifetime_s: float | None, fresh_s: float) -> None:
    source = Source(lifetime_s)
    source.token()
    source.clock.now += fresh_s
    assert source.token() == "token1"
    source.clock.now += 8
    assert source.token() == "token2"


def test_token_that_expired_while_the_machine_was_suspended_is_not_sent() -> None:
    """A broker would refuse it, and the query would stop."""
    source = Source()
    assert source.token() == "token1"
    source.clock.suspended_seconds = 1001
    assert source.shared.attempt().fallback is None
    assert source.token() == "token2"
    source.clock.suspended_seconds = 0
    source.clock.now += 690
    assert source.token() == "token2", "the time of day was set back"


def test_failed_renewal_keeps_the_token_until_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.token()
    source.clock.now += 900
    source.error = AuthenticationError("The source is down")
    with caplog.at_level(logging.WARNING):
        assert source.token() == "token1"
    assert "The source is down" in caplog.text
    source.clock.now += 101
    with pytest.raises(AuthenticationError, match="is down"):
        source.token()
    source.error = RuntimeError("the secret")
    with pytest.raises(AuthenticationError, match=r"^The source failed with RuntimeError\. "):
        source.token()
    source.error = None
    assert source.token() == "token2"


def test_refused_token_is_not_used_again() -> None:
    source = Source()
    provider = SharedTokenProvider(source.shared, source.clock, (("logicalCluster", "lkc-1"),), 30)
    assert (provider.token(), provider.extensions()) == ("token1", {"logicalCluster": "lkc-1", "n": "1"})
    assert provider.rejected() == "The token is not a JSON web token"
    assert (provider.token(), provider.extensions()) == ("token2", {"logicalCluster": "lkc-1", "n": "2"})


def test_source_that_does_not_answer_is_given_up() -> None:
    source = Source()
    source.goes_on.clear()
    provider = SharedTokenProvider(source.shared, source.clock, (), 0.05)
    with pytest.raises(AuthenticationError, match="The source returned no token in time"):
        provider.token()
    source.goes_on.set()
    assert source.token() == "token1"


def test_equal_options_share_a_token_and_others_do_not(endpoint: EndpointOptions) -> None:
    options = OAuthOptions(endpoint=endpoint)
    assert shared_token(options, REAL) is shared_token(OAuthOptions(endpoint=replace(endpoint)), REAL)
    assert shared_token(OAuthOptions(endpoint=replace(endpoint, scope="other")), REAL) is not shared_token(
        options, REAL
    )
    one, other = (token_provider(ClientOptions(("h:1",), sasl_oauth=options), REAL) for _ in range(2))
    assert isinstance(one, SharedTokenProvider) and isinstance(other, SharedTokenProvider)
    assert one._shared is other._shared, "clients share it, too"
