"""Assertions that a client signs with its key instead of sending a secret (RFC 7523, KIP-1139).

Files are read for each request, because they may be replaced. The library `cryptography` is needed to sign, not to
send a file that contains an assertion.
"""

import base64
import json
from pathlib import Path
from typing import Any, Final

from spark_eos.client.token import is_bearer_token
from spark_eos.errors import AuthenticationError
from spark_eos.options.oauth import AssertionOptions
from spark_eos.runtime import Runtime

_ES256_BYTES: Final = 32
_ID_BYTES: Final = 16


def signed_assertion(options: AssertionOptions, runtime: Runtime) -> str:
    """Return an assertion: the one in the file, or one that is signed now."""
    if options.file is not None:
        text = _read(options.file, "assertion").strip()
        if not is_bearer_token(text):
            raise _problem(f"The assertion file {options.file} does not contain one assertion and nothing else")
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
    signed = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(payload).encode())}"
    return f"{signed}.{_encoded(_signature(options, signed.encode()))}"


def _template(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(_read(path, "template"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in ("header", "payload")):
        raise _problem(f"The assertion template {path} is not a JSON object with header and payload")
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
    raise _problem(f"The key that signs assertions {what}: {options.key_path or 'private.key.pem'}")


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
    raise _problem(f"The {what} file {shown} cannot be read: {reason}")


def _problem(what: str) -> AuthenticationError:
    return AuthenticationError(
        what, remedy="Check kafka.sasl.oauthbearer.assertion.* and its files on the driver and on every executor"
    )


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
