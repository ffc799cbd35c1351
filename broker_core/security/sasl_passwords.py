"""The SASL mechanisms that check a password: PLAIN (RFC 4616) and SCRAM (RFC 5802).

With PLAIN the client sends its password in clear text. With SCRAM it proves that it knows the password.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

from broker_core.errors import ErrorCode, KafkaError, MissingExtraError
from broker_core.ports import Entropy
from broker_core.security.sasl import AuthenticationFailed

try:
    from scramp import ScramException, ScramMechanism
    from scramp.core import Salt, ScramServer
except ModuleNotFoundError as error:
    raise MissingExtraError("scramp", "broker") from error

# The mechanisms by their numbers in Kafka's protocol.
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MECHANISM_NAMES: Final = frozenset(SCRAM_MECHANISMS.values())
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
_SALT_BYTES: Final = 24
_ANY_SALT: Final = bytes(_SALT_BYTES)
_NONCE_BYTES: Final = 24
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored credential of a user: sufficient to verify a client, not to authenticate as one."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def is_of(self, mechanism: str, password: str) -> bool:
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), self.salt, self.iterations)
        found = credential_of_salted(mechanism, salted, self.salt, self.iterations)
        return hmac.compare_digest(found.stored_key, self.stored_key)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """The login with a delegation token: its SCRAM credential, the name of its owner, and when it expires."""

    credential: ScramCredential
    owner_name: str
    expires_ms: int


TokenLoginOf = Callable[[str, str], TokenLogin | None]


def check_new_credential(user_name: str, mechanism: int, iterations: int) -> None:
    check_user_and_mechanism(user_name, mechanism)
    if iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def check_user_and_mechanism(user_name: str, mechanism: int) -> None:
    if not user_name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in SCRAM_MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def credential_of_salted(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a password that was salted by the client, as admin clients send it."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        iterations, salt, hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)
    )


def credential_of_password(mechanism: str, password: str, entropy: Entropy) -> ScramCredential:
    """Return a credential for a password, with a new random salt."""
    salt = entropy.random_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, MIN_ITERATIONS)
    return credential_of_salted(mechanism, salted, salt, MIN_ITERATIONS)


class _AnySalt(Salt):  # type: ignore[misc]
    """A salt of any length."""

    MIN_LENGTH = 0


class Scram:
    """The server's side of one SCRAM exchange: a challenge, then the proof.

    With the extension `tokenauth=true`, the client's name is the id of a delegation token, and its user the token's
    owner.
    """

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str, str], ScramCredential | None],
        entropy: Entropy,
        token_login_of: TokenLoginOf | None = None,
    ) -> None:
        self.user_name: str | None = None
        self.expires_ms: int | None = None
        self.has_token = False
        self._token_login_of = token_login_of
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._claimed = ""
        self._is_challenged = False
        nonce = entropy.random_bytes(_NONCE_BYTES).hex()
        self._server: ScramServer = ScramMechanism(mechanism).make_server(self._look_up, s_nonce=nonce)

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        try:
            message = token.decode()
            if not self._is_challenged:
                return self._challenge(message).encode()
            self._server.set_client_final(message)
            reply = str(self._server.get_server_final())
        except (ScramException, LookupError, ValueError):
            # No reason for the client: it could reveal whether the user exists.
            raise AuthenticationFailed from None
        self.user_name = self._claimed
        return reply.encode()

    def _challenge(self, message: str) -> str:
        plain, extensions = _without_extensions(message)
        self.has_token = extensions.get("tokenauth", "").lower() == "true"
        # scramp accepts only the extensions of RFC 5802, whose names have one letter. The proof covers all of them.
        self._server.set_client_first(plain)
        self._server.client_first_bare = message.split(",", 2)[2]
        self._server.salt = self._salt
        self._is_challenged = True
        return str(self._server.get_server_first())

    def _look_up(self, user_name: str) -> tuple[bytes, bytes, bytes, int] | None:
        known: ScramCredential | None
        if self.has_token:
            login = self._token_login_of and self._token_login_of(self._mechanism, user_name)
            if login is None:
                return None
            known, self._claimed, self.expires_ms = login.credential, login.owner_name, login.expires_ms
        else:
            known, self._claimed = self._credential_of(self._mechanism, user_name), user_name
        if known is None:
            return None
        # scramp takes no salt of under 12 bytes here; Kafka does.
        self._salt = _AnySalt(known.salt)
        return _ANY_SALT, known.stored_key, known.server_key, known.iterations


def _without_extensions(message: str) -> tuple[str, dict[str, str]]:
    """Return a client's first message without Kafka's extensions, and these: their names have several letters."""
    kept, extensions = [], {}
    for position, part in enumerate(message.split(",")):
        name, _, value = part.partition("=")
        # The first two parts are the header of GSS-API, then come the name and the nonce.
        if position >= 4 and len(name) > 1 and name.isalpha() and value:
            extensions[name] = value
        else:
            kept.append(part)
    return ",".join(kept), extensions


class Plain:
    """The server's side of one PLAIN exchange, which consists of one token."""

    expires_ms: int | None = None
    has_token = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user_name: str | None = None

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        # Also compare for an unknown user, so that the response time does not reveal user names. An empty password
        # was refused above, so it cannot match the default.
        if not compare_digest(self._passwords.get(name, "").encode(), password.encode()):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user_name = name
        return b""
