"""A small identity provider: a token endpoint and a key set, over TLS, with failures on request.

It grants tokens for client credentials, in the header or as a signed assertion, and for the jwt-bearer grant.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import trustme
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

CLIENT_ID, CLIENT_SECRET = "spark job", "the-client: secret+%"
ISSUER, AUDIENCE, SUBJECT = "https://issuer.example", "kafka", "alice"
KEY_ID = "key-1"
LIFETIME_S = 3600
AT = "127.0.0.1"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(number: int) -> str:
    return encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))


class Signer:
    """An RSA key that signs tokens."""

    def __init__(self, key_id: str = KEY_ID) -> None:
        self.key_id = key_id
        self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)

    def token(self, *, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
        """Return a signed token; a claim that is changed to None is left out."""
        now_s = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now_s, "exp": now_s + LIFETIME_S, **changes}
        header = {"alg": "RS256", "kid": self.key_id, **(header or {})}
        kept = ({name: value for name, value in part.items() if value is not None} for part in (header, claims))
        signed = ".".join(encoded(json.dumps(part).encode()) for part in kept)
        return f"{signed}.{encoded(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def key_set(self) -> dict[str, Any]:
        """Return the public key as a JSON web key set."""
        public = self.key.public_key().public_numbers()
        entry = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.key_id}
        return {"keys": [{**entry, "n": _number(public.n), "e": _number(public.e)}]}

    def pem(self, passphrase: str | None = None) -> str:
        """Return the private key."""
        return pem_of(self.key, passphrase)


def pem_of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, passphrase: str | None = None) -> str:
    """Return a private key as PEM text."""
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        lock = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock).decode()


class Provider:
    """The state of a running provider; tests change what it answers."""

    def __init__(self, authority: trustme.CA) -> None:
        self.authority = authority
        self.signer = Signer()
        self.client_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey = self.signer.key.public_key()
        self.requests: list[dict[str, str]] = []
        self.tokens: list[str] = []
        # What the next requests get: a status, or a body instead of a token. The last one stays.
        self.answers: list[int | bytes] = []
        self.claims: dict[str, Any] = {}
        # A token that is granted instead of a signed one.
        self.grants: str | None = None
        self.expires_in: int | None = LIFETIME_S
        self.encodes_header = False
        # Requests wait until it is set.
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.port = 0

    @property
    def token_url(self) -> str:
        """Return the URL of the token endpoint."""
        return f"https://{AT}:{self.port}/token"

    @property
    def keys_url(self) -> str:
        """Return the URL of the key set."""
        return f"https://{AT}:{self.port}/keys"

    def grant(self, fields: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """Answer a request for a token."""
        self.requests.append(fields)
        self.goes_on.wait(60)
        if self.answers:
            answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
            if isinstance(answer, bytes):
                return 200, answer
            if answer != 200:
                return answer, json.dumps({"error": "server_error", "error_description": authorization}).encode()
        if not self._knows(fields, authorization):
            # A provider may repeat what it was sent.
            return 401, json.dumps({"error": "invalid_client", "error_description": authorization}).encode()
        token = self.grants or self.signer.token(**self.claims)
        self.tokens.append(token)
        response = {"access_token": token, "token_type": "Bearer"}
        if self.expires_in is not None:
            response["expires_in"] = str(self.expires_in)
        return 200, json.dumps(response).encode()

    def _knows(self, fields: dict[str, str], authorization: str) -> bool:
        if fields.get("grant_type") == _JWT_BEARER:
            return self._is_signed(fields.get("assertion", ""))
        if fields.get("client_assertion_type") == _CLIENT_ASSERTION:
            return fields.get("client_id") == CLIENT_ID and self._is_signed(fields.get("client_assertion", ""))
        pair = decoded(authorization.removeprefix("Basic ")).decode().partition(":")[::2]
        if self.encodes_header:
            pair = (unquote_plus(pair[0]), unquote_plus(pair[1]))
        return pair == (CLIENT_ID, CLIENT_SECRET)

    def _is_signed(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        payload = json.loads(decoded(signed.split(".")[1]))
        now_s = time.time()
        try:
            if isinstance(self.client_key, rsa.RSAPublicKey):
                self.client_key.verify(decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            else:
                raw = decoded(signature)
                pair = (int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
                self.client_key.verify(encode_dss_signature(*pair), signed.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return payload["iss"] == CLIENT_ID and payload["nbf"] <= now_s < payload["exp"]


@contextmanager
def oidc_provider(authority: trustme.CA | None = None, *, wants_certificate: bool = False) -> Iterator[Provider]:
    """Run a provider until the block ends; it can insist on clients' certificates of its own authority."""
    provider = Provider(authority or trustme.CA())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, json.dumps(provider.signer.key_set()).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*provider.grant(fields, self.headers.get("Authorization", "")))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", provider.keys_url)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_args: Any) -> None:
            """Ignore clients that hang up."""

    server = Server((AT, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    provider.authority.issue_cert(AT, "localhost").configure_cert(context)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        provider.authority.configure_trust(context)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    provider.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        provider.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
