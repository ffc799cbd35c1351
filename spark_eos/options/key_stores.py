"""The files and the text of `ssl.truststore.*` and `ssl.keystore.*`: PEM, PKCS12 and JKS."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_core.cipher_suites import usable_suites
from spark_eos.errors import OptionError
from spark_eos.options.catalog import DECLARED

STORE_TYPES: Final = DECLARED["ssl.truststore.type"].choices
TRUST_STORE: Final = "ssl.truststore.location"
OF_KAFKA: Final = "kafka.{}"
OF_JAAS: Final = "{} in kafka.sasl.jaas.config"
VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")


@dataclass(frozen=True, slots=True)
class KeyStores:
    """What a client trusts, and its own certificate and key; `named` is how an error names one of the settings."""

    trusted_path: str | None = None
    trusted_pem: str | None = field(default=None, repr=False)
    trusted_password: str | None = field(default=None, repr=False)
    # The certificate and the key may be in one file.
    certificate_path: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_path: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    named: str = OF_KAFKA
    # The setting of `trusted_path`, if it has another name.
    trusted_setting: str | None = None

    def setting(self, name: str) -> str:
        if name == TRUST_STORE and self.trusted_setting is not None:
            return self.trusted_setting
        return self.named.format(name)


NO_STORES: Final = KeyStores()


def key_stores(settings: Mapping[str, str], named: str = OF_KAFKA) -> KeyStores:
    """Return what the settings name; the content of a file decides its format when it is read."""
    for name in ("ssl.truststore", "ssl.keystore", "ssl.certificate", "ssl.key"):
        if "-----BEGIN" in settings.get(f"{name}.location", ""):
            # Text that is not a file name may be a key, so it is not shown.
            raise OptionError(
                f"{named.format(f'{name}.location')} contains PEM text instead of a file name",
                remedy="Set PEM text with kafka.ssl.truststore.certificates, "
                "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key",
            )
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if settings.get(name, "PEM").strip().upper() not in STORE_TYPES:
            raise OptionError(
                f"{named.format(name)} is {settings[name]!r}",
                remedy=f"Use one of {', '.join(STORE_TYPES)}; convert other stores with `keytool -importkeystore "
                "... -deststoretype PKCS12`",
            )
    keystore = settings.get("ssl.keystore.location")
    certificate = settings.get("ssl.certificate.location", keystore)
    return KeyStores(
        trusted_path=settings.get(TRUST_STORE),
        trusted_pem=settings.get("ssl.truststore.certificates"),
        trusted_password=settings.get("ssl.truststore.password"),
        certificate_path=certificate,
        certificate_pem=settings.get("ssl.keystore.certificate.chain"),
        key_path=settings.get("ssl.key.location", certificate),
        key_pem=settings.get("ssl.keystore.key"),
        keystore_password=settings.get("ssl.keystore.password"),
        key_password=settings.get("ssl.key.password"),
        named=named,
    )


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
