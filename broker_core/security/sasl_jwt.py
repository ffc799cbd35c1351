"""The validator of signed JSON web tokens, with the checks of Kafka's `OAuthBearerValidatorCallbackHandler`.

Signatures are RS256, RS384 or RS512; keys come from a JSON web key set (RFC 7517). Other algorithms are refused.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from broker_core.errors import ConfigError
from broker_core.security.sasl_oauthbearer import InvalidToken, ValidToken, token_name, token_section, token_time_ms

# The hash of each algorithm, and the DER prefix of its value in a signature (RFC 8017, section 9.2).
_HASHES: Final = {
    "RS256": ("sha256", bytes.fromhex("3031300d060960864801650304020105000420")),
    "RS384": ("sha384", bytes.fromhex("3041300d060960864801650304020205000430")),
    "RS512": ("sha512", bytes.fromhex("3051300d060960864801650304020305000440")),
}
_MIN_KEY_BITS: Final = 2048


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA public key of a key set; without an algorithm it verifies all of them."""

    key_id: str | None
    algorithm: str | None
    modulus: int
    exponent: int

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Return whether the signature is this key's (RSASSA-PKCS1-v1_5)."""
        if self.algorithm not in (None, algorithm):
            return False
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(signature, "big")
        if len(signature) != size or number >= self.modulus:
            return False
        name, prefix = _HASHES[algorithm]
        end = prefix + hashlib.new(name, signed).digest()
        # The whole encoding is compared: a parser that skips a part of it accepts forged signatures.
        expected = b"\0\1" + b"\xff" * (size - len(end) - 3) + b"\0" + end
        return hmac.compare_digest(pow(number, self.exponent, self.modulus).to_bytes(size, "big"), expected)


# Returns the keys with an id, or all of them for None.
KeyLookup = Callable[[str | None], tuple[SigningKey, ...]]


def read_key_set(text: str | bytes) -> tuple[SigningKey, ...]:
    """Read the RSA keys of a key set; raise `ConfigError` if there is none."""
    try:
        entries = json.loads(text)["keys"]
        keys = tuple(
            _key(entry)
            for entry in entries
            if entry["kty"] == "RSA" and entry.get("use", "sig") == "sig" and entry.get("alg", "RS256") in _HASHES
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError("this is not a JSON web key set") from None
    if not keys:
        raise ConfigError("the JSON web key set has no RSA key that signs")
    return keys


def _key(entry: dict[str, Any]) -> SigningKey:
    modulus, exponent = (int.from_bytes(_decoded(entry[name]), "big") for name in ("n", "e"))
    if modulus.bit_length() < _MIN_KEY_BITS or exponent < 3:
        raise ValueError("a weak key")
    return SigningKey(entry.get("kid"), entry.get("alg"), modulus, exponent)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """The validator of signed tokens: signature, issuer, audience, times and subject."""

    keys: KeyLookup
    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    clock_skew_ms: int = 30_000
    principal_claim: str = "sub"
    scope_claim: str = "scope"

    def __call__(self, token: str, now_ms: int) -> ValidToken:
        claims = self._verified(token)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("the issuer is not the expected one")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if self.audiences and not any(isinstance(each, str) and each in self.audiences for each in named):
            raise InvalidToken("the audience is not an expected one")
        expires_ms, issued_ms = token_time_ms(claims, "exp"), token_time_ms(claims, "iat")
        not_before_ms = token_time_ms(claims, "nbf")
        if expires_ms is None or issued_ms is None or expires_ms < 0 or issued_ms < 0:
            raise InvalidToken("the token has no expiration time or no time of issue")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired")
        if not_before_ms is not None and now_ms + self.clock_skew_ms < not_before_ms:
            raise InvalidToken("the token is not valid yet")
        if not isinstance(claims.get(self.scope_claim, ""), str | list):
            raise InvalidToken(f"the claim {self.scope_claim} is neither text nor a list")
        return ValidToken(token_name(claims, self.principal_claim).strip(), int(expires_ms))

    def _verified(self, token: str) -> dict[str, Any]:
        parts = token.split(".")
        if len(parts) != 3:
            raise InvalidToken("a signed token is three sections with dots between")
        header = token_section(parts[0])
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in _HASHES or "crit" in header:
            raise InvalidToken("the algorithm is not RS256, RS384 or RS512, or the header has critical extensions")
        try:
            signature = _decoded(parts[2])
        except ValueError:
            raise InvalidToken("the signature is not base64") from None
        signed = f"{parts[0]}.{parts[1]}".encode()
        candidates = self.keys(key_id if isinstance(key_id, str) else None)
        if not any(key.verifies(algorithm, signed, signature) for key in candidates):
            raise InvalidToken("the signature is not by a key of the key set")
        return token_section(parts[1])


@dataclass(frozen=True, slots=True)
class KeySetPlace:
    """Where a listener's key set comes from, and how often it is read."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    ca_path: str | None = None
    ca_pem: str | None = None


OpenKeySet = Callable[[KeySetPlace], KeyLookup]
