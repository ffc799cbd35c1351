"""The broker's side of AWS_MSK_IAM, and AWS's services that give out credentials, on this machine.

The signature is checked by AWS's documented algorithm in botocore, not by the code that signs.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, quote, urlencode

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from broker_core.security.sasl import AuthenticationFailed
from broker_core.server import listeners

SERVICE = "kafka-cluster"
VERSION = "2020_10_22"


@dataclass
class Identities:
    """The access keys that exist: their secrets, and the session tokens of temporary ones."""

    secrets: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    seen: list[dict[str, str]] = field(default_factory=list)
    session_ms: int | None = None

    def mechanism(self) -> "ServerSide":
        """Return the server's side of one exchange."""
        return ServerSide(self)


class ServerSide:
    """The server's side of one exchange: one message, which is a signed request."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self.user_name: str | None = None
        self.expires_ms: int | None = None
        self.has_token = False

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Check the client's message."""
        message = json.loads(token)
        self._identities.seen.append(message)
        key = message["x-amz-credential"].split("/")[0]
        known = self._identities.secrets.get(key)
        if known is None or message.get("x-amz-security-token") != self._identities.tokens.get(key):
            raise AuthenticationFailed("Access denied")
        if message["x-amz-signature"] != signature(message, key, known):
            raise AuthenticationFailed("Access denied")
        self.user_name = key
        if self._identities.session_ms is not None:
            self.expires_ms = now_ms + self._identities.session_ms
        return json.dumps({"version": VERSION, "request-id": "r1"}).encode()


def signature(message: dict[str, str], key: str, secret: str) -> str:
    """Sign the request that a message describes, as AWS documents it."""
    assert (message["version"], message["action"]) == (VERSION, f"{SERVICE}:Connect")
    _, day, region, service, end = message["x-amz-credential"].split("/")
    assert (service, end, message["x-amz-signedheaders"]) == (SERVICE, "aws4_request", "host")
    assert 0 < int(message["x-amz-expires"]) <= 900
    signed_at = datetime.strptime(message["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert message["x-amz-date"].startswith(day)
    assert abs(datetime.now(UTC) - signed_at) < timedelta(minutes=5)
    signer = SigV4QueryAuth(
        Credentials(key, secret, message.get("x-amz-security-token")), service, region, int(message["x-amz-expires"])
    )
    request = AWSRequest("GET", f"https://{message['host']}/?" + urlencode({"Action": message["action"]}))
    request.context["timestamp"] = message["x-amz-date"]
    parameters = [
        ("Action", message["action"]),
        ("X-Amz-Algorithm", message["x-amz-algorithm"]),
        ("X-Amz-Credential", message["x-amz-credential"]),
        ("X-Amz-Date", message["x-amz-date"]),
        ("X-Amz-Expires", message["x-amz-expires"]),
        ("X-Amz-SignedHeaders", message["x-amz-signedheaders"]),
    ]
    if "x-amz-security-token" in message:
        parameters.append(("X-Amz-Security-Token", message["x-amz-security-token"]))
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(parameters))
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    canonical = "\n".join(("GET", "/", query, f"host:{message['host']}", "", "host", empty))
    return str(signer.signature(signer.string_to_sign(request, canonical), request))


@contextmanager
def msk_iam_brokers(identities: Identities) -> Iterator[None]:
    """Let brokers that start in the block accept AWS_MSK_IAM at their SASL listeners."""
    usual = listeners.sasl_settings

    def with_msk_iam(*args: Any) -> Any:
        made = usual(*args)
        return replace(made, mechanisms={**made.mechanisms, "AWS_MSK_IAM": partial(ServerSide, identities)})

    with patch.object(listeners, "sasl_settings", with_msk_iam):
        yield


class AwsServices:
    """STS and instance metadata: each request with temporary credentials gets new ones."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self.requests: list[dict[str, str]] = []
        self.lifetime_s = 3_600
        self.refuses = False
        self.url = ""

    def issue(self) -> dict[str, str]:
        """Make temporary credentials."""
        key = f"ASIATEMPORARY{len(self.identities.secrets):07}"
        secret, token = f"temporary-secret-{key}", f"temporary/token+{key}=="
        self.identities.secrets[key], self.identities.tokens[key] = secret, token
        until = datetime.now(UTC) + timedelta(seconds=self.lifetime_s)
        return {
            "AccessKeyId": key,
            "SecretAccessKey": secret,
            "SessionToken": token,
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def sts(self, body: dict[str, str]) -> tuple[int, str]:
        """Answer AssumeRole or AssumeRoleWithWebIdentity."""
        self.requests.append(body)
        action = body["Action"]
        if self.refuses:
            return 403, (
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                f"<Message>not authorized to perform sts:{action}</Message></Error></ErrorResponse>"
            )
        parts = "".join(f"<{name}>{value}</{name}>" for name, value in self.issue().items())
        return 200, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
            f"<Credentials>{parts}</Credentials></{action}Result></{action}Response>"
        )

    def metadata(self, path: str) -> tuple[int, str]:
        """Answer the instance metadata service."""
        if path.endswith("/api/token"):
            return 200, "metadata-session"
        if path.endswith("/security-credentials/"):
            return 200, "the-role"
        if path.endswith("/the-role"):
            self.requests.append({"Action": "metadata"})
            issued = self.issue()
            issued["Token"] = issued.pop("SessionToken")
            return 200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", **issued})
        return 404, ""


@contextmanager
def aws_services(identities: Identities, tls: SSLContext | None = None) -> Iterator[AwsServices]:
    """Serve STS and instance metadata, over TLS if a context is given."""
    services = AwsServices(identities)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(*services.sts({name: values[0] for name, values in parse_qs(text).items()}))

        def do_GET(self) -> None:
            self._send(*services.metadata(self.path))

        def do_PUT(self) -> None:
            self.do_GET()

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    services.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True)
    thread.start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
