"""The TLS versions and cipher suites that a client may use: Java's names, translated for OpenSSL."""

import re
from typing import Final, NamedTuple

from broker_core.cipher_suites import usable_suites
from spark_eos.errors import OptionError

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")


class TlsLimits(NamedTuple):
    """The allowed TLS versions, oldest first, and OpenSSL's names of the suites of TLS 1.2; none: OpenSSL's own."""

    versions: tuple[str, ...] = VERSIONS
    ciphers: tuple[str, ...] = ()


NO_LIMITS: Final = TlsLimits()


def tls_limits(protocols: str | None, suites: str | None) -> TlsLimits:
    """Parse `ssl.enabled.protocols` and `ssl.cipher.suites`.

    Python cannot choose among the suites of TLS 1.3, so naming one allows TLS 1.3, and naming none of them rules it
    out. Suites of Java that OpenSSL does not have are left out, as at a broker. OpenSSL's names are accepted too,
    because librdkafka has an option of this name with them.
    """
    versions = VERSIONS if protocols is None or not protocols.strip() else _versions(protocols)
    names = [name.strip() for name in re.split("[,:]", suites or "") if name.strip()]
    if not names:
        return TlsLimits(versions)
    try:
        usable = usable_suites(names, openssl_names=True)
    except ValueError as error:
        raise OptionError(
            f"Option 'kafka.ssl.cipher.suites' has the unknown suite {str(error)!r}",
            remedy="Use names such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, separated by commas",
        ) from None
    common = tuple(each for each in versions if each in usable.versions)
    if not common:
        raise OptionError(
            "kafka.ssl.cipher.suites has no suite that OpenSSL has for the TLS versions of kafka.ssl.enabled.protocols",
            remedy=f"Name suites of {' or '.join(versions)}, or remove one of the two options",
        )
    return TlsLimits(common, usable.older)


def _versions(text: str) -> tuple[str, ...]:
    named = {part.strip().lower() for part in text.split(",") if part.strip()}
    known = {each.lower() for each in (*VERSIONS, *_OLD)}
    found = tuple(each for each in VERSIONS if each.lower() in named)
    if named - known or not found:
        raise OptionError(
            f"Option 'kafka.ssl.enabled.protocols' is {text!r}", remedy="Use TLSv1.2, TLSv1.3, or both with a comma"
        )
    return found
