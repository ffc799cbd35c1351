"""The login with SCRAM, by single requests, with the extension of delegation tokens."""

import base64
import hashlib
import hmac

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.support.raw_client import RawClient


class LoginRefused(Exception):
    """A login that the broker refuses; the message is the broker's."""


def scram_login(
    client: RawClient, name: str, password: str, *, mechanism: str = "SCRAM-SHA-256", extension: str = "tokenauth=true"
) -> int:
    """Log in and return the session's lifetime in ms."""
    digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    assert client.send(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    bare = f"n={name},r=fyko+d2lbbFgONRv9qkxdawL" + (f",{extension}" if extension else "")
    challenge = _exchange(client, f"n,,{bare}")[0]
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={fields['r']}"
    signed = hmac.digest(hashlib.new(digest, client_key).digest(), f"{bare},{challenge},{final}".encode(), digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signed, strict=True))).decode()
    return _exchange(client, f"{final},p={proof}")[1]


def _exchange(client: RawClient, message: str) -> tuple[str, int]:
    answer = client.send(SaslAuthenticateRequest(auth_bytes=message.encode()), 2)
    if answer.error_code:
        raise LoginRefused(answer.error_message)
    return bytes(answer.auth_bytes).decode(), int(answer.session_lifetime_ms)
