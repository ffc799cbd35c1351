"""The names of TLS cipher suites: Java's, which are IANA's, and OpenSSL's."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_IANA: Final = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE|DHE)_)?(?P<signature>RSA|ECDSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC|CCM|CCM_8)(?:_(?P<digest>SHA\d*))?|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)
_OPENSSL: Final = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)+")


class UsableSuites(NamedTuple):
    """The TLS versions that have one of the suites named, and OpenSSL's names of those of TLS 1.2."""

    versions: frozenset[str]
    older: tuple[str, ...]


def usable_suites(names: Iterable[str], *, openssl_names: bool = False) -> UsableSuites:
    """Return what OpenSSL can use of the suites, whose names are Java's, or also OpenSSL's with `openssl_names`.

    Names of Java's that OpenSSL has no suite for are left out. Raises ValueError, with the name, for one of another
    form.

    >>> usable_suites(["TLS_RSA_WITH_AES_128_GCM_SHA256", "SSL_RSA_WITH_DES_CBC_SHA"])
    UsableSuites(versions=frozenset({'TLSv1.2'}), older=('AES128-GCM-SHA256',))
    """
    older: list[str] = []
    has_newer = False
    for name in names:
        if not name.startswith(("TLS_", "SSL_")):
            if not openssl_names or not _OPENSSL.fullmatch(name):
                raise ValueError(name)
            older.append(name)
        elif name.startswith("TLS_") and "_WITH_" not in name:
            # A signal, such as TLS_EMPTY_RENEGOTIATION_INFO_SCSV, is a name in Java's lists and no suite.
            has_newer |= not name.endswith("_SCSV")
        elif (found := _openssl_name(name)) is not None:
            older.append(found)
    versions = [version for version, has in (("TLSv1.2", older), ("TLSv1.3", has_newer)) if has]
    return UsableSuites(frozenset(versions), tuple(older))


def _openssl_name(suite: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2, None for a suite that OpenSSL does not have."""
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
