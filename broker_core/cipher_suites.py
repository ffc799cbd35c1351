"""The names of TLS cipher suites: Java's, which are those of IANA, and OpenSSL's."""

import re
from typing import Final

_IANA: Final = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE|DHE)_)?(?P<signature>RSA|ECDSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC|CCM|CCM_8)(?:_(?P<digest>SHA\d*))?|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)


def is_of_tls13(suite: str) -> bool:
    """Return whether a suite of Java's is one of TLS 1.3.

    >>> is_of_tls13("TLS_AES_256_GCM_SHA384")
    True
    """
    return suite.startswith("TLS_") and "_WITH_" not in suite


def openssl_name(suite: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2, None for a suite that OpenSSL does not have.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    """
    found = _IANA.fullmatch(suite)
    if found is None:
        return None
    # OpenSSL names neither RSA for a plain RSA key exchange, nor CBC, nor the digest of CHACHA20.
    parts = [found["exchange"], found["signature"]] if found["exchange"] else []
    if found["chacha"]:
        parts += ["CHACHA20", "POLY1305"]
    else:
        parts += [
            f"AES{found['bits']}",
            "" if found["mode"] == "CBC" else found["mode"].replace("_", ""),
            found["digest"] or "",
        ]
    return "-".join(filter(None, parts))
